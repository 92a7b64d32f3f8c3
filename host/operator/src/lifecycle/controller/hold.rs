//! Passes wait for the end of a pause: nothing is taken from the queue while this process may not act, nor until the
//! caches have what happened meanwhile.
//!
//! Why: a pass that begins and is refused comes again a few seconds later, and a minute after the beginning of a
//! pause the whole fleet is due, for hours. After the pause what became due is not begun all at once, and not on what
//! was true before it: a machine would be made from a Secret that has another text by now. But for good nobody waits
//! for a watch that does not get through: whatever is decided is guarded by the versions of the objects.

use std::time::Duration;

use egress_proxies_core::time::Moment;

use crate::leadership::Leadership;
use crate::lifecycle::observe::Stores;
use crate::lifecycle::queue::{Queue, Taken};

/// Between two looks whether passes may begin.
const LOOK: Duration = Duration::from_millis(250);
/// So long after the last watch was answered what it brings is in the caches.
const SETTLES: Duration = Duration::from_secs(1);
/// Longest time that the watches are waited for, over all pauses until they got through once: where pauses come often
/// and one watch is refused for good, passes begin all the same.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between the first passes of two Proxies after it: 10,000 within the time in which each comes again by itself.
const APART: Duration = Duration::from_millis(5);

/// What passes wait for.
#[derive(Debug, Clone, Copy)]
enum Waits {
    No,
    /// For the end of a pause.
    Pause,
    /// For the watches; when they were looked at last, and since when none of them is behind.
    Watches {
        looked: Moment,
        settle: Option<Moment>,
    },
}

/// The way from the queue to work.
pub(super) struct Hold {
    leadership: Leadership,
    /// True until each watch is answered after a pause.
    are_behind: Box<dyn Fn() -> bool + Send + Sync>,
    /// Pauses that are over and whose end was taken in.
    pauses: u64,
    /// What is left of the patience with the watches.
    patience: Duration,
    waits: Waits,
}

impl Hold {
    pub(super) fn new(leadership: Leadership, stores: Stores) -> Self {
        Self::until(leadership, Box::new(move || stores.are_behind()))
    }

    fn until(leadership: Leadership, are_behind: Box<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self { leadership, are_behind, pauses: 0, patience: PATIENCE, waits: Waits::No }
    }

    /// Takes the next key, if one is due and passes may begin.
    pub(super) fn take(&mut self, work: &Queue, now: Moment) -> Taken {
        let waited = !matches!(self.waits, Waits::No);
        self.waits = self.waits_at(now);
        if !matches!(self.waits, Waits::No) {
            return Taken::Wait(LOOK);
        }
        if waited {
            work.spread(now, APART);
        }
        work.take(now)
    }

    fn waits_at(&mut self, now: Moment) -> Waits {
        if !(self.leadership.may_act)() {
            return Waits::Pause;
        }
        let pauses = *self.leadership.resumed.borrow();
        let another = std::mem::replace(&mut self.pauses, pauses) != pauses;
        let (looked, settle) = match self.waits {
            Waits::No if !another => {
                if self.patience < PATIENCE && !(self.are_behind)() {
                    self.patience = PATIENCE;
                }
                return Waits::No;
            }
            Waits::No | Waits::Pause => (now, None),
            Waits::Watches { looked, settle } => (looked, settle.filter(|_| !another)),
        };
        self.patience = self.patience.saturating_sub(now.since(looked));
        let settle = if (self.are_behind)() { None } else { settle.or(Some(now)) };
        let is_through = settle.is_some_and(|at| now >= at + SETTLES);
        if is_through {
            self.patience = PATIENCE;
        }
        if is_through || self.patience.is_zero() { Waits::No } else { Waits::Watches { looked: now, settle } }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use egress_proxies_core::ids::ProxyKey;
    use tokio::sync::watch;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::after_start(Duration::from_millis(millis))
    }

    fn key(name: &str) -> ProxyKey {
        ProxyKey::new("fleet", name)
    }

    struct World {
        acts: Arc<AtomicBool>,
        behind: Arc<AtomicBool>,
        resumed: watch::Sender<u64>,
        work: Queue,
        hold: Hold,
    }

