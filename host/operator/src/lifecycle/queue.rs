//! The work queue: which Proxy is due when.
//!
//! One place per key and lane ([`Lane`]), the earliest time wins; a key is never handed out twice at once, and a key
//! added while it is being worked on comes again afterwards. Adding never waits and memory is bounded by
//! the number of objects, so that a burst of watch events cannot hold up the reflectors.
//!
//! Why not the one in kube's `Controller`: it drives all reconciles in one task and passes their panics
//! on, its triggers are bounded channels that push back on the watches, and its depth cannot be measured.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use egress_proxies_core::ids::ProxyKey;
use egress_proxies_core::time::Moment;
use tokio::sync::Notify;

/// Where a key waits. What was begun goes first: of a thousand new Proxies the first would else be looked at again,
/// and be Ready, only when the last one has its machine. News has every fourth turn, so that it need not wait until
/// all that was begun has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Something changed.
    News,
    /// Goes on with what was begun.
    Begun,
}

/// Keys that were begun and are taken while news waits. A new machine needs two of these: a look, and its verdict.
const IN_A_ROW: u32 = 3;

/// When a key is due in each lane. It may stand in both: news must not delay what was begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    news: Option<Moment>,
    begun: Option<Moment>,
}

impl Place {
    fn of(lane: Lane, at: Moment) -> Self {
        match lane {
            Lane::News => Self { news: Some(at), begun: None },
            Lane::Begun => Self { news: None, begun: Some(at) },
        }
    }

    /// In each lane the earlier time.
    fn with(self, other: Self) -> Self {
        let earlier = |a: Option<Moment>, b: Option<Moment>| a.into_iter().chain(b).min();
        Self { news: earlier(self.news, other.news), begun: earlier(self.begun, other.begun) }
    }

    fn first(self) -> Option<Moment> {
        self.news.into_iter().chain(self.begun).min()
    }
}

/// Which keys are due when, and which are being worked on.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    news: BTreeSet<(Moment, ProxyKey)>,
    begun: BTreeSet<(Moment, ProxyKey)>,
    due: HashMap<ProxyKey, Place>,
    running: HashSet<ProxyKey>,
    again: HashMap<ProxyKey, Place>,
    /// Taken of those that were begun since the last news.
    in_a_row: u32,
}

/// What [`Queue::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Work on this key; call [`Queue::done`] afterwards.
    Key(ProxyKey),
    /// Nothing is due yet; the next one is after this time.
    Wait(Duration),
    /// Nothing is planned at all.
    Empty,
}

impl State {
    fn lane(&mut self, lane: Lane) -> &mut BTreeSet<(Moment, ProxyKey)> {
        match lane {
            Lane::News => &mut self.news,
            Lane::Begun => &mut self.begun,
        }
    }

    fn add(&mut self, key: ProxyKey, place: Place) {
        if self.running.contains(&key) {
            let again = self.again.entry(key).or_default();
            *again = again.with(place);
            return;
        }
        let known = self.leaves(&key);
        self.stands(key, known.with(place));
    }

    fn stands(&mut self, key: ProxyKey, place: Place) {
        if let Some(at) = place.news {
            self.news.insert((at, key.clone()));
        }
        if let Some(at) = place.begun {
            self.begun.insert((at, key.clone()));
        }
        self.due.insert(key, place);
    }

    fn leaves(&mut self, key: &ProxyKey) -> Place {
        let place = self.due.remove(key).unwrap_or_default();
        if let Some(at) = place.news {
            self.news.remove(&(at, key.clone()));
        }
        if let Some(at) = place.begun {
            self.begun.remove(&(at, key.clone()));
        }
        place
    }

    fn take_from(&mut self, lane: Lane, now: Moment) -> Option<ProxyKey> {
        let (_, key) = self.lane(lane).first().filter(|(at, _)| *at <= now)?.clone();
        self.leaves(&key);
        self.running.insert(key.clone());
        self.in_a_row = match lane {
            Lane::News => 0,
            Lane::Begun => self.in_a_row.saturating_add(1),
        };
        Some(key)
    }
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a key about which there is news, or moves it forward. Never later than it already was.
    pub(crate) fn add(&self, key: ProxyKey, at: Moment) {
        self.add_to(Lane::News, key, at);
    }

    /// As [`Queue::add`], in this lane.
    pub(crate) fn add_to(&self, lane: Lane, key: ProxyKey, at: Moment) {
        self.state().add(key, Place::of(lane, at));
        self.changed.notify_one();
    }

    /// Takes a key that is due: of its lane the one that has waited longest.
    pub(crate) fn take(&self, now: Moment) -> Taken {
        let mut state = self.state();
        let lanes =
            if state.in_a_row < IN_A_ROW { [Lane::Begun, Lane::News] } else { [Lane::News, Lane::Begun] };
        if let Some(key) = lanes.into_iter().find_map(|lane| state.take_from(lane, now)) {
            return Taken::Key(key);
        }
        let next = [state.news.first(), state.begun.first()].into_iter().flatten().map(|(at, _)| *at).min();
        next.map_or(Taken::Empty, |at| Taken::Wait(at.since(now)))
    }

