//! What is under way of one provider, and what may follow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Incarnation, InstanceId, ProxyUid};
use crate::time::Moment;

use super::census::Standing;
use super::queue::Queue;
use super::{Admission, Ask, Caps, Census, Purpose, Refusal};

/// So many broken machines are never suspicious: a fleet of two or three is mended at once.
const NEVER_SUSPECT: usize = 2;
/// Between two looks through those that look broken.
const SWEEP: Duration = Duration::from_secs(1);

/// A machine: id and identity.
pub(super) type Target = (InstanceId, Option<Incarnation>);

/// One provider.
#[derive(Debug, Clone)]
pub(super) struct Share {
    born: Moment,
    replacing: Queue,
    deleting: Queue,
    under_way: BTreeMap<ProxyUid, UnderWay>,
    /// Who served when it was last told.
    census: Arc<Census>,
    /// Proxies that serve nobody, and since when.
    down: BTreeMap<ProxyUid, Moment>,
    /// Proxies whose machines look broken, and when they did last.
    broken: BTreeMap<ProxyUid, Moment>,
    /// When those were looked through for the last time.
    swept: Moment,
    /// While the fleet is suspect: how many that look broken may be under way.
    slow_start: Option<usize>,
}

/// A machine that goes, or went, so that another one comes.
#[derive(Debug, Clone)]
struct UnderWay {
    target: Target,
    cause: Cause,
    /// The machine itself may go: a place was given.
    may_go: bool,
    /// Since when it should be coming back.
    since: Moment,
    /// It was seen not to serve since it was admitted.
    was_down: bool,
}

/// What began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It served, and had room.
    Exchange,
    /// Another one was wanted, and it looked of no use.
    Useless,
    /// It looked broken.
    Repair,
}

impl Cause {
    /// It tries a change, which may be a bad one.
    fn tries_a_change(self) -> bool {
        match self {
            Self::Exchange | Self::Useless => true,
            Self::Repair => false,
        }
    }

