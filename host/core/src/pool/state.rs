//! The whole pool as one value, and its operations.
//!
//! Each operation first ends what is over at `now`, so that nothing depends on how often
//! [`Pool::sweep`] runs. Nothing here waits, and nothing here reads a clock.

use std::sync::Arc;
use std::time::Duration;

use super::ledger::{Ended, Lease};
use super::select::{Standing, View, staying_machine};
use super::{Bounds, Cooldowns, Holds, Ledger, NoMatch, Order, Subject, Target};
use crate::facts::{Fleet, GoodProbe, LeaseCounts, Machine, ProbeRequest, ProxyFacts};
use crate::ids::{Incarnation, LeaseId, ProxyUid};
use crate::time::{Moment, Now};

/// Leases, cooldowns and holds.
#[derive(Debug, Clone)]
pub struct Pool {
    ledger: Ledger,
    cooldowns: Cooldowns,
    holds: Holds,
    cooldown: Duration,
}

/// A granted or renewed lease, with the Proxy as it was at that instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    /// Id of the lease.
    pub id: LeaseId,
    /// Time it was granted for.
    pub ttl: Duration,
    /// End by the wall clock, for people and other systems; what counts is the monotonic clock.
    pub expires_at: jiff::Timestamp,
    /// The Proxy, credentials included.
    pub proxy: Arc<ProxyFacts>,
    /// Its machine that the lease is for.
    pub machine: Machine,
    /// False: the lease is new. True: it was there before.
    pub renewed: bool,
}

/// Why an operation was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The fleet is not known yet; nobody may conclude from an absence.
    NotReady,
    /// No proxy can be granted now.
    NoMatch(NoMatch),
    /// As many leases are live as are kept in all; time until the first of them ends.
    TooManyLeases(Duration),
    /// The session holds a lease that was asked for with another selector or target.
    SessionConflict,
    /// No such lease, or it ended.
    UnknownLease,
    /// The machine of the lease is no more, or is leaving.
    MachineGone,
}

/// What a client experienced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All well. Clears nothing: another client's ban still stands.
    Ok,
    /// The site limited the rate of this proxy.
    RateLimited,
    /// The site refuses this proxy.
    Banned,
    /// The proxy itself could not be reached or does not forward.
    Unreachable,
}

/// A client's report on a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What happened.
    pub outcome: Outcome,
    /// Where; without it the lease's target counts, without that every target.
    pub target: Option<Target>,
    /// Rest time instead of the usual one.
    pub cooldown: Option<Duration>,
    /// End the lease as well.
    pub release: bool,
}

/// Leases and cooldowns of one Proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live leases, earliest end first.
    pub leases: Vec<HeldLease>,
    /// Running cooldowns of its machine and when they end; `None` covers every target.
    pub cooldowns: Vec<(Option<Target>, jiff::Timestamp)>,
    /// A client found it unreachable and no probe has succeeded since.
    pub reported_unreachable: bool,
}

/// A live lease without its id: who knows the id may release it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The site that it is for.
    pub target: Option<Target>,
    /// Who holds it.
    pub holder: Option<String>,
    /// When it ends.
    pub expires_at: jiff::Timestamp,
}

impl Pool {
    /// An empty pool with the usual rest time after a limit or ban. Reports are taken for as long after
    /// the end of a lease: a site's ban is often noticed late.
    pub fn new(cooldown: Duration) -> Self {
        Self::bounded(cooldown, Bounds::default())
    }

    /// The same with other bounds.
    pub fn bounded(cooldown: Duration, bounds: Bounds) -> Self {
        Self {
            ledger: Ledger::new(cooldown, bounds),
            cooldowns: Cooldowns::new(bounds.targets),
            holds: Holds::default(),
            cooldown,
        }
    }

