//! The work queue: which Proxy is due when.
//!
//! One entry per key at most, the earliest time wins; a key is never handed out twice at once, and a key
//! added while it is being worked on comes again afterwards. Adding never waits and memory is bounded by
//! the number of objects, so that a burst of watch events cannot hold up the reflectors.
//!
//! Why not the one in kube's `Controller`: it drives all reconciles in one task and passes their panics
//! on, its triggers are bounded channels that push back on the watches, and its depth cannot be measured.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use egress_proxies_core::ids::ProxyKey;
use egress_proxies_core::time::Moment;
use tokio::sync::Notify;

/// Which keys are due when, and which are being worked on.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    order: BTreeSet<(Moment, ProxyKey)>,
    due: HashMap<ProxyKey, Moment>,
    running: HashSet<ProxyKey>,
    again: HashMap<ProxyKey, Moment>,
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
    fn add(&mut self, key: ProxyKey, at: Moment) {
        if self.running.contains(&key) {
            let again = self.again.entry(key).or_insert(at);
            *again = (*again).min(at);
            return;
        }
        match self.due.entry(key) {
            Entry::Occupied(mut entry) if at < *entry.get() => {
                self.order.remove(&(*entry.get(), entry.key().clone()));
                self.order.insert((at, entry.key().clone()));
                entry.insert(at);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => {
                self.order.insert((at, entry.key().clone()));
                entry.insert(at);
            }
        }
    }
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a key, or moves it forward. Never later than it already was.
    pub(crate) fn add(&self, key: ProxyKey, at: Moment) {
        self.state().add(key, at);
        self.changed.notify_one();
    }

    /// Takes the key that has waited longest, if one is due.
    pub(crate) fn take(&self, now: Moment) -> Taken {
        let mut state = self.state();
        match state.order.first() {
            None => Taken::Empty,
            Some((at, _)) if *at > now => Taken::Wait(at.since(now)),
            Some(_) => match state.order.pop_first() {
                None => Taken::Empty,
                Some((_, key)) => {
                    state.due.remove(&key);
                    state.running.insert(key.clone());
                    Taken::Key(key)
                }
            },
        }
    }

    /// Plans the keys that are due one after the other, this far apart, the one that has waited longest first.
    pub(crate) fn spread(&self, now: Moment, apart: Duration) {
        let mut state = self.state();
        let due: Vec<ProxyKey> =
            state.order.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| key.clone()).collect();
        let mut at = now;
        for key in due {
            if let Some(before) = state.due.insert(key.clone(), at) {
                state.order.remove(&(before, key.clone()));
            }
            state.order.insert((at, key));
            at = at + apart;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the work on a key, and plans it again: at `next`, or earlier if it was added meanwhile.
    pub(crate) fn done(&self, key: &ProxyKey, next: Option<Moment>) {
        let mut state = self.state();
        state.running.remove(key);
        let again = state.again.remove(key);
        if let Some(at) = [again, next].into_iter().flatten().min() {
            state.add(key.clone(), at);
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
        (state.order.len(), state.running.len())
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

    #[tokio::test]
    async fn a_change_while_nobody_waits_is_not_lost() {
        let queue = Queue::default();
        queue.add(key("a"), at(0));
        queue.changed().await;
        queue.done(&key("a"), None);
        queue.changed().await;
    }
}