    /// Plans the keys that are due one after the other, this far apart, the one that has waited longest first.
    pub(crate) fn spread(&self, now: Moment, apart: Duration) {
        let mut state = self.state();
        let is_due = |(key, place): (&ProxyKey, &Place)| Some((place.first()?, key.clone()));
        let mut due: Vec<_> = state.due.iter().filter_map(is_due).filter(|(at, _)| *at <= now).collect();
        due.sort();
        let mut at = now;
        for (_, key) in due {
            let Place { news, begun } = state.leaves(&key);
            state.stands(key, Place { news: news.map(|_| at), begun: begun.map(|was| was.max(at)) });
            at = at + apart;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the work on a key, and plans it again: at `next`, or earlier if it was added meanwhile.
    pub(crate) fn done(&self, key: &ProxyKey, next: Option<Moment>) {
        let mut state = self.state();
        state.running.remove(key);
        let again = state.again.remove(key).unwrap_or_default();
        let place = again.with(next.map_or_else(Place::default, |at| Place::of(Lane::Begun, at)));
        if place != Place::default() {
            state.add(key.clone(), place);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Resolves when something was added or done since the last [`Queue::take`].
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Keys planned, now or later, and keys being worked on.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.state();
        (state.due.len(), state.running.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ProxyKey {
        ProxyKey::new("default", name)
    }

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    #[test]
    fn a_key_is_queued_once_and_the_earliest_time_wins() {
        let queue = Queue::default();
        queue.add(key("a"), at(60));
        queue.add(key("a"), at(5));
        queue.add(key("a"), at(90));
        assert_eq!(queue.take(at(0)), Taken::Wait(Duration::from_secs(5)));
        assert_eq!(queue.take(at(5)), Taken::Key(key("a")));
        queue.done(&key("a"), None);
        assert_eq!(queue.take(at(100)), Taken::Empty);
    }

    #[test]
    fn a_key_is_never_worked_on_twice_at_once_and_comes_again_afterwards() {
        let queue = Queue::default();
        queue.add(key("a"), at(0));
        assert_eq!(queue.take(at(0)), Taken::Key(key("a")));
        queue.add(key("a"), at(1));
        assert_eq!(queue.take(at(2)), Taken::Empty);
        assert_eq!(queue.depth(), (0, 1));
        queue.done(&key("a"), Some(at(60)));
        assert_eq!(queue.depth(), (1, 0));
        assert_eq!(queue.take(at(2)), Taken::Key(key("a")));
    }

    #[test]
    fn different_keys_are_handed_out_at_once() {
        let queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.add(key(name), at(0));
        }
        for name in ["a", "b", "c"] {
            assert_eq!(queue.take(at(0)), Taken::Key(key(name)));
        }
        assert_eq!(queue.take(at(0)), Taken::Empty);
    }

    #[test]
    fn what_is_due_is_spread_in_its_order_and_a_change_still_moves_a_key_forward() {
        let queue = Queue::default();
        for (name, second) in [("a", 3), ("b", 1), ("c", 2), ("later", 60)] {
            queue.add(key(name), at(second));
        }
        queue.spread(at(10), Duration::from_secs(5));
        assert_eq!(queue.depth(), (4, 0));
        assert_eq!(queue.take(at(10)), Taken::Key(key("b")));
        assert_eq!(queue.take(at(10)), Taken::Wait(Duration::from_secs(5)));
        queue.add(key("a"), at(11));
        assert_eq!(queue.take(at(11)), Taken::Key(key("a")));
        assert_eq!(queue.take(at(14)), Taken::Wait(Duration::from_secs(1)));
        assert_eq!(queue.take(at(15)), Taken::Key(key("c")));
        assert_eq!(queue.take(at(15)), Taken::Wait(Duration::from_secs(45)));
    }

    #[test]
    fn what_was_begun_goes_first_and_news_has_every_fourth_turn() {
        let queue = Queue::default();
        for name in ["a", "b", "c", "d", "e"] {
            queue.add(key(name), at(0));
            assert_eq!(queue.take(at(0)), Taken::Key(key(name)));
            queue.done(&key(name), Some(at(3)));
        }
        for name in ["x", "y", "z"] {
            queue.add(key(name), at(1));
        }
        queue.add_to(Lane::Begun, key("b"), at(2));
        let taken = std::iter::from_fn(|| match queue.take(at(3)) {
            Taken::Key(key) => Some(key.name),
            Taken::Wait(_) | Taken::Empty => None,
        });
        assert_eq!(taken.collect::<Vec<_>>(), ["b", "a", "c", "x", "d", "e", "y", "z"]);
        assert_eq!(queue.take(at(3)), Taken::Empty);
    }

    #[test]
    fn news_does_not_delay_what_was_begun_nor_does_it_wait_for_that() {
        let queue = Queue::default();
        for name in ["a", "b", "c", "d"] {
            queue.add(key(name), at(1));
        }
        queue.add_to(Lane::Begun, key("d"), at(2));
        queue.add_to(Lane::Begun, key("e"), at(60));
        queue.add(key("e"), at(3));
        assert_eq!(queue.depth(), (5, 0));
        assert_eq!(queue.take(at(0)), Taken::Wait(Duration::from_secs(1)));
        let taken = std::iter::from_fn(|| match queue.take(at(4)) {
            Taken::Key(key) => Some(key.name),
            Taken::Wait(_) | Taken::Empty => None,
        });
        assert_eq!(taken.collect::<Vec<_>>(), ["d", "a", "b", "c", "e"]);
        assert_eq!(queue.take(at(99)), Taken::Empty, "each once");
        queue.add(key("d"), at(99));
        queue.done(&key("d"), Some(at(100)));
        queue.add(key("f"), at(98));
        assert_eq!(queue.take(at(98)), Taken::Key(key("f")));
        assert_eq!(queue.take(at(100)), Taken::Key(key("d")));
        assert_eq!(queue.take(at(999)), Taken::Empty);
    }

    #[tokio::test]
    async fn a_change_while_nobody_waits_is_not_lost() {
        let queue = Queue::default();
        queue.add(key("a"), at(0));
        queue.changed().await;
        queue.done(&key("a"), None);
        queue.changed().await;
    }
}