    /// Grants a lease under the new `id`. A live lease of the same session, selector and target is renewed
    /// instead, as long as its proxy may be handed out at all; else the session gets another proxy and the
    /// earlier lease ends. If there is none to grant, the earlier lease stays.
    ///
    /// # Errors
    /// `NotReady`, `NoMatch`, `TooManyLeases`, or `SessionConflict` if the session's lease was asked for in
    /// another way.
    pub fn acquire(
        &mut self,
        fleet: &Fleet,
        order: Order,
        id: LeaseId,
        now: Now,
    ) -> Result<Granted, Refusal> {
        if !fleet.ready {
            return Err(Refusal::NotReady);
        }
        self.ledger.expire(now.mono);
        if let Some(held) = order.session.as_deref().and_then(|s| self.ledger.of_session(s)) {
            let held = held.clone();
            if let Some(facts) = self.session_proxy(fleet, &held, &order, now.mono)? {
                self.ledger.renew(&held.id, order.ttl, now.mono);
                return granted(&held, facts, order.ttl, now).ok_or(Refusal::MachineGone);
            }
        } else if let Some(end) = self.ledger.full_until() {
            return Err(Refusal::TooManyLeases(end.since(now.mono)));
        }
        let facts = self.view().choose(fleet, &order, now.mono).map_err(Refusal::NoMatch)?;
        let Some(machine) = facts.machine.clone() else {
            return Err(Refusal::NoMatch(NoMatch::default()));
        };
        let lease = Lease {
            id: id.clone(),
            uid: facts.uid.clone(),
            incarnation: machine.incarnation.clone(),
            target: order.target,
            selector: order.selector.digest(),
            session: order.session,
            holder: order.holder,
            ttl: order.ttl,
            ends: now.mono + order.ttl,
        };
        self.ledger.grant(lease, now.mono);
        let expires_at = wall_end(now.mono + order.ttl, now);
        Ok(Granted { id, ttl: order.ttl, expires_at, proxy: facts, machine, renewed: false })
    }

    /// Lets a live lease end `ttl` from now. Suspended and unhealthy proxies may be kept by whoever has
    /// them; a machine that is gone or leaving may not.
    ///
    /// # Errors
    /// `NotReady`, `UnknownLease` if it ended or never was, `MachineGone`.
    pub fn renew(
        &mut self,
        fleet: &Fleet,
        id: &LeaseId,
        ttl: Option<Duration>,
        now: Now,
    ) -> Result<Granted, Refusal> {
        if !fleet.ready {
            return Err(Refusal::NotReady);
        }
        self.ledger.expire(now.mono);
        let Some(lease) = self.ledger.live(id).cloned() else {
            return Err(match self.ledger.past(id).map(|past| past.ended) {
                Some(Ended::MachineGone) => Refusal::MachineGone,
                Some(Ended::Expired | Ended::Released) | None => Refusal::UnknownLease,
            });
        };
        let facts = current(fleet, &lease.uid, &lease.incarnation).ok_or(Refusal::MachineGone)?;
        let ttl = ttl.unwrap_or(lease.ttl);
        self.ledger.renew(id, ttl, now.mono);
        granted(&lease, Arc::clone(facts), ttl, now).ok_or(Refusal::MachineGone)
    }

    /// Ends a lease; an unknown or ended one is fine.
    pub fn release(&mut self, id: &LeaseId, now: Moment) {
        self.ledger.expire(now);
        self.ledger.end(id, Ended::Released, now);
    }

    /// Takes a report in. A report about a machine that the Proxy no longer has is accepted and changes
    /// nothing: its replacement has another address.
    ///
    /// # Errors
    /// `NotReady`, or `UnknownLease` if it ended too long ago or never was.
    pub fn report(
        &mut self,
        fleet: &Fleet,
        id: &LeaseId,
        report: Report,
        now: Moment,
    ) -> Result<(), Refusal> {
        if !fleet.ready {
            return Err(Refusal::NotReady);
        }
        self.ledger.expire(now);
        let Subject { uid, incarnation, target } = self.ledger.subject(id).ok_or(Refusal::UnknownLease)?;
        if current(fleet, &uid, &incarnation).is_some() {
            match report.outcome {
                Outcome::Ok => {}
                Outcome::RateLimited | Outcome::Banned => {
                    let scope = report.target.or(target);
                    let end = now + report.cooldown.unwrap_or(self.cooldown);
                    self.cooldowns.start(&uid, &incarnation, scope, end);
                }
                Outcome::Unreachable => self.holds.report(&uid, &incarnation, now),
            }
        }
        if report.release {
            self.ledger.end(id, Ended::Released, now);
        }
        Ok(())
    }

    /// Ends cooldowns of a Proxy: for one target, or all.
    pub fn clear_cooldowns(&mut self, uid: &ProxyUid, target: Option<&Target>) {
        self.cooldowns.clear(uid, target);
    }

    /// Takes in that a forced probe succeeded.
    pub fn probed(&mut self, probe: &GoodProbe) {
        self.holds.probed(probe);
    }

