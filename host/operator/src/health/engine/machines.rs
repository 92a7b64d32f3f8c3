//! The machines that are probed: one entry per Proxy, and the order in which they are due.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use egress_proxies_core::facts::{Fleet, GoodProbe, ProbeRequest, ProxyFacts, Suspicions, Verdict};
use egress_proxies_core::health::{
    HealthState, Hold, Outcome, Standing, forced_due, judge, known_due, next_due, restore, standing,
};
use egress_proxies_core::ids::{ProxyKey, ProxyUid};
use egress_proxies_core::time::{Moment, Now};

use super::groups::Groups;
use crate::health::probe::ProbeTarget;

/// One probe of one machine. Numbers are never used twice, so a result finds either its own attempt or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) uid: ProxyUid,
    number: u64,
}

/// What a result brings about.
#[derive(Debug, Default)]
pub(super) struct Publish {
    pub(super) verdicts: Vec<(ProxyUid, Verdict)>,
    pub(super) suspicions: bool,
    pub(super) good: Option<GoodProbe>,
}

/// A Proxy that is no longer there with this machine; its key if it is not probed at all any more.
pub(super) type Gone = (ProxyUid, Option<ProxyKey>);

/// What a change of the fleet brings about.
#[derive(Debug, Default)]
pub(super) struct Synced {
    pub(super) gone: Vec<Gone>,
    /// To be published after `gone`.
    pub(super) publish: Publish,
}

#[derive(Debug)]
struct Entry {
    facts: Arc<ProxyFacts>,
    target: ProbeTarget,
    state: HealthState,
    standing: Standing,
    /// When it is due; none while a probe is in flight.
    due: Option<Moment>,
    in_flight: Option<u64>,
    /// A probe out of turn is to start then.
    forced: Option<Moment>,
    last_forced: Option<Moment>,
    /// Since then somebody waits for a good probe.
    awaited: Option<Moment>,
}

/// All machines.
#[derive(Debug, Default)]
pub(super) struct Machines {
    entries: BTreeMap<ProxyUid, Entry>,
    queue: BTreeSet<(Moment, ProxyUid)>,
    groups: Groups,
    attempts: u64,
}

