//! The pool in the memory of this process, behind one lock: for a single replica. A restart forgets all
//! leases and cooldowns; crawlers keep working and lease anew.
//!
//! The fleet and the time are read under the lock. Read before it, an operation could act on an older
//! fleet than the operation before it did, and end the leases of a machine that has just come.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use egress_proxies_core::facts::{Fleet, GoodProbe, LeaseCounts, ProbeRequest};
use egress_proxies_core::ids::{LeaseId, ProxyUid};
use egress_proxies_core::pool::{Granted, LeasePort, Order, Pool, Refusal, Reply, Report, Target, Usage};
use egress_proxies_core::time::Now;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::{PoolStore, Swept};
use crate::clock::SharedClock;

/// The pool in memory.
pub struct MemoryStore {
    pool: Mutex<Pool>,
    fleet: watch::Receiver<Fleet>,
    clock: SharedClock,
    touched: Notify,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty pool over this fleet, with the usual rest time after a limit or ban.
    pub fn new(fleet: watch::Receiver<Fleet>, clock: SharedClock, cooldown: Duration) -> Self {
        Self { pool: Mutex::new(Pool::new(cooldown)), fleet, clock, touched: Notify::new() }
    }

    /// Runs one operation alone. Nothing in it waits, so the lock is held for a moment only.
    fn alone<T>(&self, operation: impl FnOnce(&mut Pool, &Fleet, Now) -> T) -> T {
        // A panic inside an operation loses that operation; the next one finds a usable pool.
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let fleet = self.fleet.borrow().clone();
        let answer = operation(&mut pool, &fleet, self.clock.now());
        drop(pool);
        answer
    }

    fn touching<T>(&self, operation: impl FnOnce(&mut Pool, &Fleet, Now) -> T) -> T {
        let answer = self.alone(operation);
        self.touched.notify_one();
        answer
    }
}

impl LeasePort for MemoryStore {
    fn acquire(&self, order: Order) -> Reply<'_, Result<Granted, Refusal>> {
        Box::pin(async move {
            // 122 random bits from the operating system: an id is the key to its lease.
            let id = LeaseId::parse(Uuid::new_v4().to_string()).map_err(|_| Refusal::UnknownLease)?;
            self.touching(|pool, fleet, now| pool.acquire(fleet, order, id, now))
        })
    }

    fn renew(&self, id: LeaseId, ttl: Option<Duration>) -> Reply<'_, Result<Granted, Refusal>> {
        Box::pin(async move { self.alone(|pool, fleet, now| pool.renew(fleet, &id, ttl, now)) })
    }

    fn release(&self, id: LeaseId) -> Reply<'_, ()> {
        Box::pin(async move { self.touching(|pool, _, now| pool.release(&id, now.mono)) })
    }

    fn report(&self, id: LeaseId, report: Report) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(async move { self.touching(|pool, fleet, now| pool.report(fleet, &id, report, now.mono)) })
    }

    fn counts(&self) -> Reply<'_, LeaseCounts> {
        Box::pin(async move { self.alone(|pool, _, now| pool.counts(now.mono)) })
    }

    fn usage(&self, uid: ProxyUid) -> Reply<'_, Usage> {
        Box::pin(async move { self.alone(|pool, fleet, now| pool.usage(fleet, &uid, now)) })
    }

    fn clear_cooldowns(&self, uid: ProxyUid, target: Option<Target>) -> Reply<'_, ()> {
        Box::pin(async move { self.alone(|pool, _, _| pool.clear_cooldowns(&uid, target.as_ref())) })
    }
}

impl PoolStore for MemoryStore {
    fn sweep(&self) -> Reply<'_, Swept> {
        Box::pin(async move {
            self.alone(|pool, fleet, now| {
                pool.sweep(fleet, now.mono);
                Swept { counts: pool.counts(now.mono), probes: pool.probes_due(now.mono) }
            })
        })
    }

    fn probed(&self, probe: GoodProbe) -> Reply<'_, ()> {
        Box::pin(async move { self.alone(|pool, _, _| pool.probed(&probe)) })
    }

    fn put_off(&self, refused: Vec<ProbeRequest>) -> Reply<'_, ()> {
        Box::pin(async move { self.alone(|pool, _, _| pool.put_off_probes(&refused)) })
    }

    fn touched(&self) -> Reply<'_, ()> {
        Box::pin(self.touched.notified())
    }
}
