//! What is under way of one provider, and what may follow.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{Incarnation, InstanceId, ProxyUid};
use crate::time::Moment;

use super::census::Standing;
use super::queue::Queue;
use super::{Admission, Ask, Caps, Census, Purpose, Refusal};

/// So many broken machines are never suspicious: a fleet of two or three is mended at once.
const NEVER_SUSPECT: usize = 2;

/// A machine: id and identity.
pub(super) type Target = (InstanceId, Option<Incarnation>);

/// One provider.
#[derive(Debug, Clone)]
pub(super) struct Share {
    born: Moment,
    replacing: Queue,
    deleting: Queue,
    under_way: BTreeMap<ProxyUid, UnderWay>,
    /// Proxies that serve nobody, and since when.
    down: BTreeMap<ProxyUid, Moment>,
    /// Proxies whose machines look broken, and when they did last.
    broken: BTreeMap<ProxyUid, Moment>,
    /// While the fleet is suspect: how many repairs may be under way.
    slow_start: Option<usize>,
}

/// A machine that goes, or went, so that another one comes.
#[derive(Debug, Clone)]
struct UnderWay {
    target: Target,
    is_repair: bool,
    /// The machine itself may go: a place was given.
    may_go: bool,
    /// Since when it should be coming back.
    since: Moment,
    /// It was seen not to serve since it was admitted.
    was_down: bool,
}

fn target_of(ask: &Ask) -> Target {
    (ask.machine.clone(), ask.incarnation.clone())
}

pub(super) fn refused(why: Refusal, retry: Duration) -> Admission {
    Admission::Refused { why, retry }
}

impl Share {
    pub(super) fn new(caps: &Caps, born: Moment) -> Self {
        Self {
            born,
            replacing: Queue::empty(caps.replacements_per_minute, born),
            deleting: Queue::empty(caps.deletions_per_minute, born),
            under_way: BTreeMap::new(),
            down: BTreeMap::new(),
            broken: BTreeMap::new(),
            slow_start: None,
        }
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.slow_start.is_some()
    }

    /// Takes in who came back, who is away, and who no longer looks broken.
    pub(super) fn refresh(&mut self, census: &Census, caps: &Caps, now: Moment) {
        let mut came_back = Vec::new();
        self.under_way.retain(|uid, entry| {
            let Some(standing) = census.all.get(uid) else { return false };
            let is_another = standing.incarnation.is_some() && standing.incarnation != entry.target.1;
            if !standing.serves {
                entry.was_down = true;
                if standing.drains {
                    entry.since = now;
                }
                return true;
            }
            if entry.was_down || is_another {
                came_back.push((uid.clone(), entry.is_repair));
                return false;
            }
            now.since(entry.since) < caps.unused_after
        });
        for (uid, is_repair) in came_back {
            self.broken.remove(&uid);
            if let Some(allowed) = self.slow_start.as_mut().filter(|_| is_repair) {
                *allowed = allowed.saturating_add(1);
            }
        }
        self.broken.retain(|uid, last| census.all.contains_key(uid) && now.since(*last) <= caps.at_once);
        if self.broken.len() <= NEVER_SUSPECT {
            self.slow_start = None;
        }
        // Both in order. Each ask comes by here, of a fleet that is mostly the one of the ask before.
        if !self.down.keys().eq(&census.down) {
            let before = std::mem::take(&mut self.down);
            let since = |uid: &ProxyUid| before.get(uid).copied().unwrap_or(now);
            self.down = census.down.iter().map(|uid| (uid.clone(), since(uid))).collect();
        }
    }

    pub(super) fn ask(&mut self, ask: &Ask, census: &Census, caps: &Caps, now: Moment) -> Admission {
        let known = self.under_way.get(&ask.uid).filter(|entry| entry.target == target_of(ask));
        match ask.purpose {
            Purpose::Exchange if known.is_some() => Admission::Granted,
            Purpose::Removal | Purpose::Repair if known.is_some_and(|entry| entry.may_go) => {
                Admission::Granted
            }
            Purpose::Exchange => self.exchange(ask, census, caps, now),
            Purpose::Removal => self.replace(ask, false, now),
            Purpose::Repair => self.repair(ask, census, caps, now),
            Purpose::Surplus | Purpose::Deletion => self.place(ask, now),
        }
    }

