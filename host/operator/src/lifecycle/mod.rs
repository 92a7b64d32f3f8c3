//! Observes Proxies and their machines, decides, applies; the one writer of status.
//!
//! Every decision is `egress_proxies_core::lifecycle::decide`; this room gathers what it needs, carries out
//! the one effect it names, and asks again.

mod apply;
mod controller;
mod events;
mod memory;
mod observe;
mod queue;
mod recorder;
mod status;

pub use controller::{LifecycleError, LifecycleSetup, run};
pub use observe::{Namespaces, WatchEnded};
pub use recorder::{LifecycleMetrics, Outcome, Silent, Write};