    /// It rests on a look that may be wrong.
    fn rests_on_a_look(self) -> bool {
        match self {
            Self::Useless | Self::Repair => true,
            Self::Exchange => false,
        }
    }
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
            census: Arc::default(),
            down: BTreeMap::new(),
            broken: BTreeMap::new(),
            swept: born,
            slow_start: None,
        }
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.slow_start.is_some()
    }

    /// Takes in who came back, who is away, and who no longer looks broken.
    pub(super) fn refresh(&mut self, census: &Arc<Census>, caps: &Caps, now: Moment) {
        let is_news = !Arc::ptr_eq(&self.census, census);
        self.census = Arc::clone(census);
        self.settle(caps, now);
        // Each of many may ask many times of one fleet; what is as large as the fleet is done for each fleet.
        if is_news {
            let before = std::mem::take(&mut self.down);
            let since = |uid: &ProxyUid| before.get(uid).copied().unwrap_or(now);
            self.down = census.down.iter().map(|uid| (uid.clone(), since(uid))).collect();
        }
        if is_news || now.since(self.swept) >= SWEEP {
            self.broken.retain(|uid, last| census.all.contains_key(uid) && now.since(*last) <= caps.at_once);
            self.swept = now;
        }
        if self.broken.len() <= NEVER_SUSPECT {
            self.slow_start = None;
        }
    }

    /// Those that came back are under way no longer, and let slow start go on.
    fn settle(&mut self, caps: &Caps, now: Moment) {
        let census = &self.census;
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
                // One that only waited for its place was not made anew: it says nothing of those that are.
                came_back.push((uid.clone(), entry.cause.rests_on_a_look() && entry.may_go));
                return false;
            }
            now.since(entry.since) < caps.unused_after
        });
        for (uid, made_anew) in came_back {
            self.broken.remove(&uid);
            if let Some(allowed) = self.slow_start.as_mut().filter(|_| made_anew) {
                *allowed = allowed.saturating_add(1);
            }
        }
    }

    pub(super) fn ask(&mut self, ask: &Ask, caps: &Caps, now: Moment) -> Admission {
        let known = self.under_way.get(&ask.uid).filter(|entry| entry.target == target_of(ask));
        match ask.purpose {
            Purpose::Exchange if known.is_some() => Admission::Granted,
            Purpose::Removal | Purpose::Repair if known.is_some_and(|entry| entry.may_go) => {
                Admission::Granted
            }
            Purpose::Exchange => self.exchange(ask, caps, now),
            Purpose::Removal => self.removal(ask, caps, now),
            Purpose::Repair => self.unless_suspect(ask, Cause::Repair, caps, now),
            Purpose::Surplus | Purpose::Deletion => self.place(ask, now),
        }
    }

    /// Room for a machine that serves.
    fn exchange(&mut self, ask: &Ask, caps: &Caps, now: Moment) -> Admission {
        if self.is_suspect() {
            return refused(Refusal::Suspect, caps.suspect_poll);
        }
        if self.changes_are_stuck(ask, caps, now) {
            return refused(Refusal::Paused, caps.room_poll);
        }
        let census = &self.census;
        let others = self.under_way.keys().filter(|uid| **uid != ask.uid);
        let serves = |uid: &&ProxyUid| census.all.get(*uid).is_some_and(|standing| standing.serves);
        let going = others.filter(serves).count();
        let away = going + self.down.keys().filter(|uid| **uid != ask.uid).count();
        if away < ask.replacement.max_unavailable.of(census.all.len().max(1)) {
            self.begin(ask, Cause::Exchange, now);
            return Admission::Granted;
        }
        let comes_back = |(uid, since): (&ProxyUid, &Moment)| {
            let drains = census.all.get(uid).is_some_and(|standing| standing.drains);
            drains || now.since(*since) < caps.ready_within
        };
        let progress = going > 0 || self.down.iter().any(comes_back);
        refused(if progress { Refusal::Pending } else { Refusal::Paused }, caps.room_poll)
    }

    /// Others that were given another machine because another one was wanted do not become ready.
    fn changes_are_stuck(&self, ask: &Ask, caps: &Caps, now: Moment) -> bool {
        self.under_way.iter().any(|(uid, entry)| {
            *uid != ask.uid && entry.cause.tries_a_change() && self.is_stuck(uid, entry, caps, now)
        })
    }

    /// Another machine is wanted than this one, which serves nobody. If clients know it, it may serve again: it
    /// stays while the fleet is suspect, and while a change that was tried before does not work, for a probe
    /// that fails for some seconds must not cost one after the other what was left alone so far.
    fn removal(&mut self, ask: &Ask, caps: &Caps, now: Moment) -> Admission {
        let shows = |it: &Standing| it.incarnation.is_some() && it.incarnation == ask.incarnation;
        if !self.census.all.get(&ask.uid).is_some_and(shows) {
            return self.replace(ask, Cause::Useless, now);
        }
        let known = self.under_way.get(&ask.uid);
        if known.is_some_and(|entry| entry.target == target_of(ask) && entry.cause == Cause::Exchange) {
            return if self.is_suspect() {
                refused(Refusal::Suspect, caps.suspect_poll)
            } else {
                self.replace(ask, Cause::Exchange, now)
            };
        }
        // One that is itself the change that does not work goes: the next change may be its cure.
        if known.is_none() && self.changes_are_stuck(ask, caps, now) {
            return refused(Refusal::Paused, caps.room_poll);
        }
        self.unless_suspect(ask, Cause::Useless, caps, now)
    }

    /// A machine that looks broken: made anew at once, unless too many do. Then as many may be under way as slow
    /// start allows, and never more than may be away; whoever waits for its place counts.
    fn unless_suspect(&mut self, ask: &Ask, cause: Cause, caps: &Caps, now: Moment) -> Admission {
        self.broken.insert(ask.uid.clone(), now);
        let total = self.census.all.len();
        let most = ask.replacement.max_unavailable.of(total).min(total / 2).max(NEVER_SUSPECT);
        let usual = if now.since(self.born) < caps.warm_up { NEVER_SUSPECT } else { most };
        if self.broken.len() <= usual {
            self.slow_start = None;
        } else {
            let allowed = (*self.slow_start.get_or_insert(1)).min(most);
            let counts = |(uid, entry): &(&ProxyUid, &UnderWay)| {
                **uid != ask.uid && entry.cause.rests_on_a_look() && !self.is_stuck(uid, entry, caps, now)
            };
            if self.under_way.iter().filter(counts).count() >= allowed {
                let waited =
                    |entry: &UnderWay| entry.target == target_of(ask) && entry.cause.rests_on_a_look();
                if self.under_way.get(&ask.uid).is_some_and(waited) {
                    self.under_way.remove(&ask.uid);
                }
                return refused(Refusal::Suspect, caps.suspect_poll);
            }
        }
        let answer = self.replace(ask, cause, now);
        self.begin(ask, cause, now);
        if let Some(waits) = self.under_way.get_mut(&ask.uid).filter(|entry| !entry.may_go) {
            waits.since = now;
        }
        answer
    }

    /// The machine itself goes, so that another one comes.
    fn replace(&mut self, ask: &Ask, cause: Cause, now: Moment) -> Admission {
        let answer = self.place(ask, now);
        if answer == Admission::Granted {
            self.begin(ask, cause, now);
            if let Some(entry) = self.under_way.get_mut(&ask.uid) {
                (entry.may_go, entry.since) = (true, now);
            }
        }
        answer
    }

    fn begin(&mut self, ask: &Ask, cause: Cause, now: Moment) {
        let target = target_of(ask);
        let known = self.under_way.get(&ask.uid).is_some_and(|entry| entry.target == target);
        if !known {
            let entry = UnderWay { target, cause, may_go: false, since: now, was_down: false };
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

    /// It should have come back by now.
    fn is_stuck(&self, uid: &ProxyUid, entry: &UnderWay, caps: &Caps, now: Moment) -> bool {
        self.census.all.get(uid).is_some_and(|standing| {
            !standing.serves && (standing.failed || now.since(entry.since) >= caps.ready_within)
        })
    }
}
