//! Keeps a watch going: after a failure it waits, longer after each, but no longer than until a pause of the lead is
//! over, and it starts anew with a full list where the API server says that the watch cannot be continued.
//!
//! Why not the back-off that comes with kube's watcher: its third wait may last 6 s, so that after a CRD was
//! installed ("storage is (re)initializing") the first Proxy waits for 5 to 11 s; the marker before a list
//! resets it, so that a list that fails is asked for each second for ever; and a quiet watch that works again
//! never resets it. Why starting anew is done here too: kube's watcher leaves a resource version behind only
//! after an event of 410, and would ask for ever for one that the server refuses in another way, such as after
//! etcd was restored from a backup.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// First wait after a failure.
const FIRST: Duration = Duration::from_millis(250);
/// Longest wait.
const MOST: Duration = Duration::from_secs(30);
/// A try that did not fail for this long works: longer than any request that fails takes.
const STEADY: Duration = Duration::from_secs(15);

/// How long to wait after a failure.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
    tried_at: Option<Instant>,
}

impl Backoff {
    /// The wait after a failure now, at least as long as the server asked for; `spread` in 0..1 takes off up
    /// to a fifth.
    fn after_failure(&mut self, now: Instant, asked: Duration, spread: f64) -> Duration {
        if self.tried_at.is_some_and(|at| now.saturating_duration_since(at) >= STEADY) {
            self.failures = 0;
        }
        let wait = FIRST.saturating_mul(1 << self.failures.min(10)).min(MOST);
        let wait = wait.mul_f64(1.0 - spread / 5.0).max(asked.min(MOST));
        self.failures = self.failures.saturating_add(1);
        self.tried_at = Some(now + wait);
        wait
    }

    /// An event came.
    fn works(&mut self) {
        self.failures = 0;
    }
}

/// A wait after a failure.
struct Wait {
    /// What the server asked for.
    asked: Duration,
    /// What is left of the whole then.
    rest: Duration,
}

struct Healing<F, S> {
    start: F,
    watch: Pin<Box<S>>,
    /// Changes when the API server is known to answer again.
    resumed: watch::Receiver<u64>,
    backoff: Backoff,
    wait: Option<Wait>,
    anew: bool,
}

impl<F, S> Healing<F, S> {
    async fn waits(&mut self, wait: Wait) {
        sleep(wait.asked).await;
        tokio::select! {
            () = sleep(wait.rest) => {}
            Ok(()) = self.resumed.changed() => self.backoff.works(),
        }
    }
}

/// A watch that goes on for ever. `start` gives one that begins with a list. A change of `resumed` ends a wait.
pub(super) fn healing<K, F, S>(
    start: F,
    resumed: watch::Receiver<u64>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Send + 'static,
    F: Fn() -> S + Send,
    S: Stream<Item = watcher::Result<Event<K>>> + Send,
{
    let watch = Box::pin(start());
    let begin = Healing { start, watch, resumed, backoff: Backoff::default(), wait: None, anew: false };
    stream::unfold(begin, |mut healing| async move {
        // Not a sleep of nothing: it may take a millisecond, for each object of a list.
        if let Some(wait) = healing.wait.take() {
            healing.waits(wait).await;
        }
        if std::mem::take(&mut healing.anew) {
            healing.watch = Box::pin((healing.start)());
        }
        let item = healing.watch.next().await?;
        match &item {
            Ok(Event::Apply(_) | Event::Delete(_)) => healing.backoff.works(),
            // A list says nothing about the watch that follows it.
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone) => {}
            Err(error) => {
                let asked = status_of(error).map(asked_wait).unwrap_or_default();
                let whole = healing.backoff.after_failure(Instant::now(), asked, rand::random());
                let asked = asked.min(MOST);
                healing.wait = Some(Wait { asked, rest: whole.saturating_sub(asked) });
                healing.anew = cannot_go_on(error);
            }
        }
        Some((item, healing))
    })
}

