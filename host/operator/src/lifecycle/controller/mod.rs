//! The lifecycle loop: watches, publishes the fleet, and reconciles each Proxy that is due.
//!
//! Reconciles of different Proxies run side by side, up to [`AT_ONCE`] in all; no provider has them all, so that one
//! that hangs holds up its own Proxies alone (`queue/share.rs`). Those of one Proxy never run side by side. Nothing is
//! reconciled before every cache was filled, nor before this process may act; in a pause none begins, see `hold`. A
//! panic of one reconcile is that Proxy's trouble alone. Beside them a `survey` saves large fleets most of their looks.

mod begin;
mod fleet;
mod hold;
mod reconcile;
mod survey;
mod tasks;
mod triggers;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::facts::{Fleet, LeaseCounts, Verdicts};
use egress_proxies_core::ids::ProxyKey;
use egress_proxies_core::lifecycle::Policy;
use egress_proxies_core::provider::Providers;
use futures::FutureExt;
use kube::Client;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::begin::{elected_and_fresh, unread};
use self::fleet::FleetPublisher;
use self::hold::Hold;
use self::reconcile::Reconciler;
use self::survey::Survey;
use self::tasks::Tasks;
use self::triggers::{News, Triggers, relay};
use super::apply::{Effects, Room};
use super::events::{Events, Sender, Telling};
use super::observe::{self, Namespaces, OnChange, Sources, Stores, WatchEnded};
use super::queue::Taken;
use super::recorder::LifecycleMetrics;
use crate::clock::SharedClock;
use crate::leadership::Leadership;

/// How long reconciles under way, with the provider calls they wait for, may go on after the process was told
/// to end. Below what the application gives this loop, which may have to say goodbye after it.
const DRAIN: Duration = Duration::from_secs(15);
/// After that, how long Events that still wait may take: whoever leads next waits for it.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Passes at the same time. Far more than providers have permits, since some wait for one (up to 5 s) and others for
/// the API server; few enough that a large fleet that is due at once has no pass in memory for each of its Proxies
/// (some 15 KB).
const AT_ONCE: usize = 128;
/// How often it is measured again how long what is due has waited, while something does.
const MEASURE: Duration = Duration::from_secs(1);
/// Until the next try after a reconcile that panicked.
const AFTER_PANIC: Duration = Duration::from_mins(1);

/// All that the loop is connected to.
pub struct LifecycleSetup {
    /// A client from `kubernetes_client`: no resends, bounded in time.
    pub client: Client,
    /// Where to look for Proxies.
    pub namespaces: Namespaces,
    /// The configured providers.
    pub providers: Arc<dyn Providers>,
    /// Changes whenever a provider becomes ready, fails, appears or goes.
    pub provider_changes: watch::Receiver<u64>,
    /// From the health loop.
    pub verdicts: watch::Receiver<Verdicts>,
    /// From the pool loop.
    pub leases: watch::Receiver<LeaseCounts>,
    /// To the health and pool loops.
    pub fleet: watch::Sender<Fleet>,
    /// The clock.
    pub clock: SharedClock,
    /// Durations and limits.
    pub policy: Policy,
    /// Identity of this cluster, see `kubernetes_client::cluster_id`.
    pub cluster: String,
    /// Probe URL of last resort.
    pub default_probe_url: Option<String>,
    /// Name of this process in Events, such as its pod.
    pub instance: String,
    /// Who may act.
    pub leadership: Leadership,
    /// Becomes true when this process is elected and the fleet is one that was read since: nothing but a fleet
    /// to read from should be made of an earlier one, which may be as old as the silence of a dead watch.
    pub acting: watch::Sender<bool>,
    /// Measures.
    pub metrics: Arc<dyn LifecycleMetrics>,
}

impl std::fmt::Debug for LifecycleSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LifecycleSetup")
            .field("namespaces", &self.namespaces)
            .field("policy", &self.policy)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// Why the loop ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// A watch ended.
    #[error(transparent)]
    Watch(#[from] WatchEnded),
    /// One of the loop's own tasks ended.
    #[error("{0} ended although nobody told it to")]
    Ended(String),
    /// One of the loop's own tasks panicked.
    #[error("{0} died: {1}")]
    Died(String, JoinError),
    /// It was told to end, and what was under way took too long.
    #[error("reconciles still under way after {DRAIN:?} were broken off")]
    BrokenOff,
    /// The election is over for this process.
    #[error("the leader election ended")]
    Election,
    /// This process leads and cannot begin.
    #[error(
        "this process leads and cannot begin: within {after:?} in which it might have acted no list came for \
         {watches}. Check that its ServiceAccount may list and watch these (deploy/base/2-rbac.yaml) and whether \
         the API server is overloaded; the warnings before say what it answered. The lead goes to another process"
    )]
    Unread {
        /// Names of the watches.
        watches: String,
        /// How long it tried.
        after: Duration,
    },
}

