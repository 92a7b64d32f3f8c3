//! How far each watch is: whether its cache was filled, whether that was from a list of this process's lead, what
//! comes of a list that is waited for, and whether it follows what happens now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::leadership::Leadership;

/// As long as an election takes where nobody else leads.
const ELECTION: Duration = Duration::from_millis(500);

/// A second beginning of all watches, and where each of them is.
#[derive(Debug, Clone, Default)]
pub(super) struct Anew {
    pub(super) asked: CancellationToken,
    pub(super) progress: Vec<Progress>,
}

/// How far one watch is.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) watch: String,
    /// Its first list is in the cache.
    pub(super) filled: CancellationToken,
    /// Its second one is.
    pub(super) anew: CancellationToken,
    pub(super) so_far: Arc<SoFar>,
}

impl Progress {
    pub(super) fn new(watch: String, leadership: &Leadership) -> Self {
        let (filled, anew) = (CancellationToken::new(), CancellationToken::new());
        Self { watch, filled, anew, so_far: Arc::new(SoFar::new(leadership)) }
    }
}

/// What came so far.
#[derive(Debug)]
pub(super) struct SoFar {
    elected: watch::Receiver<bool>,
    pub(super) resumed: watch::Receiver<u64>,
    /// Objects, and ends of lists, until one was complete.
    pub(super) received: AtomicU64,
    /// The code of the last answer, if it was a failure; zero if there was none.
    failure: AtomicU16,
    /// The list that is coming began when this process was elected, and the list in the cache did.
    coming: AtomicBool,
    since_elected: AtomicBool,
    /// One more than the number of pauses that were over when the watch was asked for that is followed; zero after
    /// a failure, and while a list has to come first.
    follows: AtomicU64,
}

impl SoFar {
    fn new(leadership: &Leadership) -> Self {
        Self {
            elected: leadership.elected.clone(),
            resumed: leadership.resumed.clone(),
            received: AtomicU64::default(),
            failure: AtomicU16::default(),
            coming: AtomicBool::default(),
            since_elected: AtomicBool::default(),
            follows: AtomicU64::default(),
        }
    }

    /// Resolves when this process is elected, or after a moment.
    pub(super) async fn elected_soon(&self) {
        let mut elected = self.elected.clone();
        let elected = elected.wait_for(|elected| *elected);
        drop(tokio::time::timeout(ELECTION, elected).await);
    }

    /// The server sends what happens. The watch was asked for when so many pauses were over.
    pub(super) fn follows_since(&self, pauses: u64) {
        self.follows.store(pauses + 1, Ordering::Relaxed);
    }

    /// The cache does not have what happened in the last pause, as far as is known.
    pub(super) fn is_behind(&self) -> bool {
        self.follows.load(Ordering::Relaxed) <= *self.resumed.borrow()
    }

    /// The cache is from a list that began after the election: it has what others did before.
    pub(super) fn is_of_this_lead(&self) -> bool {
        self.since_elected.load(Ordering::Relaxed)
    }

    /// The API server answers so to everybody, as far as can be known: the kind is not installed yet, or it has
    /// too much to do, or trouble of its own.
    pub(super) fn is_everybodys(&self) -> bool {
        matches!(self.failure.load(Ordering::Relaxed), 404 | 429 | 500..)
    }

    pub(super) fn failed(&self, code: u16) {
        self.failure.store(code, Ordering::Relaxed);
        self.follows.store(0, Ordering::Relaxed);
    }

    /// Notes an event; `waited_for` until a list was complete.
    pub(super) fn came<K>(&self, event: &Event<K>, waited_for: bool) {
        match event {
            // The marker before a list, which is asked for next: no answer.
            Event::Init => {
                self.follows.store(0, Ordering::Relaxed);
                self.coming.store(*self.elected.borrow(), Ordering::Relaxed);
                return;
            }
            Event::InitDone => {
                self.since_elected.store(self.coming.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
        self.failure.store(0, Ordering::Relaxed);
        if waited_for {
            self.received.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    struct World {
        elected: watch::Sender<bool>,
        resumed: watch::Sender<u64>,
        so_far: SoFar,
    }

    fn world() -> World {
        let (elected, resumed) = (watch::channel(false).0, watch::channel(0).0);
        let leadership =
            Leadership { elected: elected.subscribe(), resumed: resumed.subscribe(), ..Leadership::alone() };
        World { elected, resumed, so_far: SoFar::new(&leadership) }
    }

    fn came(so_far: &SoFar, event: &Event<ConfigMap>) {
        so_far.came(event, true);
    }

    #[test]
    fn a_cache_is_of_this_lead_if_its_list_was_begun_after_the_election() {
        let World { elected, so_far, .. } = world();
        came(&so_far, &Event::Init);
        elected.send_replace(true);
        came(&so_far, &Event::InitDone);
        assert!(!so_far.is_of_this_lead(), "what the first page had is as old as the beginning of the list");
        came(&so_far, &Event::Init);
        assert!(!so_far.is_of_this_lead(), "it is not in the cache yet");
        came(&so_far, &Event::InitDone);
        assert!(so_far.is_of_this_lead());
    }

    #[test]
    fn a_watch_is_behind_from_the_end_of_a_pause_until_it_was_asked_for_anew_and_while_a_list_comes() {
        let World { resumed, so_far, .. } = world();
        assert!(so_far.is_behind(), "it has nothing yet");
        so_far.follows_since(0);
        assert!(!so_far.is_behind());
        resumed.send_replace(1);
        assert!(so_far.is_behind());
        so_far.follows_since(0);
        assert!(so_far.is_behind(), "that one was asked for before");
        so_far.follows_since(1);
        assert!(!so_far.is_behind());
        // The server does not know the version any more.
        so_far.failed(410);
        assert!(so_far.is_behind());
        so_far.follows_since(1);
        came(&so_far, &Event::Init);
        came(&so_far, &Event::InitDone);
        assert!(so_far.is_behind(), "the watch after the list is what brings it up to now");
    }
}
