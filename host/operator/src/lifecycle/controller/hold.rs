//! Passes wait for the end of a pause: nothing is taken from the queue while this process may not act.
//!
//! Why: a pass that begins and is refused comes again a few seconds later, and a minute after the beginning of a
//! pause the whole fleet is due, for hours. After the pause what became due is not begun all at once.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::time::Moment;

use crate::lifecycle::queue::{Queue, Taken};

/// Between two looks whether the pause is over.
const LOOK: Duration = Duration::from_secs(1);
/// Between the first passes of two Proxies after it: 10,000 within the time in which each comes again by itself.
const APART: Duration = Duration::from_millis(5);

/// The way from the queue to work.
pub(super) struct Hold {
    may_act: Arc<dyn Fn() -> bool + Send + Sync>,
    held: bool,
}

impl Hold {
    pub(super) fn new(may_act: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self { may_act, held: false }
    }

    /// Takes the key that has waited longest, if one is due and this process may act.
    pub(super) fn take(&mut self, work: &Queue, now: Moment) -> Taken {
        if !(self.may_act)() {
            self.held = true;
            return Taken::Wait(LOOK);
        }
        if std::mem::take(&mut self.held) {
            work.spread(now, APART);
        }
        work.take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use egress_proxies_core::ids::ProxyKey;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::after_start(Duration::from_millis(millis))
    }

    #[test]
    fn nothing_is_taken_in_a_pause_and_what_became_due_in_it_comes_one_after_the_other() {
        let (work, acts) = (Queue::default(), Arc::new(AtomicBool::new(true)));
        let asked = Arc::clone(&acts);
        let mut hold = Hold::new(Arc::new(move || asked.load(Ordering::SeqCst)));
        let key = |name| ProxyKey::new("fleet", name);
        for name in ["a", "b"] {
            work.add(key(name), at(0));
        }
        assert_eq!(hold.take(&work, at(0)), Taken::Key(key("a")), "all at once without a pause");
        assert_eq!(hold.take(&work, at(0)), Taken::Key(key("b")));
        acts.store(false, Ordering::SeqCst);
        for (name, due) in [("c", 10), ("d", 20), ("e", 90_000)] {
            work.add(key(name), at(due));
        }
        for now in (100..60_000).step_by(1000) {
            assert_eq!(hold.take(&work, at(now)), Taken::Wait(LOOK));
        }
        acts.store(true, Ordering::SeqCst);
        assert_eq!(hold.take(&work, at(60_000)), Taken::Key(key("c")));
        assert_eq!(hold.take(&work, at(60_000)), Taken::Wait(APART));
        assert_eq!(hold.take(&work, at(60_005)), Taken::Key(key("d")));
        assert_eq!(hold.take(&work, at(60_005)), Taken::Wait(Duration::from_millis(29_995)));
    }
}
