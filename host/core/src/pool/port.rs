//! The pool as the HTTP API sees it. The API knows this trait only, so that a store shared by several
//! replicas can take the place of the one in memory without a change to the API.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::{Granted, Order, Refusal, Report, Target, Usage};
use crate::facts::LeaseCounts;
use crate::ids::{LeaseId, ProxyUid};

/// An answer under way.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Leases and cooldowns. Every operation is atomic: no two grants can take the same place.
pub trait LeasePort: Send + Sync {
    /// Grants a lease, or renews the one that the session already has.
    fn acquire(&self, order: Order) -> Reply<'_, Result<Granted, Refusal>>;
    /// Lets a live lease end this long from now; without a time, as long as it was granted for.
    fn renew(&self, id: LeaseId, ttl: Option<Duration>) -> Reply<'_, Result<Granted, Refusal>>;
    /// Ends a lease. Idempotent: an unknown or ended one is fine.
    fn release(&self, id: LeaseId) -> Reply<'_, ()>;
    /// Takes in what a client experienced with its lease, live or ended not long ago.
    fn report(&self, id: LeaseId, report: Report) -> Reply<'_, Result<(), Refusal>>;
    /// Live leases by Proxy.
    fn counts(&self) -> Reply<'_, LeaseCounts>;
    /// Leases and cooldowns of one Proxy.
    fn usage(&self, uid: ProxyUid) -> Reply<'_, Usage>;
    /// Ends the cooldown for one target, or with `None` every cooldown of the Proxy. Idempotent.
    fn clear_cooldowns(&self, uid: ProxyUid, target: Option<Target>) -> Reply<'_, ()>;
}