    /// Ends the leases of machines that are no more and forgets what is over. Leases on a machine that is
    /// leaving live on until their end, so that whoever drains it can wait for them.
    pub fn sweep(&mut self, fleet: &Fleet, now: Moment) {
        self.ledger.expire(now);
        self.cooldowns.sweep(now);
        if !fleet.ready {
            return;
        }
        let gone = |uid: &ProxyUid, incarnation: &_| {
            fleet
                .proxies
                .get(uid)
                .is_none_or(|facts| facts.machine.as_ref().is_some_and(|m| m.incarnation != *incarnation))
        };
        self.ledger.end_machines(gone, now);
        self.ledger.forget_proxies(|uid| fleet.proxies.contains_key(uid));
        self.cooldowns.forget_proxies(|uid| fleet.proxies.contains_key(uid));
        self.holds.observe(fleet);
    }

    /// The probes to force now; each is returned once.
    pub fn probes_due(&mut self, now: Moment) -> Vec<ProbeRequest> {
        self.holds.due(now)
    }

    /// Nobody took these probes: they are due again at once.
    pub fn put_off_probes(&mut self, refused: &[ProbeRequest]) {
        self.holds.put_off(refused);
    }

    /// Live leases by Proxy.
    pub fn counts(&mut self, now: Moment) -> LeaseCounts {
        self.ledger.expire(now);
        Arc::new(self.ledger.counts())
    }

    /// Leases and cooldowns of one Proxy.
    pub fn usage(&mut self, fleet: &Fleet, uid: &ProxyUid, now: Now) -> Usage {
        self.ledger.expire(now.mono);
        let leases = self.ledger.of_proxy(uid).into_iter().map(|lease| HeldLease {
            target: lease.target.clone(),
            holder: lease.holder.clone(),
            expires_at: wall_end(lease.ends, now),
        });
        let mut usage = Usage { leases: leases.collect(), ..Usage::default() };
        if let Some(machine) = fleet.proxies.get(uid).and_then(|facts| facts.machine.as_ref()) {
            let running = self.cooldowns.running(uid, &machine.incarnation, now.mono);
            usage.cooldowns = running.into_iter().map(|(scope, end)| (scope, wall_end(end, now))).collect();
            usage.reported_unreachable = self.holds.holds(uid, &machine.incarnation);
        }
        usage
    }

    fn view(&self) -> View<'_> {
        View { ledger: &self.ledger, cooldowns: &self.cooldowns, holds: &self.holds }
    }

    /// The proxy that a repeated request of a session keeps; none if it must not be handed out any more.
    fn session_proxy(
        &self,
        fleet: &Fleet,
        held: &Lease,
        order: &Order,
        now: Moment,
    ) -> Result<Option<Arc<ProxyFacts>>, Refusal> {
        if held.selector != order.selector.digest() || held.target != order.target {
            return Err(Refusal::SessionConflict);
        }
        let Some(facts) = current(fleet, &held.uid, &held.incarnation) else { return Ok(None) };
        if order.exclude.contains(&facts.key) {
            return Err(Refusal::SessionConflict);
        }
        let keep = match self.view().fitness(facts, held.target.as_ref(), now) {
            Standing::Free => Some(Arc::clone(facts)),
            Standing::Suspended
            | Standing::NotReady
            | Standing::Unhealthy
            | Standing::InCooldown(_)
            | Standing::AtCapacity(_)
            | Standing::TargetAtCapacity(_) => None,
        };
        Ok(keep)
    }
}

/// The Proxy of a lease, if it still has the lease's machine and that is not leaving.
fn current<'f>(fleet: &'f Fleet, uid: &ProxyUid, incarnation: &Incarnation) -> Option<&'f Arc<ProxyFacts>> {
    let facts = fleet.proxies.get(uid)?;
    staying_machine(facts).filter(|machine| machine.incarnation == *incarnation).map(|_| facts)
}

fn granted(lease: &Lease, facts: Arc<ProxyFacts>, ttl: Duration, now: Now) -> Option<Granted> {
    let machine = facts.machine.clone()?;
    let expires_at = wall_end(now.mono + ttl, now);
    Some(Granted { id: lease.id.clone(), ttl, expires_at, proxy: facts, machine, renewed: true })
}

/// The moment by the wall clock, cut to whole seconds: a client must not believe in more than it has.
fn wall_end(end: Moment, now: Now) -> jiff::Timestamp {
    let exact = now.wall.checked_add(end.since(now.mono)).unwrap_or(jiff::Timestamp::MAX);
    jiff::Timestamp::from_second(exact.as_second()).unwrap_or(exact)
}