impl LifecycleError {
    /// True if this process ends before it has begun to act: nothing of it can be under way.
    pub fn is_before_the_beginning(&self) -> bool {
        match self {
            Self::Unread { .. } => true,
            Self::Watch(_) | Self::Ended(_) | Self::Died(..) | Self::BrokenOff | Self::Election => false,
        }
    }
}

/// Runs until told to end; then begins nothing more and gives what is under way [`DRAIN`], so that the answer
/// of a create is still written down. Dropping the future ends everything at once, effects under way included.
///
/// # Errors
/// If a part of the loop ended by itself: the process cannot do its work and should end. Or if it was told to end
/// and had to break something off.
pub async fn run(setup: LifecycleSetup, cancel: CancellationToken) -> Result<(), LifecycleError> {
    let providers = Arc::clone(&setup.providers);
    let triggers = Arc::new(Triggers::new(AT_ONCE, providers, Arc::clone(&setup.clock)));
    let told: Arc<dyn OnChange> = Arc::<Triggers>::clone(&triggers);
    let (stores, watches) = observe::open(&setup.client, &setup.namespaces, &setup.leadership, &told);
    let mut tasks = Tasks::default();
    for (name, watch) in watches {
        tasks.spawn(name, watch);
    }
    let unread = unread(setup.leadership.clone(), setup.acting.subscribe(), stores.clone());
    // Not cut short by `cancel`: reconciles are drained inside.
    tokio::select! {
        biased;
        error = tasks.ended() => Err(error),
        error = unread => Err(error),
        worked = work(setup, stores, triggers, cancel) => worked,
    }
}

async fn work(
    setup: LifecycleSetup,
    stores: Stores,
    triggers: Arc<Triggers>,
    cancel: CancellationToken,
) -> Result<(), LifecycleError> {
    match cancel.run_until_cancelled(stores.filled()).await {
        None => return Ok(()),
        Some(filled) => filled?,
    }
    triggers.filled(&stores);
    let read_since_elected = CancellationToken::new();
    let sources = Sources {
        stores,
        providers: Arc::clone(&setup.providers),
        verdicts: setup.verdicts.clone(),
        leases: setup.leases.clone(),
        cluster: setup.cluster.clone(),
        default_probe_url: setup.default_probe_url.clone(),
    };
    let publisher = FleetPublisher {
        sources: sources.clone(),
        memories: Arc::clone(&triggers.memories),
        dirty: Arc::clone(&triggers.dirty),
        fleet: setup.fleet.clone(),
        read_since_elected: read_since_elected.clone(),
        acting: setup.acting.clone(),
        clock: Arc::clone(&setup.clock),
    };
    let news = News {
        verdicts: setup.verdicts.clone(),
        leases: setup.leases.clone(),
        providers: setup.provider_changes.clone(),
    };
    let mut tasks = Tasks::default();
    tasks.spawn("the publisher of the fleet", publisher.run());
    tasks.spawn("the relay of news", relay(Arc::clone(&triggers), news, setup.fleet.clone()));
    tasks.spawn("the survey of machines", survey(&setup, &triggers).run());
    let stores = sources.stores.clone();
    let hold = Hold::new(setup.leadership.clone(), stores.clone());
    let (reconciler, telling) = reconciler(&setup, sources, &triggers);
    tasks.spawn("the telling of Events", telling.run());
    let controller = Controller { reconciler: Arc::new(reconciler), triggers };
    tokio::select! {
        biased;
        error = tasks.ended() => Err(error),
        worked = async {
            let begun = elected_and_fresh(&setup, &stores, &read_since_elected);
            match cancel.run_until_cancelled(begun).await {
                None => return Ok(()),
                Some(begun) => begun?,
            }
            controller.run(hold, &cancel).await
        } => worked,
    }
}

