//! What is under way of one provider, and what may follow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::ProxyUid;
use crate::time::Moment;

use super::census::Standing;
use super::queue::Queue;
use super::under_way::{Cause, UnderWay, target_of};
use super::{Admission, Ask, Caps, Census, Purpose, Refusal};

/// So many broken machines are never suspicious: a fleet of two or three is mended at once.
const NEVER_SUSPECT: usize = 2;
/// Between two looks through those that are under way or look broken.
const SWEEP: Duration = Duration::from_secs(1);

/// One provider.
#[derive(Debug, Clone)]
pub(super) struct Share {
    born: Moment,
    replacing: Queue,
    deleting: Queue,
    under_way: BTreeMap<ProxyUid, UnderWay>,
    /// Who served when it was last told.
    census: Arc<Census>,
    /// Proxies that are away, and since when.
    down: BTreeMap<ProxyUid, Moment>,
    /// Proxies whose machines look broken, and when they did last.
    broken: BTreeMap<ProxyUid, Moment>,
    /// When those, and what is under way, were looked through for the last time.
    swept: Moment,
    /// While the fleet is suspect: how many that look broken may be under way.
    slow_start: Option<usize>,
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
        // Each of many may ask many times of one fleet; what is as large as the fleet is done for each fleet.
        if is_news {
            let before = std::mem::take(&mut self.down);
            let since = |uid: &ProxyUid| before.get(uid).copied().unwrap_or(now);
            self.down = census.down.iter().map(|uid| (uid.clone(), since(uid))).collect();
        }
        if is_news || now.since(self.swept) >= SWEEP {
            self.settle(caps, now);
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
            if !standing.stands() {
                entry.was_down = entry.shown;
                if standing.drains() {
                    entry.since = now;
                }
                return entry.may_go || now.since(entry.since) < caps.unused_after;
            }
            if entry.was_down || is_another {
                // One that only waited for its place was not made anew: it says nothing of those that are.
                came_back.push((uid.clone(), entry.cause == Cause::Look && entry.may_go));
                return false;
            }
            entry.shown = true;
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
            Purpose::Exchange if known.is_some_and(|entry| entry.cause == Cause::Exchange) => {
                Admission::Granted
            }
            Purpose::Removal | Purpose::Repair | Purpose::Disowned
                if known.is_some_and(|entry| entry.may_go) =>
            {
                Admission::Granted
            }
            Purpose::Exchange => self.exchange(ask, caps, now),
            Purpose::Removal => self.removal(ask, caps, now),
            Purpose::Repair | Purpose::Disowned => self.unless_suspect(ask, caps, now),
            Purpose::Surplus | Purpose::Deletion => self.place(ask, now),
        }
    }

    /// Room for a machine that serves.
    fn exchange(&mut self, ask: &Ask, caps: &Caps, now: Moment) -> Admission {
        if self.is_suspect() {
            return refused(Refusal::Suspect, caps.suspect_poll);
        }
        if let Some(why) = self.no_room(ask, caps, now) {
            return refused(why, caps.room_poll);
        }
        self.begin(ask, Cause::Exchange, now);
        Admission::Granted
    }

    /// Why no further one may be away; none if it may.
    fn no_room(&self, ask: &Ask, caps: &Caps, now: Moment) -> Option<Refusal> {
        if self.changes_are_stuck(ask, caps, now) {
            return Some(Refusal::Paused);
        }
        let census = &self.census;
        let others = self.under_way.keys().filter(|uid| **uid != ask.uid);
        let serves = |uid: &&ProxyUid| census.all.get(*uid).is_some_and(Standing::serves);
        let going = others.filter(serves).count();
        let away = going + self.down.keys().filter(|uid| **uid != ask.uid).count();
        if away < ask.replacement.max_unavailable.of(census.all.len().max(1)) {
            return None;
        }
        let comes_back = |(uid, since): (&ProxyUid, &Moment)| {
            let drains = census.all.get(uid).is_some_and(Standing::drains);
            drains || now.since(*since) < caps.ready_within
        };
        let progress = going > 0 || self.down.iter().any(comes_back);
        Some(if progress { Refusal::Pending } else { Refusal::Standstill })
    }

    /// Others that served, and were given another machine because another one was wanted, do not serve again.
    fn changes_are_stuck(&self, ask: &Ask, caps: &Caps, now: Moment) -> bool {
        self.under_way.iter().any(|(uid, entry)| {
            *uid != ask.uid && entry.tried.is_some_and(|since| self.is_stuck(uid, since, caps, now))
        })
    }

    /// Another machine is wanted than this one, which serves nobody. If clients know it, it may serve again: it
    /// stays while the fleet is suspect, and while there is no room, for a probe that fails for some seconds must
    /// not cost one after the other what was left alone so far. After a while it needs room no longer.
    fn removal(&mut self, ask: &Ask, caps: &Caps, now: Moment) -> Admission {
        let shows = |it: &&Standing| it.incarnation.is_some() && it.incarnation == ask.incarnation;
        let Some(standing) = self.census.all.get(&ask.uid).filter(shows).filter(|it| it.judged) else {
            return self.replace(ask, Cause::Look, now);
        };
        let known = self.under_way.get(&ask.uid);
        let had_room = |it: &UnderWay| it.target == target_of(ask) && it.cause == Cause::Exchange;
        // A process before this one may have given the room.
        if standing.drains() || known.is_some_and(had_room) {
            return if self.is_suspect() {
                refused(Refusal::Suspect, caps.suspect_poll)
            } else {
                self.in_its_turn(ask, Cause::Exchange, now)
            };
        }
        // One that is itself the change that does not work goes: the next change may be its cure.
        let is_the_change = known.is_some_and(|entry| entry.tried.is_some());
        let is_news = self.down.get(&ask.uid).is_none_or(|since| now.since(*since) < caps.blip);
        let why_not = if is_the_change {
            None
        } else if is_news {
            self.no_room(ask, caps, now)
        } else {
            self.changes_are_stuck(ask, caps, now).then_some(Refusal::Paused)
        };
        match why_not {
            Some(why) => refused(why, caps.room_poll),
            None => self.unless_suspect(ask, caps, now),
        }
    }

    /// A machine that looks broken: made anew at once, unless too many do. Then as many may be under way as slow
    /// start allows, and never more than may be away; whoever waits for its place counts. One that seems to be
    /// somebody else's waits until the fleet is not suspect: nothing is made in its place, so that nothing would come
    /// back and tell whether the look was right.
    fn unless_suspect(&mut self, ask: &Ask, caps: &Caps, now: Moment) -> Admission {
        self.broken.insert(ask.uid.clone(), now);
        let total = self.census.all.len();
        let most = ask.replacement.max_unavailable.of(total).min(total / 2).max(NEVER_SUSPECT);
        let look_broken = self.looks_broken();
        // Those that are away for another reason leave less room for errors.
        let away = self.down.len().saturating_sub(look_broken);
        let usual = if now.since(self.born) < caps.warm_up { 0 } else { most.saturating_sub(away) };
        let usual = usual.max(NEVER_SUSPECT);
        if look_broken <= usual / 2 {
            self.slow_start = None;
        }
        if look_broken > usual || self.is_suspect() {
            let started = (*self.slow_start.get_or_insert(1)).min(most);
            let allowed = if ask.purpose == Purpose::Disowned { 0 } else { started };
            let counts = |(uid, entry): &(&ProxyUid, &UnderWay)| {
                let is_stuck = || entry.may_go && self.is_stuck(uid, entry.since, caps, now);
                **uid != ask.uid && entry.cause == Cause::Look && !is_stuck()
            };
            if self.under_way.iter().filter(counts).take(allowed).count() >= allowed {
                let waited = |entry: &UnderWay| entry.target == target_of(ask) && entry.cause == Cause::Look;
                if self.under_way.get(&ask.uid).is_some_and(waited) {
                    self.under_way.remove(&ask.uid);
                }
                return refused(Refusal::Suspect, caps.suspect_poll);
            }
        }
        self.in_its_turn(ask, Cause::Look, now)
    }

    /// How many look broken now, or were taken for broken and are not back.
    fn looks_broken(&self) -> usize {
        let taken = |(uid, entry): &(&ProxyUid, &UnderWay)| {
            entry.may_go && entry.cause == Cause::Look && !self.broken.contains_key(*uid)
        };
        self.broken.len() + self.under_way.iter().filter(taken).count()
    }

    /// The machine goes when its place has come; until then it is under way, as long as it asks.
    fn in_its_turn(&mut self, ask: &Ask, cause: Cause, now: Moment) -> Admission {
        self.begin(ask, cause, now);
        let answer = self.replace(ask, cause, now);
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
                if entry.cause == Cause::Exchange {
                    entry.tried.get_or_insert(now);
                }
            }
        }
        answer
    }

    fn begin(&mut self, ask: &Ask, cause: Cause, now: Moment) {
        let target = target_of(ask);
        let serves = || self.census.all.get(&ask.uid).is_some_and(Standing::serves);
        let shown = ask.purpose != Purpose::Exchange || serves();
        let known = self.under_way.get_mut(&ask.uid);
        let is_same = |entry: &UnderWay| entry.target == target;
        // It was away for a look and serves again: what was known of it says nothing of the room that it has now.
        let is_over = |entry: &UnderWay| {
            is_same(entry) && entry.cause == Cause::Look && ask.purpose == Purpose::Exchange
        };
        let over = known.as_ref().is_some_and(|entry| is_over(entry));
        let tried = known.as_ref().and_then(|entry| entry.tried).filter(|_| !over);
        match known {
            Some(entry) if is_same(entry) && !over => {
                if cause == Cause::Look {
                    entry.cause = cause;
                }
            }
            Some(_) | None => {
                let since = now;
                let entry = UnderWay { target, cause, tried, may_go: false, since, shown, was_down: false };
                self.under_way.insert(ask.uid.clone(), entry);
            }
        }
    }

    /// A place under the cap.
    fn place(&mut self, ask: &Ask, now: Moment) -> Admission {
        let queue = match ask.purpose {
            Purpose::Deletion => &mut self.deleting,
            Purpose::Exchange | Purpose::Removal | Purpose::Repair | Purpose::Disowned | Purpose::Surplus => {
                &mut self.replacing
            }
        };
        queue.ask(&ask.uid, target_of(ask), now)
    }

    /// It should have come back by now.
    fn is_stuck(&self, uid: &ProxyUid, since: Moment, caps: &Caps, now: Moment) -> bool {
        self.census.all.get(uid).is_some_and(|standing| {
            !standing.stands() && (standing.failed || now.since(since) >= caps.ready_within)
        })
    }
}
