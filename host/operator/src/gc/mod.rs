//! Finds machines that nobody needs any more, and deletes them.
//!
//! What is one, and which may go, is decided by `egress_proxies_core::gc`; this room lists, looks again right
//! before each delete, and carries it out. It writes nothing to the cluster, never touches a machine without
//! our tags, and imports no other loop.

mod recorder;
mod run;

pub use recorder::{GcMetrics, PassOutcome, Removed};
pub use run::{GcError, GcSetup, LiveProxies, LiveProxy, ProxyApi, ProxySource, run};