/// The answer of the API server, if there was one.
pub(super) fn status_of(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// What the server asks for, such as one second while a CRD's storage is being set up.
fn asked_wait(status: &Status) -> Duration {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(u64::from(seconds))
}

/// True if the server does not know the version from which the watch is to go on: too old (410), newer than
/// anything it has (504), or not one of its own (400).
fn cannot_go_on(error: &watcher::Error) -> bool {
    let of_the_watch = match error {
        watcher::Error::WatchStartFailed(_) | watcher::Error::WatchError(_) => true,
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    };
    of_the_watch && status_of(error).is_some_and(|status| matches!(status.code, 410 | 504 | 400))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    type Item = watcher::Result<Event<ConfigMap>>;

    fn status(code: u16, retry_after: u32) -> Status {
        serde_json::from_value(json!({
            "status": "Failure", "code": code, "message": "no", "details": {"retryAfterSeconds": retry_after}
        }))
        .unwrap()
    }

    fn refused(code: u16, retry_after: u32) -> Item {
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status(code, retry_after)))))
    }

    fn unreachable() -> Item {
        Err(watcher::Error::WatchStartFailed(kube::Error::Service("refused".into())))
    }

    fn seconds(now: Instant) -> Vec<f64> {
        let mut backoff = Backoff::default();
        let mut at = now;
        let mut waits = Vec::new();
        for _ in 0..10 {
            let wait = backoff.after_failure(at, Duration::ZERO, 0.0);
            waits.push(wait.as_secs_f64());
            at += wait;
        }
        waits
    }

    /// The times at which items come, from watches that are started one after the other.
    async fn times(watches: Vec<Vec<Item>>) -> (Vec<f64>, usize) {
        let watches = Mutex::new(watches.into_iter());
        let started = Mutex::new(0);
        let start = || {
            *started.lock().unwrap() += 1;
            stream::iter(watches.lock().unwrap().next().unwrap_or_default())
        };
        let begin = Instant::now();
        let never = watch::channel(0).1;
        let at: Vec<f64> = healing(start, never).map(|_| begin.elapsed().as_secs_f64()).collect().await;
        (at, *started.lock().unwrap())
    }

    #[test]
    fn waits_double_from_a_quarter_of_a_second_to_half_a_minute() {
        let now = Instant::now();
        assert_eq!(seconds(now), [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
    }

    #[test]
    fn the_server_may_ask_for_a_longer_wait_but_not_for_any() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        assert_eq!(backoff.after_failure(now, Duration::from_secs(3), 0.0), Duration::from_secs(3));
        assert_eq!(backoff.after_failure(now, Duration::from_hours(9), 0.0), MOST);
    }

    #[test]
    fn a_fleet_of_operators_does_not_come_back_at_once() {
        let now = Instant::now();
        let wait = |spread| Backoff::default().after_failure(now, Duration::ZERO, spread);
        assert_eq!((wait(0.0), wait(1.0)), (Duration::from_millis(250), Duration::from_millis(200)));
    }

    #[test]
    fn a_watch_that_went_well_for_a_while_starts_its_waits_from_the_beginning() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        for _ in 0..6 {
            now += backoff.after_failure(now, Duration::ZERO, 0.0);
        }
        // A failed request of 10 s is no success.
        let soon = now + Duration::from_secs(10);
        assert_eq!(backoff.after_failure(soon, Duration::ZERO, 0.0), Duration::from_secs(16));
        let late = soon + Duration::from_secs(16) + STEADY;
        assert_eq!(backoff.after_failure(late, Duration::ZERO, 0.0), FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn storage_that_is_being_set_up_is_asked_again_each_second() {
        let watch = vec![refused(429, 1), refused(429, 1), refused(429, 1), Ok(Event::InitDone)];
        let (at, started) = times(vec![watch]).await;
        assert_eq!(at.iter().map(|at| at.round()).collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(started, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_list_is_passed_on_without_a_pause() {
        let object = |number: usize| {
            serde_json::from_value(json!({"metadata": {"name": number.to_string()}})).map(Event::InitApply)
        };
        let (at, _) = times(vec![(0..10_000).map(|number| Ok(object(number).unwrap())).collect()]).await;
        assert_eq!((at.len(), at.last()), (10_000, Some(&0.0)), "the clock moves only where somebody waits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_again_and_again_is_asked_for_ever_more_slowly() {
        let failed = || Err(watcher::Error::InitialListFailed(kube::Error::Service("refused".into())));
        let watch = (0..8).flat_map(|_| [Ok(Event::Init), failed()]).collect();
        let (at, _) = times(vec![watch]).await;
        assert!(at[15] > 20.0, "eight lists within {} s", at[15]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_pause_ends_a_wait_but_not_one_that_the_server_asked_for() {
        for (asked, ends) in [(0, 1), (20, 20)] {
            let failures = (0..8).map(|number| if number < 7 { unreachable() } else { refused(429, asked) });
            let items = Mutex::new(failures.chain([unreachable(), Ok(Event::InitDone)]).collect());
            let (resume, resumed) = watch::channel(0);
            let start = || stream::iter(std::mem::take::<Vec<Item>>(&mut items.lock().unwrap()));
            let mut events = std::pin::pin!(healing(start, resumed));
            for _ in 0..8 {
                assert!(events.next().await.unwrap().is_err());
            }
            let began = Instant::now();
            let resumes = async {
                sleep(Duration::from_secs(1)).await;
                resume.send_replace(1);
            };
            let (next, ()) = tokio::join!(events.next(), resumes);
            assert!(next.unwrap().is_err());
            assert_eq!(began.elapsed(), Duration::from_secs(ends));
            assert!(events.next().await.unwrap().is_ok());
            assert!(began.elapsed() <= Duration::from_secs(ends) + FIRST, "and the waits are short again");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_the_server_does_not_know_is_left_behind() {
        for code in [410, 504, 400] {
            let watches = vec![vec![Ok(Event::InitDone), refused(code, 0)], vec![Ok(Event::Init)]];
            let (at, started) = times(watches).await;
            assert_eq!((at.len(), started), (3, 2), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_reached_is_no_reason_for_another_list() {
        let (at, started) = times(vec![vec![unreachable(), refused(429, 0), refused(403, 0)]]).await;
        assert_eq!((at.len(), started), (3, 1));
    }
}
