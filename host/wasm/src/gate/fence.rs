//! Whether this process may change anything outside of it: asked before each request of a guest that is no read,
//! and while it is under way. The same question guards the operator's own writes.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use wasmtime_wasi_http::Error;

/// Between two questions whether an effect under way may go on.
const GLANCE: Duration = Duration::from_millis(200);

/// Whether this process may change anything outside of it now: asked before each request that is no read, and right
/// before it is sent, so that a call that was under way when the process lost the lead changes nothing more.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> bool + Send + Sync>);

impl Fence {
    /// Asks this.
    pub fn new(open: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self(open)
    }

    /// There is none.
    pub fn open() -> Self {
        Self(Arc::new(|| true))
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fence").field(&(self.0)()).finish()
    }
}

/// The fence before one request: asked first, and once more when there is nothing left to wait for, since a
/// process may be stopped, or lose the lead, while its request waits for room, a name or a connection.
#[derive(Debug)]
pub(crate) struct Leave {
    fence: Fence,
    changes: bool,
    what: String,
    refused: AtomicBool,
}

impl Leave {
    pub(crate) fn new(fence: Fence, method: &http::Method, what: String) -> Self {
        Self { fence, changes: !method.is_safe(), what, refused: AtomicBool::new(false) }
    }

    /// # Errors
    /// If the request may not leave now. One that only reads always may.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_open() { Ok(()) } else { Err(self.hold_back()) }
    }

    fn is_open(&self) -> bool {
        !self.changes || (self.fence.0)()
    }

    fn hold_back(&self) -> Error {
        tracing::warn!(request = %self.what, "held back: this process may not act at the moment");
        self.refused.store(true, Ordering::Relaxed);
        Error::ConnectionTerminated
    }

    /// Waits for an answer for as long as the request might have left. Dropped, what was not sent yet never is.
    ///
    /// # Errors
    /// If the fence was shut meanwhile.
    pub(super) async fn while_open<T: Send>(
        &self,
        answer: impl Future<Output = T> + Send,
    ) -> Result<T, Error> {
        let is_open = || self.is_open();
        while_allowed(&is_open, answer).await.ok_or_else(|| self.hold_back())
    }

    /// It was held back at least once.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Carries out an effect for as long as this process may act; none if it may not, or no longer. An effect that is
/// broken off may have happened. The question comes before each poll: a process that was stopped while its effect
/// waited for a connection must not send it when it wakes up.
pub fn while_allowed<'a, T>(
    may_act: &'a (dyn Fn() -> bool + Send + Sync),
    effect: impl Future<Output = T> + Send + 'a,
) -> impl Future<Output = Option<T>> + Send + 'a
where
    T: Send + 'a,
{
    let mut effect = Box::pin(effect);
    async move {
        let guarded =
            poll_fn(move |cx| if may_act() { effect.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) });
        let over = async {
            while may_act() {
                tokio::time::sleep(GLANCE).await;
            }
        };
        tokio::select! {
            biased;
            done = guarded => done,
            () = over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_not_begun_by_whoever_may_not_act_and_broken_off_when_that_is_over() {
        let (acts, begun) = (AtomicBool::new(false), AtomicU32::new(0));
        let may_act = || acts.load(Ordering::SeqCst);
        let effect = |seconds| async move {
            sleep(Duration::from_secs(seconds)).await;
            seconds
        };
        let counted = async {
            begun.fetch_add(1, Ordering::SeqCst);
            effect(1).await
        };
        assert_eq!((while_allowed(&may_act, counted).await, begun.load(Ordering::SeqCst)), (None, 0));

        acts.store(true, Ordering::SeqCst);
        assert_eq!(while_allowed(&may_act, effect(10)).await, Some(10));
        let began = Instant::now();
        let over = async {
            sleep(Duration::from_secs(5)).await;
            acts.store(false, Ordering::SeqCst);
        };
        let (done, ()) = tokio::join!(while_allowed(&may_act, effect(10)), over);
        assert_eq!(done, None);
        assert!(began.elapsed() <= Duration::from_secs(5) + GLANCE, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn an_effect_that_was_begun_is_not_polled_again_after_the_lead_is_over() {
        let (acts, polls) = (AtomicBool::new(true), AtomicU32::new(0));
        let may_act = || acts.load(Ordering::SeqCst);
        // Its connection is made while the process is stopped: ready as soon as it runs again.
        let effect = poll_fn(|cx| {
            if polls.fetch_add(1, Ordering::SeqCst) > 0 {
                return Poll::Ready(());
            }
            acts.store(false, Ordering::SeqCst);
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!((while_allowed(&may_act, effect).await, polls.load(Ordering::SeqCst)), (None, 1));
    }
}
