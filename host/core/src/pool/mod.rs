//! Selecting proxies for leases: who gets which, for how long, and who must rest.
//!
//! All of it is state and functions of plain values: `now` and the ids of new leases come in as
//! parameters, the Proxies as a [`crate::facts::Fleet`]. `docs/pool.md` states the rules as tables; each
//! line of a table has a test. Whoever keeps a [`Pool`] must serialise its operations.

mod cooldowns;
mod holds;
mod ledger;
mod load;
mod port;
mod select;
mod state;
mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use cooldowns::{Cooldowns, Scope};
pub use holds::{FORCED_PROBE_PERIOD, Holds};
pub use ledger::{Ended, Lease, Ledger, Past, Subject};
pub use load::Load;
pub use port::{LeasePort, Reply};
pub use select::{NoMatch, Order, Prefer, Selector, SelectorDigest, Standing, View, staying_machine};
pub use state::{Granted, HeldLease, Outcome, Pool, Refusal, Report, Usage};
pub use target::{InvalidTarget, Target};

/// Time of a lease that asks for none.
pub const DEFAULT_TTL: Duration = Duration::from_mins(5);
/// Longest time of a lease.
pub const MAX_TTL: Duration = Duration::from_hours(24);
/// Rest time after `rate_limited` or `banned` unless set otherwise.
pub const DEFAULT_COOLDOWN: Duration = Duration::from_mins(15);
/// Longest rest time that a report may ask for.
pub const MAX_COOLDOWN: Duration = Duration::from_hours(7 * 24);

/// How much a pool keeps, whatever clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Live leases; beyond it none is granted.
    pub live: usize,
    /// Ended leases kept for late reports; beyond it the oldest are forgotten early.
    pub ended: usize,
    /// Targets that one machine rests for; beyond it the cooldown that ends first is dropped.
    pub targets: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { live: 100_000, ended: 100_000, targets: 256 }
    }
}