fn survey(setup: &LifecycleSetup, triggers: &Triggers) -> Survey {
    Survey {
        providers: Arc::clone(&setup.providers),
        memories: Arc::clone(&triggers.memories),
        leadership: setup.leadership.clone(),
        clock: Arc::clone(&setup.clock),
        policy: setup.policy.clone(),
        cluster: setup.cluster.clone(),
    }
}

fn reconciler(setup: &LifecycleSetup, sources: Sources, triggers: &Triggers) -> (Reconciler, Telling) {
    let (events, telling) = Events::new(Sender {
        client: setup.client.clone(),
        instance: setup.instance.clone(),
        metrics: Arc::clone(&setup.metrics),
        may_act: Arc::clone(&setup.leadership.may_act),
    });
    let effects = Effects {
        client: setup.client.clone(),
        providers: Arc::clone(&setup.providers),
        own_writes: Arc::clone(&triggers.own_writes),
        events,
        room: Room::new(setup.policy.caps.clone(), setup.fleet.subscribe()),
        metrics: Arc::clone(&setup.metrics),
        clock: Arc::clone(&setup.clock),
        may_act: Arc::clone(&setup.leadership.may_act),
    };
    let reconciler = Reconciler {
        sources,
        effects,
        memories: Arc::clone(&triggers.memories),
        policy: setup.policy.clone(),
        clock: Arc::clone(&setup.clock),
        metrics: Arc::clone(&setup.metrics),
    };
    (reconciler, telling)
}

struct Controller {
    reconciler: Arc<Reconciler>,
    triggers: Arc<Triggers>,
}

/// A reconcile that ended: which, and after how long to come again. None: it panicked.
type Ended = (ProxyKey, Option<Option<Duration>>);

impl Controller {
    async fn run(&self, mut hold: Hold, cancel: &CancellationToken) -> Result<(), LifecycleError> {
        self.reconciler.effects.room.begin(self.triggers.clock.now().mono);
        self.triggers.begin();
        let mut running = JoinSet::new();
        loop {
            let wait = self.start_what_is_due(&mut running, &mut hold);
            let wait = self.measure(wait);
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(ended) = running.join_next(), if !running.is_empty() => self.finish(ended),
                () = self.triggers.work.changed() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
        let drained = async { while running.join_next().await.is_some() {} };
        tokio::time::timeout(DRAIN, drained).await.map_err(|_elapsed| LifecycleError::BrokenOff)?;
        let told = self.reconciler.effects.events.all_told();
        if tokio::time::timeout(LAST_WORDS, told).await.is_err() {
            tracing::info!("Events that still waited are not written; the statuses say the same");
        }
        Ok(())
    }

    /// Tells how much there is to do; after how long to do so again, at the latest.
    fn measure(&self, wait: Option<Duration>) -> Option<Duration> {
        let work = &self.triggers.work;
        let (planned, at_work) = work.depth();
        let longest_wait = work.longest_wait(self.triggers.clock.now().mono);
        self.reconciler.metrics.queue(planned, at_work, longest_wait);
        if longest_wait.is_zero() { wait } else { Some(wait.map_or(MEASURE, |wait| wait.min(MEASURE))) }
    }

    fn start_what_is_due(&self, running: &mut JoinSet<Ended>, hold: &mut Hold) -> Option<Duration> {
        loop {
            match hold.take(&self.triggers.work, self.triggers.clock.now().mono) {
                Taken::Empty => return None,
                Taken::Wait(wait) => return Some(wait),
                Taken::Key(key) => {
                    let reconciler = Arc::clone(&self.reconciler);
                    running.spawn(async move {
                        let pass = AssertUnwindSafe(reconciler.reconcile(&key)).catch_unwind();
                        let result = pass.await.ok();
                        (key, result)
                    });
                }
            }
        }
    }

    fn finish(&self, ended: Result<Ended, JoinError>) {
        let now = self.triggers.clock.now().mono;
        match ended {
            Ok((key, result)) => {
                if result.is_none() {
                    tracing::error!(proxy = %key, "a reconcile panicked; it is tried again in {AFTER_PANIC:?}");
                }
                let wait = result.unwrap_or(Some(AFTER_PANIC));
                self.triggers.work.done(&key, wait.map(|wait| now + wait));
                self.triggers.dirty.add(key, now); // the pass may have seen a machine run
            }
            Err(error) => tracing::error!(%error, "a reconcile was broken off"),
        }
    }
}
