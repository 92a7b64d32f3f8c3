//! Who may act: what the election tells the rooms that change something outside of this process.
//!
//! A value, so that rooms that never import one another can be told the same. It elects nobody and never
//! waits for an election by itself.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

/// Who may act. Every replica publishes the fleet; only one acts.
#[derive(Clone)]
pub struct Leadership {
    /// Becomes true when this process is elected, and stays so until it ends.
    pub elected: watch::Receiver<bool>,
    /// Asked before each effect. False before the election, and in between while the API server is away: then
    /// what is due has to be tried again later.
    pub may_act: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Others may lead instead of this process.
    pub shared: bool,
}

/// Between two questions whether an effect under way may go on.
const GLANCE: Duration = Duration::from_millis(200);

impl Leadership {
    /// There is no other process.
    pub fn alone() -> Self {
        Self { elected: watch::channel(true).1, may_act: Arc::new(|| true), shared: false }
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

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leadership").field("elected", &*self.elected.borrow()).finish_non_exhaustive()
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