    impl World {
        fn new() -> Self {
            let (acts, behind) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
            let (may_act, are_behind) = (Arc::clone(&acts), Arc::clone(&behind));
            let resumed = watch::channel(0).0;
            let leadership = Leadership {
                may_act: Arc::new(move || may_act.load(Ordering::SeqCst)),
                resumed: resumed.subscribe(),
                ..Leadership::alone()
            };
            let hold = Hold::until(leadership, Box::new(move || are_behind.load(Ordering::SeqCst)));
            Self { acts, behind, resumed, work: Queue::default(), hold }
        }

        fn take(&mut self, millis: u64) -> Taken {
            self.hold.take(&self.work, at(millis))
        }

        fn pauses(&self) {
            self.acts.store(false, Ordering::SeqCst);
        }

        fn resumes(&self, behind: bool) {
            self.behind.store(behind, Ordering::SeqCst);
            self.resumed.send_modify(|pauses| *pauses += 1);
            self.acts.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn nothing_is_taken_in_a_pause_and_what_became_due_in_it_comes_one_after_the_other() {
        let mut world = World::new();
        for name in ["a", "b"] {
            world.work.add(key(name), at(0));
        }
        assert_eq!(world.take(0), Taken::Key(key("a")), "all at once without a pause");
        assert_eq!(world.take(0), Taken::Key(key("b")));
        world.pauses();
        for (name, due) in [("c", 10), ("d", 20), ("e", 90_000)] {
            world.work.add(key(name), at(due));
        }
        for now in (100..60_000).step_by(1000) {
            assert_eq!(world.take(now), Taken::Wait(LOOK));
        }
        world.resumes(false);
        for now in (60_000..61_000).step_by(250) {
            assert_eq!(world.take(now), Taken::Wait(LOOK), "what the watches bring comes first");
        }
        assert_eq!(world.take(61_000), Taken::Key(key("c")));
        assert_eq!(world.take(61_000), Taken::Wait(APART));
        assert_eq!(world.take(61_005), Taken::Key(key("d")));
        assert_eq!(world.take(61_005), Taken::Wait(Duration::from_millis(28_995)));
    }

    #[test]
    fn passes_wait_for_the_watches_after_a_pause_that_nobody_saw_and_not_for_ever() {
        let mut world = World::new();
        world.work.add(key("a"), at(0));
        world.resumes(true);
        for now in (0..5000).step_by(250) {
            assert_eq!(world.take(now), Taken::Wait(LOOK));
        }
        world.behind.store(false, Ordering::SeqCst);
        assert_eq!(world.take(5000), Taken::Wait(LOOK));
        // The watch that was answered is told that its version is too old: a list comes.
        world.behind.store(true, Ordering::SeqCst);
        assert_eq!(world.take(5500), Taken::Wait(LOOK));
        world.behind.store(false, Ordering::SeqCst);
        assert_eq!(world.take(6000), Taken::Wait(LOOK));
        assert_eq!(world.take(6999), Taken::Wait(LOOK));
        assert_eq!(world.take(7000), Taken::Key(key("a")));

        world.work.add(key("b"), at(10_000));
        world.resumes(true);
        assert_eq!(world.take(10_000), Taken::Wait(LOOK));
        assert_eq!(world.take(69_999), Taken::Wait(LOOK));
        assert_eq!(
            world.take(70_000),
            Taken::Key(key("b")),
            "a watch that is refused holds up nobody for good"
        );
    }

    #[test]
    fn pauses_that_come_often_and_a_watch_that_is_refused_hold_up_nobody_for_good() {
        let mut world = World::new();
        for name in ["a", "b", "c", "d"] {
            world.work.add(key(name), at(0));
        }
        world.resumes(true);
        for now in (0..50_000).step_by(250) {
            assert_eq!(world.take(now), Taken::Wait(LOOK));
        }
        world.pauses();
        assert_eq!(world.take(50_000), Taken::Wait(LOOK));
        world.resumes(true);
        for now in (51_000..61_250).step_by(250) {
            assert_eq!(world.take(now), Taken::Wait(LOOK));
        }
        assert_eq!(world.take(61_250), Taken::Key(key("a")), "the patience of a minute is used up");
        world.pauses();
        assert_eq!(world.take(100_000), Taken::Wait(LOOK));
        world.resumes(true);
        assert_eq!(world.take(101_000), Taken::Key(key("b")), "the next pause has none of its own");
        world.behind.store(false, Ordering::SeqCst);
        assert_eq!(world.take(102_000), Taken::Key(key("c")));
        world.resumes(true);
        assert_eq!(world.take(103_000), Taken::Wait(LOOK), "once all were answered there is patience again");
    }
}
