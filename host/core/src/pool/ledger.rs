//! Who holds what: live leases with the indexes that selection needs, and ended ones for late reports.
//!
//! Knows nothing of health, cooldowns or Proxies. Time goes by the monotonic clock only, so a jump of the
//! wall clock neither ends nor prolongs a lease. [`Ledger::expire`] must run before a question is asked;
//! `Pool` does that in every operation, so that nothing depends on a sweeper.
//!
//! Whatever clients do, its memory is bounded: by [`Bounds`], and by keeping nothing of a request whose size
//! the client chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Bounds, Load, SelectorDigest, Target};
use crate::ids::{Incarnation, LeaseId, ProxyUid};
use crate::time::Moment;

/// The right to use one machine for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Opaque; whoever knows it may renew, report and release.
    pub id: LeaseId,
    /// The Proxy.
    pub uid: ProxyUid,
    /// The machine. A lease never moves to the machine that replaces it.
    pub incarnation: Incarnation,
    /// The site it is for; none = any.
    pub target: Option<Target>,
    /// What was asked for, to recognise a repeated request of a session.
    pub selector: SelectorDigest,
    /// The client's name for what it is doing; at most one live lease each.
    pub session: Option<String>,
    /// Who holds it, for people.
    pub holder: Option<String>,
    /// Time granted at the last grant or renewal.
    pub ttl: Duration,
    /// When it ends.
    pub ends: Moment,
}

/// How a lease came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its time was up.
    Expired,
    /// The client gave it back.
    Released,
    /// The machine or its Proxy is no more.
    MachineGone,
}

/// What a report on a lease is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The Proxy.
    pub uid: ProxyUid,
    /// The machine.
    pub incarnation: Incarnation,
    /// The site that the lease is or was for.
    pub target: Option<Target>,
}

/// An ended lease that still takes reports.
#[derive(Debug, Clone)]
pub struct Past {
    /// What reports on it are about.
    pub subject: Subject,
    /// Why it ended.
    pub ended: Ended,
}

/// All leases.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    live: BTreeMap<LeaseId, Lease>,
    by_end: BTreeSet<(Moment, LeaseId)>,
    loads: BTreeMap<ProxyUid, Load>,
    sessions: BTreeMap<String, LeaseId>,
    past: BTreeMap<LeaseId, Past>,
    past_by_end: BTreeSet<(Moment, LeaseId)>,
    grants: u64,
    last_grant: BTreeMap<ProxyUid, u64>,
    remember: Duration,
    bounds: Bounds,
}

impl Ledger {
    /// A ledger that resolves ended leases for `remember` after their end.
    pub fn new(remember: Duration, bounds: Bounds) -> Self {
        Self { remember, bounds, ..Self::default() }
    }

    /// There is no room for one more lease; when the first one ends, if none is renewed.
    pub fn full_until(&self) -> Option<Moment> {
        self.by_end.first().filter(|_| self.live.len() >= self.bounds.live).map(|(end, _)| *end)
    }

    /// Enters a new lease. Leases on another machine of the same Proxy end: the caller grants only what
    /// the Proxy has now. A lease of the same session ends as released.
    pub fn grant(&mut self, lease: Lease, now: Moment) {
        if self.loads.get(&lease.uid).is_some_and(|load| *load.incarnation() != lease.incarnation) {
            self.end_machine(&lease.uid, now);
        }
        if let Some(earlier) = lease.session.as_ref().and_then(|s| self.sessions.get(s).cloned()) {
            self.end(&earlier, Ended::Released, now);
        }
        self.grants += 1;
        self.last_grant.insert(lease.uid.clone(), self.grants);
        self.loads
            .entry(lease.uid.clone())
            .or_insert_with(|| Load::new(lease.incarnation.clone()))
            .add(&lease);
        self.by_end.insert((lease.ends, lease.id.clone()));
        if let Some(session) = &lease.session {
            self.sessions.insert(session.clone(), lease.id.clone());
        }
        self.live.insert(lease.id.clone(), lease);
    }

    /// Lets a live lease end `ttl` from now.
    pub fn renew(&mut self, id: &LeaseId, ttl: Duration, now: Moment) -> Option<&Lease> {
        let lease = self.live.get_mut(id)?;
        self.by_end.remove(&(lease.ends, id.clone()));
        if let Some(load) = self.loads.get_mut(&lease.uid) {
            load.remove(lease);
            lease.ttl = ttl;
            lease.ends = now + ttl;
            load.add(lease);
        }
        self.by_end.insert((lease.ends, id.clone()));
        Some(lease)
    }

