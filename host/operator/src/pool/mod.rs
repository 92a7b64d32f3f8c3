//! Holds leases and cooldowns: the state behind the lease API.
//!
//! The rules are `egress_proxies_core::pool`, pure; this room gives them a place to live, the time, ids
//! and the Proxies, and tells the others what they need: lease counts to whoever drains a machine, probe
//! requests to health. It never touches Kubernetes and never probes.

mod memory;
mod sweeper;
#[cfg(test)]
mod tests;

use egress_proxies_core::facts::{GoodProbe, LeaseCounts, ProbeRequest};
use egress_proxies_core::pool::{LeasePort, Reply};

pub use memory::MemoryStore;
pub use sweeper::{Sweeper, SweeperChannels};

/// A place for leases and cooldowns. What clients do is [`LeasePort`]; this is what the operator does.
/// Asynchronous, so that a store outside of the process can take the place of the one in memory.
pub trait PoolStore: LeasePort {
    /// Ends what is over or has lost its machine.
    fn sweep(&self) -> Reply<'_, Swept>;
    /// Takes in that a forced probe succeeded.
    fn probed(&self, probe: GoodProbe) -> Reply<'_, ()>;
    /// Takes back probes that nobody took: the next sweep gives them again.
    fn put_off(&self, refused: Vec<ProbeRequest>) -> Reply<'_, ()>;
    /// Completes after the next change that [`PoolStore::sweep`] should look at soon.
    fn touched(&self) -> Reply<'_, ()>;
}

/// What a sweep found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Live leases by Proxy.
    pub counts: LeaseCounts,
    /// Probes to force now.
    pub probes: Vec<ProbeRequest>,
}
