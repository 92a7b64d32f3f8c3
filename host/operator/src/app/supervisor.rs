//! The long-lived tasks of the process. The death of any of them ends the process with its reason: an
//! operator without its health loop or its watches looks alive and is not.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::LifecycleError;

/// How the process is told to end.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// End in order: finish what is under way.
    pub stop: CancellationToken,
    /// End now: what is under way is broken off.
    pub hurry: CancellationToken,
}

/// Named tasks.
#[derive(Debug)]
pub(super) struct Supervisor {
    tasks: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
    ending: Ending,
}

/// How all of them ended.
#[derive(Debug)]
pub(super) struct End {
    /// The reason of the task that died, if one did.
    pub(super) result: anyhow::Result<()>,
    /// Each finished what it had begun, or had begun nothing: nothing was broken off.
    pub(super) finished: bool,
}

type Ended = Result<(Id, anyhow::Result<()>), JoinError>;

impl Supervisor {
    pub(super) fn new(ending: Ending) -> Self {
        Self { tasks: JoinSet::new(), names: HashMap::new(), ending }
    }

    /// Starts a task that is to run until the end is announced.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Runs until the end is announced or a task has died, then gives the others `drain` to finish.
    pub(super) async fn run(mut self, drain: Duration) -> End {
        let died = tokio::select! {
            biased;
            () = self.ending.stop.cancelled() => None,
            ended = self.tasks.join_next_with_id() => ended,
        };
        let reason = died.map(|ended| self.why(ended));
        self.ending.stop.cancel();
        let drained = self.drain(drain).await;
        match reason {
            None => End { result: Ok(()), finished: drained },
            Some(reason) => End { finished: drained && had_begun_nothing(&reason), result: Err(reason) },
        }
    }

    /// True if all finished by themselves, without an error.
    async fn drain(&mut self, limit: Duration) -> bool {
        let hurry = self.ending.hurry.clone();
        let mut failed = false;
        let all = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                if let Err(error) = outcome(&self.names, ended) {
                    failed = true;
                    tracing::warn!("{error:#}");
                }
            }
        };
        let finished = tokio::select! {
            finished = timeout(limit, all) => finished.is_ok(),
            () = hurry.cancelled() => false,
        };
        if !finished {
            tracing::warn!(tasks = self.tasks.len(), "tasks that had not finished were broken off");
        }
        self.tasks.shutdown().await;
        finished && !failed
    }

    fn why(&self, ended: Ended) -> anyhow::Error {
        let name = self.name_of(&ended);
        match outcome(&self.names, ended) {
            Ok(()) => anyhow!("task {name} ended although nobody told it to"),
            Err(error) => error,
        }
    }

    fn name_of(&self, ended: &Ended) -> &'static str {
        name(&self.names, id(ended))
    }
}

fn had_begun_nothing(reason: &anyhow::Error) -> bool {
    reason.downcast_ref::<LifecycleError>().is_some_and(LifecycleError::is_before_the_beginning)
}

fn id(ended: &Ended) -> Id {
    match ended {
        Ok((id, _)) => *id,
        Err(error) => error.id(),
    }
}

fn name(names: &HashMap<Id, &'static str>, id: Id) -> &'static str {
    names.get(&id).copied().unwrap_or("without a name")
}

fn outcome(names: &HashMap<Id, &'static str>, ended: Ended) -> anyhow::Result<()> {
    let name = name(names, id(&ended));
    match ended {
        Ok((_, result)) => result.with_context(|| format!("task {name} failed")),
        Err(error) => Err(anyhow!("task {name} died: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Duration = Duration::from_secs(5);

    async fn until_stopped(stop: CancellationToken) -> anyhow::Result<()> {
        stop.cancelled().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn the_death_of_one_task_ends_all_with_its_reason() {
        let ending = Ending::default();
        let mut tasks = Supervisor::new(ending.clone());
        tasks.spawn("health", until_stopped(ending.stop.clone()));
        tasks.spawn("lifecycle", async { Err(anyhow!("the watch ended")) });
        let error = tasks.run(DRAIN).await.result.unwrap_err();
        assert_eq!(format!("{error:#}"), "task lifecycle failed: the watch ended");
        assert!(ending.stop.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_without_an_error_or_panics_counts_as_dead() {
        let mut tasks = Supervisor::new(Ending::default());
        tasks.spawn("pool", async { Ok(()) });
        let error = tasks.run(DRAIN).await.result.unwrap_err();
        assert_eq!(error.to_string(), "task pool ended although nobody told it to");
        let mut tasks = Supervisor::new(Ending::default());
        tasks.spawn("pool", async { panic!("boom") });
        let error = tasks.run(DRAIN).await.result.unwrap_err().to_string();
        assert!(error.starts_with("task pool died: ") && error.contains("boom"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_announced_end_waits_for_what_is_under_way_but_not_for_ever() {
        let ending = Ending::default();
        let mut tasks = Supervisor::new(ending.clone());
        tasks.spawn("slow", std::future::pending());
        ending.stop.cancel();
        let began = tokio::time::Instant::now();
        let end = tasks.run(DRAIN).await;
        assert!(end.result.is_ok() && !end.finished, "{end:?}");
        assert_eq!(began.elapsed(), DRAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_does_not_wait() {
        let ending = Ending::default();
        let mut tasks = Supervisor::new(ending.clone());
        tasks.spawn("slow", std::future::pending());
        ending.stop.cancel();
        ending.hurry.cancel();
        let began = tokio::time::Instant::now();
        let end = tasks.run(DRAIN).await;
        assert!(end.result.is_ok() && !end.finished, "{end:?}");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_dies_before_it_began_anything_broke_nothing_off() {
        for slow in [false, true] {
            let ending = Ending::default();
            let mut tasks = Supervisor::new(ending.clone());
            let unread = LifecycleError::Unread { watches: "the watch".to_owned(), after: DRAIN };
            tasks.spawn("lifecycle", async { Err(unread.into()) });
            let stop = ending.stop.clone();
            tasks.spawn("gc", async move {
                stop.cancelled().await;
                tokio::time::sleep(if slow { DRAIN * 2 } else { Duration::ZERO }).await;
                Ok(())
            });
            let end = tasks.run(DRAIN).await;
            assert!(format!("{:#}", end.result.unwrap_err()).contains("no list came for the watch"));
            assert_eq!(end.finished, !slow, "what others had begun counts");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_is_finished_only_if_no_task_broke_anything_off() {
        for broken_off in [false, true] {
            let ending = Ending::default();
            let mut tasks = Supervisor::new(ending.clone());
            tasks.spawn("health", until_stopped(ending.stop.clone()));
            let stop = ending.stop.clone();
            tasks.spawn("lifecycle", async move {
                stop.cancelled().await;
                if broken_off { Err(anyhow!("a create was broken off")) } else { Ok(()) }
            });
            ending.stop.cancel();
            let end = tasks.run(DRAIN).await;
            assert!(end.result.is_ok(), "the end was asked for: {end:?}");
            assert_eq!(end.finished, !broken_off);
        }
    }
}
