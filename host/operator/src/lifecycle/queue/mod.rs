//! The work queue: which Proxy is due when.
//!
//! One place per key and lane ([`Lane`]), the earliest time wins; a key is never handed out twice at once, and a key
//! added while it is being worked on comes again afterwards. Adding never waits and memory is bounded by
//! the number of objects, so that a burst of watch events cannot hold up the reflectors.
//!
//! No more keys are handed out at once than the queue is made for, and each provider has its [`share`] of these: the
//! passes over Proxies of one that hangs wait for it, and must not hold up those of the others.
//!
//! Why not the one in kube's `Controller`: it drives all reconciles in one task and passes their panics
//! on, its triggers are bounded channels that push back on the watches, and its depth cannot be measured.

mod group;
mod share;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use egress_proxies_core::ids::{ProviderName, ProxyKey};
use egress_proxies_core::time::Moment;
use tokio::sync::Notify;

use self::group::{Group, Place};

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

/// Whose share a key counts for: that of the provider that may be asked about it. None: nobody is asked.
pub(crate) type Whose = Option<ProviderName>;

/// Keys that were begun and are taken while news waits. A new machine needs two of these: a look, and its verdict.
const IN_A_ROW: u32 = 3;

/// Which keys are due when, and which are being worked on. The default hands out whatever is due.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// Keys that may be handed out at once.
    most: usize,
    /// As many as there are providers, and one more; none ever goes.
    groups: Vec<Group>,
    /// Of which group a key is, and when it is due.
    due: HashMap<ProxyKey, (usize, Place)>,
    /// Of which group a key is.
    running: HashMap<ProxyKey, usize>,
    again: HashMap<ProxyKey, (usize, Place)>,
    /// Taken of those that were begun since the last news.
    in_a_row: u32,
}

impl Default for State {
    fn default() -> Self {
        Self {
            most: usize::MAX,
            groups: vec![Group::of(None)],
            due: HashMap::new(),
            running: HashMap::new(),
            again: HashMap::new(),
            in_a_row: 0,
        }
    }
}

/// What [`Queue::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Work on this key; call [`Queue::done`] afterwards.
    Key(ProxyKey),
    /// Nothing may be handed out yet; the next one is due after this time.
    Wait(Duration),
    /// Nothing until something is added or done.
    Empty,
}

impl State {
    fn group_of(&mut self, whose: Whose) -> usize {
        let known = self.groups.iter().position(|group| group.whose == whose);
        known.unwrap_or_else(|| {
            self.groups.push(Group::of(whose));
            self.groups.len() - 1
        })
    }

    fn add(&mut self, key: ProxyKey, of: usize, place: Place) {
        if self.running.contains_key(&key) {
            let (group, again) = self.again.entry(key).or_default();
            (*group, *again) = (of, again.with(place));
            return;
        }
        let known = self.leaves(&key);
        self.stands(key, of, known.with(place));
    }

    fn stands(&mut self, key: ProxyKey, of: usize, place: Place) {
        if let Some(group) = self.groups.get_mut(of) {
            group.stands(&key, place);
            self.due.insert(key, (of, place));
        }
    }

    fn leaves(&mut self, key: &ProxyKey) -> Place {
        let Some((of, place)) = self.due.remove(key) else { return Place::default() };
        if let Some(group) = self.groups.get_mut(of) {
            group.leaves(key, place);
        }
        place
    }

    /// Groups that have room for another key.
    fn open(&self) -> impl Iterator<Item = (usize, &Group)> {
        let free = self.most.saturating_sub(self.running.len());
        let groups = self.groups.iter().enumerate();
        groups.filter(move |(_, group)| share::has_room(group.running, free))
    }

    fn take_from(&mut self, lane: Lane, now: Moment) -> Option<ProxyKey> {
        let firsts = self.open().filter_map(|(of, group)| Some((group.first_in(lane)?, of)));
        let ((_, key), of) = firsts.min().filter(|((at, _), _)| *at <= now)?;
        let key = key.clone();
        self.leaves(&key);
        self.running.insert(key.clone(), of);
        if let Some(group) = self.groups.get_mut(of) {
            group.running += 1;
        }
        self.in_a_row = match lane {
            Lane::News => 0,
            Lane::Begun => self.in_a_row.saturating_add(1),
        };
        Some(key)
    }
}

impl Queue {
    /// Hands out so many keys at once at the most, and to each provider its [`share`] of these.
    pub(crate) fn shared(most: usize) -> Self {
        let state = State { most, ..State::default() };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a key about which there is news and nobody is asked, or moves it forward. Never later than it already
    /// was.
    pub(crate) fn add(&self, key: ProxyKey, at: Moment) {
        self.add_to(Lane::News, None, key, at);
    }

    /// As [`Queue::add`], in this lane, for this share.
    pub(crate) fn add_to(&self, lane: Lane, whose: Whose, key: ProxyKey, at: Moment) {
        let mut state = self.state();
        let of = state.group_of(whose);
        state.add(key, of, Place::of(lane, at));
        drop(state);
        self.changed.notify_one();
    }

    /// Takes a key that is due and has room: of its lane the one that has waited longest.
    pub(crate) fn take(&self, now: Moment) -> Taken {
        let mut state = self.state();
        let lanes =
            if state.in_a_row < IN_A_ROW { [Lane::Begun, Lane::News] } else { [Lane::News, Lane::Begun] };
        if let Some(key) = lanes.into_iter().find_map(|lane| state.take_from(lane, now)) {
            return Taken::Key(key);
        }
        // Those without room wait for the end of another.
        let next = state.open().filter_map(|(_, group)| group.first()).min();
        next.map_or(Taken::Empty, |at| Taken::Wait(at.since(now)))
    }

    /// Plans the keys that are due one after the other, this far apart, the one that has waited longest first.
    pub(crate) fn spread(&self, now: Moment, apart: Duration) {
        let mut state = self.state();
        let is_due =
            |(key, (of, place)): (&ProxyKey, &(usize, Place))| Some((place.first()?, key.clone(), *of));
        let mut due: Vec<_> = state.due.iter().filter_map(is_due).filter(|(at, ..)| *at <= now).collect();
        due.sort();
        let mut at = now;
        for (_, key, of) in due {
            let Place { news, begun } = state.leaves(&key);
            state.stands(key, of, Place { news: news.map(|_| at), begun: begun.map(|was| was.max(at)) });
            at = at + apart;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the work on a key, and plans it again: at `next`, or earlier if it was added meanwhile.
    pub(crate) fn done(&self, key: &ProxyKey, next: Option<Moment>) {
        let mut state = self.state();
        let of = state.running.remove(key).unwrap_or_default();
        if let Some(group) = state.groups.get_mut(of) {
            group.running = group.running.saturating_sub(1);
        }
        let (of, again) = state.again.remove(key).unwrap_or_else(|| (of, Place::default()));
        let place = again.with(next.map_or_else(Place::default, |at| Place::of(Lane::Begun, at)));
        if place != Place::default() {
            state.add(key.clone(), of, place);
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

    /// How long the key that is due and has waited longest has waited; zero if none is due.
    pub(crate) fn longest_wait(&self, now: Moment) -> Duration {
        let state = self.state();
        let first = state.groups.iter().filter_map(Group::first).min();
        first.map_or(Duration::ZERO, |at| now.since(at))
    }
}