    /// Room for a machine that serves.
    fn exchange(&mut self, ask: &Ask, census: &Census, caps: &Caps, now: Moment) -> Admission {
        if self.is_suspect() {
            return refused(Refusal::Suspect, caps.suspect_poll);
        }
        let others = || self.under_way.iter().filter(|(uid, _)| **uid != ask.uid);
        let stuck = |(uid, entry): (&ProxyUid, &UnderWay)| {
            !entry.is_repair && census.all.get(uid).is_some_and(|it| is_stuck(it, entry, caps, now))
        };
        if others().any(stuck) {
            return refused(Refusal::Paused, caps.room_poll);
        }
        let serves = |uid: &ProxyUid| census.all.get(uid).is_some_and(|standing| standing.serves);
        let going = others().filter(|(uid, _)| serves(uid)).count();
        let away = going + self.down.keys().filter(|uid| **uid != ask.uid).count();
        if away < ask.replacement.max_unavailable.of(census.all.len().max(1)) {
            self.begin(ask, false, now);
            return Admission::Granted;
        }
        let comes_back = |(uid, since): (&ProxyUid, &Moment)| {
            let drains = census.all.get(uid).is_some_and(|standing| standing.drains);
            drains || now.since(*since) < caps.ready_within
        };
        let progress = going > 0 || self.down.iter().any(comes_back);
        refused(if progress { Refusal::Pending } else { Refusal::Paused }, caps.room_poll)
    }

    /// A machine that looks broken: made anew at once, unless too many do.
    fn repair(&mut self, ask: &Ask, census: &Census, caps: &Caps, now: Moment) -> Admission {
        self.broken.insert(ask.uid.clone(), now);
        let total = census.all.len();
        let usual = if now.since(self.born) < caps.warm_up {
            NEVER_SUSPECT
        } else {
            ask.replacement.max_unavailable.of(total).min(total / 2).max(NEVER_SUSPECT)
        };
        if self.broken.len() <= usual {
            self.slow_start = None;
        } else {
            let allowed = *self.slow_start.get_or_insert(1);
            let repairs = self.under_way.iter().filter(|(uid, entry)| {
                let is_stuck = census.all.get(*uid).is_some_and(|it| is_stuck(it, entry, caps, now));
                entry.is_repair && !is_stuck && **uid != ask.uid
            });
            if repairs.count() >= allowed {
                return refused(Refusal::Suspect, caps.suspect_poll);
            }
        }
        self.replace(ask, true, now)
    }

    /// The machine itself goes, so that another one comes.
    fn replace(&mut self, ask: &Ask, is_repair: bool, now: Moment) -> Admission {
        let answer = self.place(ask, now);
        if answer == Admission::Granted {
            self.begin(ask, is_repair, now);
            if let Some(entry) = self.under_way.get_mut(&ask.uid) {
                (entry.may_go, entry.since) = (true, now);
            }
        }
        answer
    }

    fn begin(&mut self, ask: &Ask, is_repair: bool, now: Moment) {
        let target = target_of(ask);
        let known = self.under_way.get(&ask.uid).is_some_and(|entry| entry.target == target);
        if !known {
            let entry = UnderWay { target, is_repair, may_go: false, since: now, was_down: false };
            self.under_way.insert(ask.uid.clone(), entry);
        }
    }

    /// A place under the cap.
    fn place(&mut self, ask: &Ask, now: Moment) -> Admission {
        let queue = match ask.purpose {
            Purpose::Deletion => &mut self.deleting,
            Purpose::Exchange | Purpose::Removal | Purpose::Repair | Purpose::Surplus => &mut self.replacing,
        };
        queue.ask(&ask.uid, target_of(ask), now)
    }
}

/// It should have come back by now.
fn is_stuck(standing: &Standing, entry: &UnderWay, caps: &Caps, now: Moment) -> bool {
    !standing.serves && (standing.failed || now.since(entry.since) >= caps.ready_within)
}