    /// Ends a live lease; does nothing if there is none, so that a repeated release frees nobody else's.
    pub fn end(&mut self, id: &LeaseId, why: Ended, now: Moment) {
        let Some(lease) = self.live.remove(id) else { return };
        self.by_end.remove(&(lease.ends, id.clone()));
        if let Some(load) = self.loads.get_mut(&lease.uid) {
            load.remove(&lease);
            if load.is_empty() {
                self.loads.remove(&lease.uid);
            }
        }
        if let Some(session) = &lease.session
            && self.sessions.get(session) == Some(id)
        {
            self.sessions.remove(session);
        }
        self.past_by_end.insert((now + self.remember, id.clone()));
        let subject = Subject { uid: lease.uid, incarnation: lease.incarnation, target: lease.target };
        self.past.insert(id.clone(), Past { subject, ended: why });
        while self.past.len() > self.bounds.ended {
            self.forget_oldest();
        }
    }

    /// Ends every lease whose time is up, and forgets ended ones that were remembered long enough.
    pub fn expire(&mut self, now: Moment) {
        while let Some((end, id)) = self.by_end.first().filter(|(end, _)| *end <= now).cloned() {
            self.end(&id, Ended::Expired, end);
        }
        while self.past_by_end.first().is_some_and(|(end, _)| *end <= now) {
            self.forget_oldest();
        }
    }

    /// Ends the leases of machines that are no more, as `gone` says.
    pub fn end_machines(&mut self, gone: impl Fn(&ProxyUid, &Incarnation) -> bool, now: Moment) {
        let uids: Vec<ProxyUid> = self
            .loads
            .iter()
            .filter(|(uid, load)| gone(uid, load.incarnation()))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in uids {
            self.end_machine(&uid, now);
        }
    }

    /// Forgets when Proxies that no longer exist were last leased.
    pub fn forget_proxies(&mut self, exists: impl Fn(&ProxyUid) -> bool) {
        self.last_grant.retain(|uid, _| exists(uid));
    }

    /// A live lease.
    pub fn live(&self, id: &LeaseId) -> Option<&Lease> {
        self.live.get(id)
    }

    /// An ended lease that is still remembered.
    pub fn past(&self, id: &LeaseId) -> Option<&Past> {
        self.past.get(id)
    }

    /// What a report on the lease is about, be it live or ended not long ago.
    pub fn subject(&self, id: &LeaseId) -> Option<Subject> {
        let live = self.live.get(id).map(|lease| Subject {
            uid: lease.uid.clone(),
            incarnation: lease.incarnation.clone(),
            target: lease.target.clone(),
        });
        live.or_else(|| self.past.get(id).map(|past| past.subject.clone()))
    }

    /// The live lease of a session.
    pub fn of_session(&self, session: &str) -> Option<&Lease> {
        self.sessions.get(session).and_then(|id| self.live.get(id))
    }

    /// The live leases on one machine; none if it has none.
    pub fn load(&self, uid: &ProxyUid, incarnation: &Incarnation) -> Option<&Load> {
        self.loads.get(uid).filter(|load| load.incarnation() == incarnation)
    }

    /// Place of the Proxy's last grant in the order of all grants; 0 = never leased.
    pub fn last_grant(&self, uid: &ProxyUid) -> u64 {
        self.last_grant.get(uid).copied().unwrap_or(0)
    }

    /// Live leases by Proxy, whatever the machine.
    pub fn counts(&self) -> BTreeMap<ProxyUid, u32> {
        self.loads.iter().map(|(uid, load)| (uid.clone(), load.total())).collect()
    }

    /// The live leases of a Proxy, earliest end first.
    pub fn of_proxy(&self, uid: &ProxyUid) -> Vec<&Lease> {
        self.loads
            .get(uid)
            .map(|load| load.ids().filter_map(|id| self.live.get(id)).collect())
            .unwrap_or_default()
    }

    fn end_machine(&mut self, uid: &ProxyUid, now: Moment) {
        let ids: Vec<LeaseId> =
            self.loads.get(uid).map(|load| load.ids().cloned().collect()).unwrap_or_default();
        for id in ids {
            self.end(&id, Ended::MachineGone, now);
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.past_by_end.pop_first() {
            self.past.remove(&id);
        }
    }
}