impl Machines {
    /// Follows the fleet.
    pub(super) fn sync(&mut self, fleet: &Fleet, now: Now) -> Synced {
        let mut gone = Vec::new();
        let same = |uid: &ProxyUid, entry: &Entry| {
            fleet.proxies.get(uid).is_some_and(|facts| Arc::ptr_eq(facts, &entry.facts))
        };
        let touched = self.entries.iter().filter(|(uid, entry)| !same(uid, entry));
        for uid in touched.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            let target = fleet.proxies.get(&uid).and_then(|facts| ProbeTarget::of(facts));
            let machine = target.map(|target| target.machine);
            let kept = |entry: &Entry| machine.as_ref() == Some(&entry.target.machine);
            if self.entries.get(&uid).is_some_and(kept) {
                continue;
            }
            if let Some(entry) = self.remove(&uid, now) {
                gone.push((uid, machine.is_none().then(|| entry.facts.key.clone())));
            }
        }
        for (uid, facts) in fleet.proxies.iter() {
            if self.entries.get(uid).is_some_and(|entry| Arc::ptr_eq(&entry.facts, facts)) {
                continue;
            }
            let Some(target) = ProbeTarget::of(facts) else { continue };
            if self.entries.contains_key(uid) {
                self.update(uid, facts, target, now);
            } else {
                self.insert(uid, facts, target, now);
            }
        }
        Synced { gone, publish: self.settle(now) }
    }

    fn insert(&mut self, uid: &ProxyUid, facts: &Arc<ProxyFacts>, target: ProbeTarget, now: Now) {
        let state = HealthState::new(target.machine.clone(), facts);
        let due = match state.verdict() {
            Some(_) => known_due(&target.plan, seed(uid), now.mono),
            None => now.mono,
        };
        let standing = standing(&state, &target.plan);
        self.groups.enter(&target.plan.url, standing, now.wall);
        self.queue.insert((due, uid.clone()));
        let entry = Entry {
            facts: Arc::clone(facts),
            target,
            state,
            standing,
            due: Some(due),
            in_flight: None,
            forced: None,
            last_forced: None,
            awaited: None,
        };
        self.entries.insert(uid.clone(), entry);
    }

    /// An edited plan or other credentials are tried soon. (Another address is another machine: [`Self::sync`].)
    fn update(&mut self, uid: &ProxyUid, facts: &Arc<ProxyFacts>, target: ProbeTarget, now: Now) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.facts = Arc::clone(facts);
        if entry.target == target {
            return;
        }
        let (before, after) = (entry.standing, standing(&entry.state, &target.plan));
        if entry.target.plan.url == target.plan.url {
            self.groups.change(&target.plan.url, before, after, now.wall);
        } else {
            self.groups.leave(&entry.target.plan.url, before, now.wall);
            self.groups.enter(&target.plan.url, after, now.wall);
        }
        entry.standing = after;
        entry.target = target;
        self.force(uid, now.mono);
    }

    fn remove(&mut self, uid: &ProxyUid, now: Now) -> Option<Entry> {
        let entry = self.entries.remove(uid)?;
        if let Some(due) = entry.due {
            self.queue.remove(&(due, uid.clone()));
        }
        self.groups.leave(&entry.target.plan.url, entry.standing, now.wall);
        Some(entry)
    }

    /// Somebody asks for a probe of this very machine.
    pub(super) fn request(&mut self, request: &ProbeRequest, now: Moment) {
        let Some(entry) = self.entries.get_mut(&request.uid) else { return };
        if entry.target.machine.incarnation != request.incarnation {
            return;
        }
        entry.awaited.get_or_insert(now);
        self.force(&request.uid, now);
    }

    fn force(&mut self, uid: &ProxyUid, now: Moment) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let at = forced_due(entry.last_forced, now);
        entry.forced = Some(entry.forced.map_or(at, |earlier| earlier.min(at)));
        if let Some(due) = entry.due {
            self.schedule(uid, due);
        }
    }

    /// Puts a machine that has no probe in flight into the queue.
    fn schedule(&mut self, uid: &ProxyUid, regular: Moment) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if let Some(old) = entry.due {
            self.queue.remove(&(old, uid.clone()));
        }
        let due = entry.forced.map_or(regular, |forced| forced.min(regular));
        entry.due = Some(due);
        self.queue.insert((due, uid.clone()));
    }

    /// When the next machine is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// Marks the first machine that is due as being probed.
    pub(super) fn start_next(&mut self, now: Moment) -> Option<(Attempt, ProbeTarget)> {
        if self.next_due()? > now {
            return None;
        }
        let (_, uid) = self.queue.pop_first()?;
        let entry = self.entries.get_mut(&uid)?;
        self.attempts = self.attempts.saturating_add(1);
        entry.due = None;
        entry.in_flight = Some(self.attempts);
        if entry.forced.take_if(|at| *at <= now).is_some() {
            entry.last_forced = Some(now);
        }
        let target = entry.target.clone();
        Some((Attempt { uid, number: self.attempts }, target))
    }

    /// The Proxy of an attempt whose result is still wanted.
    pub(super) fn key_of(&self, attempt: &Attempt) -> Option<&ProxyKey> {
        let entry = self.entries.get(&attempt.uid)?;
        (entry.in_flight == Some(attempt.number)).then_some(&entry.facts.key)
    }

    /// The attempt ended without a result, which says nothing about the machine.
    pub(super) fn abandon(&mut self, attempt: &Attempt, now: Moment) {
        let Some(entry) = self.entries.get_mut(&attempt.uid) else { return };
        if entry.in_flight == Some(attempt.number) {
            entry.in_flight = None;
            let regular = next_due(&entry.state, &entry.target.plan, now);
            self.schedule(&attempt.uid, regular);
        }
    }

    /// Takes in the result of an attempt.
    pub(super) fn finish(
        &mut self,
        attempt: &Attempt,
        started: Moment,
        outcome: &Outcome,
        now: Now,
    ) -> Publish {
        let uid = &attempt.uid;
        let Some(entry) = self.entries.get_mut(uid) else { return Publish::default() };
        if entry.in_flight.take_if(|number| *number == attempt.number).is_none() {
            return Publish::default();
        }
        let plan = &entry.target.plan;
        let before = self.groups.hold(&plan.url);
        let mut judged = judge(&entry.state, plan, outcome, before, now);
        let after = standing(&judged.state, plan);
        self.groups.change(&plan.url, entry.standing, after, now.wall);
        entry.standing = after;
        if before == Hold::No && self.groups.hold(&plan.url) == Hold::Yes {
            // This very result raised the suspicion, so it is held as well.
            judged = judge(&entry.state, plan, outcome, Hold::Yes, now);
            let after = standing(&judged.state, plan);
            self.groups.change(&plan.url, entry.standing, after, now.wall);
            entry.standing = after;
        }
        entry.state = judged.state;
        let verdict = judged.publish.map(|verdict| (uid.clone(), verdict));
        let regular = next_due(&entry.state, plan, started);
        let good = good_probe(entry, uid, started, outcome);
        self.schedule(uid, regular);
        let mut publish = self.settle(now);
        publish.verdicts.splice(0..0, verdict);
        publish.good = good;
        publish
    }

    /// Carries out what changes of the counts did to suspicions.
    fn settle(&mut self, now: Now) -> Publish {
        let mut publish = Publish::default();
        for url in self.groups.take_raised() {
            publish.verdicts.extend(self.restore_fallen(&url, now));
            if let Some(cause) = self.commonest_cause(&url) {
                self.groups.explain(&url, &cause);
            }
        }
        publish.suspicions = self.groups.take_changed();
        publish
    }

    /// What most of the failing machines with this URL fail with.
    fn commonest_cause(&self, url: &str) -> Option<String> {
        let mut causes = BTreeMap::<_, usize>::new();
        for entry in self.entries.values() {
            if entry.target.plan.url == url
                && entry.standing == Standing::Failing
                && let Some(cause) = entry.state.failure()
            {
                let count = causes.entry(cause).or_default();
                *count = count.saturating_add(1);
            }
        }
        let ((reason, message), _) = causes.into_iter().max_by_key(|(_, count)| *count)?;
        Some(format!("{reason}: {message}"))
    }

    /// Proxies that fell on the way to a suspicion get their verdict back.
    fn restore_fallen(&mut self, url: &str, now: Now) -> Vec<(ProxyUid, Verdict)> {
        let mut restored = Vec::new();
        for (uid, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.target.plan.url == url) {
            if let Some(judgement) = restore(&entry.state, &entry.target.plan, now) {
                entry.state = judgement.state;
                restored.extend(judgement.publish.map(|verdict| (uid.clone(), verdict)));
            }
        }
        restored
    }

    /// What is suspected now.
    pub(super) fn suspicions(&self) -> Suspicions {
        self.groups.suspicions()
    }
}

/// The news that somebody waits for: a good probe that began after they asked.
fn good_probe(entry: &mut Entry, uid: &ProxyUid, started: Moment, outcome: &Outcome) -> Option<GoodProbe> {
    match outcome {
        Outcome::Failed { .. } => None,
        Outcome::Passed { .. } => {
            entry.awaited.take_if(|since| *since <= started)?;
            let incarnation = entry.target.machine.incarnation.clone();
            Some(GoodProbe { uid: uid.clone(), incarnation, started })
        }
    }
}

/// A number that differs from machine to machine and stays the same over restarts.
fn seed(uid: &ProxyUid) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
