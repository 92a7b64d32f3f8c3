//! Builds everything, connects it, supervises it, ends it in order.
//!
//! The only room that knows all others. It decides nothing about Proxies: it makes the channels over which
//! `lifecycle`, `health`, `pool`, `gc` and `http` exchange the values of `egress_proxies_core::facts`.

mod cluster;
mod collection;
mod gates;
mod leading;
mod providers;
mod servers;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use egress_proxies_core::facts::{Fleet, LeaseCounts, Suspicions, Verdicts};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use self::cluster::Cluster;
use self::collection::Sources;
use self::gates::Gates;
use self::leading::{Leading, keeps_leases};
pub use self::providers::COMPILE_COMMAND;
use self::providers::LoadedProviders;
pub(crate) use self::providers::host_config;
use self::servers::{Pages, Servers};
pub use self::supervisor::Ending;
use self::supervisor::Supervisor;
use crate::clock::{SharedClock, SystemClock};
use crate::config::Settings;
use crate::health::{EndpointPolicy, Engine, EngineSettings, HttpProber, Ports, SystemResolver};
use crate::http::{Api, TokenSources, Tokens};
use crate::leadership::Leadership;
use crate::lifecycle::{self, LifecycleSetup, Namespaces};
use crate::metrics::{Metrics, PerProxy, ScrapeSources};
use crate::pool::{MemoryStore, Sweeper, SweeperChannels};

/// Time for all tasks once the end is announced: above what each of them allows itself (reconciles 15 s), and
/// with the rest below the 30 s that Kubernetes gives a pod.
const DRAIN: Duration = Duration::from_secs(20);
/// Time for provider calls that nobody waits for any more, after that.
const PROVIDER_GRACE: Duration = Duration::from_secs(5);
/// Time for provider calls that are broken off when the lead is lost.
const CUT_SHORT: Duration = Duration::from_secs(2);
/// Between two looks at the tokens file.
const TOKENS_PERIOD: Duration = Duration::from_secs(5);
/// Probes that may be asked for, or reported, before somebody takes them.
const PROBE_BACKLOG: usize = 1024;

/// What connects the loops.
struct Channels {
    fleet: watch::Sender<Fleet>,
    verdicts: watch::Sender<Verdicts>,
    leases: watch::Sender<LeaseCounts>,
    acting: watch::Sender<bool>,
}

/// Runs the operator until it is told to end or one of its tasks dies.
///
/// # Errors
/// If it cannot start, with what to do about it, or with the reason of the task that died.
pub async fn run(settings: Settings, ending: Ending) -> anyhow::Result<()> {
    // What can be wrong on this machine comes first, so that a bad start fails at once.
    let servers = Servers::bind(&settings.servers).await?;
    let per_proxy = if settings.probes.per_proxy_metrics { PerProxy::On } else { PerProxy::Off };
    let metrics = Arc::new(Metrics::new(per_proxy).context("the metrics could not be registered")?);
    let cluster = Cluster::connect(&settings).await?;
    let leading = Leading::new(&settings, &cluster)?;
    let leadership = leading.leadership();
    let providers = LoadedProviders::start(&settings, &cluster, &metrics, &leadership)?;
    let channels = Channels {
        fleet: watch::channel(Fleet::default()).0,
        verdicts: watch::channel(Verdicts::default()).0,
        leases: watch::channel(LeaseCounts::default()).0,
        acting: watch::channel(false).0,
    };
    let clock: SharedClock = SystemClock::start();
    let mut tasks = Supervisor::new(ending.clone());
    let gates = Gates::watch(&mut tasks, &ending, channels.fleet.subscribe(), &providers);
    let store =
        start_pool_and_health(&mut tasks, &ending, &settings, &cluster, (&channels, &clock, &metrics));
    let tokens = Tokens::load(TokenSources {
        token: settings.access.discovery_token.clone(),
        file: settings.access.discovery_tokens_file.clone(),
    })
    .await;
    let api = Api {
        pool: store,
        fleet: channels.fleet.subscribe(),
        tokens: Arc::clone(&tokens),
        metrics: Arc::<Metrics>::clone(&metrics),
        clock: Arc::clone(&clock),
        leads: keeps_leases(&leadership, channels.acting.subscribe()),
    };
    metrics.scrape(ScrapeSources {
        fleet: channels.fleet.subscribe(),
        leases: channels.leases.subscribe(),
        providers: providers.series(),
        leads: Arc::clone(&leadership.may_act),
    })?;
    let pages = Pages { metrics: Arc::clone(&metrics), providers: providers.debug(), gates: gates.all() };
    servers.spawn(&mut tasks, &ending, api, pages);
    let watch_tokens = Tokens::watch(tokens, TOKENS_PERIOD, ending.stop.clone());
    let stop = ending.stop.clone();
    tasks.spawn("tokens", async move {
        watch_tokens.await;
        stop.cancelled().await;
        Ok(())
    });
    let sources = Sources { cluster: &cluster, providers: &providers, clock: &clock, metrics: &metrics };
    collection::start(&mut tasks, &ending, &settings, sources, leadership.clone());
    let parts = (&clock, &metrics, leadership);
    let setup = lifecycle_setup(&settings, &cluster, &providers, channels, parts);
    let running = lifecycle::run(setup, ending.stop.clone());
    tasks.spawn("lifecycle", async move { Ok(running.await?) });
    tracing::info!(version = env!("CARGO_PKG_VERSION"), cluster = %cluster.id, "started");
    end(leading, tasks, &providers).await
}

/// Runs until the end, and ends in order: what is under way, then provider calls, then the lead. Whoever loses
/// the lead finishes nothing: another process may act soon.
async fn end(mut leading: Leading, tasks: Supervisor, providers: &LoadedProviders) -> anyhow::Result<()> {
    let outcome = match leading.beside(tasks.run(DRAIN)).await {
        Ok(outcome) => outcome,
        Err(lost) => {
            if timeout(CUT_SHORT, providers.shutdown(Duration::ZERO)).await.is_err() {
                tracing::warn!("providers did not stop in {CUT_SHORT:?}");
            }
            return Err(lost.into());
        }
    };
    if let Err(lost) = leading.beside(providers.shutdown(PROVIDER_GRACE)).await {
        return outcome.and(Err(lost.into()));
    }
    leading.release().await;
    outcome
}

/// Channels, clock and measures.
type Shared<'a> = (&'a Channels, &'a SharedClock, &'a Arc<Metrics>);

fn start_pool_and_health(
    tasks: &mut Supervisor,
    ending: &Ending,
    settings: &Settings,
    cluster: &Cluster,
    (channels, clock, metrics): Shared<'_>,
) -> Arc<MemoryStore> {
    let (ask, asked) = mpsc::channel(PROBE_BACKLOG);
    let (good, good_probes) = mpsc::channel(PROBE_BACKLOG);
    let store = Arc::new(MemoryStore::new(channels.fleet.subscribe(), Arc::clone(clock), settings.cooldown));
    let sweeper = Sweeper::new(
        Arc::<MemoryStore>::clone(&store),
        SweeperChannels {
            fleet: channels.fleet.subscribe(),
            good_probes,
            probe_requests: ask,
            counts: channels.leases.clone(),
        },
    );
    let stop = ending.stop.clone();
    tasks.spawn("pool", async move {
        sweeper.run(stop).await;
        Ok(())
    });
    let policy = EndpointPolicy {
        allow_local_endpoints: settings.probes.allow_local_endpoints,
        api_server: cluster.addresses.clone(),
    };
    let ports = Ports {
        fleet: channels.fleet.subscribe(),
        requests: asked,
        verdicts: channels.verdicts.clone(),
        // The engine logs suspicions and counts them in a metric; nobody else acts on them yet.
        suspicions: watch::channel(Suspicions::default()).0,
        good,
    };
    let engine = Engine::new(
        ports,
        HttpProber::new(Arc::clone(clock), policy, Arc::new(SystemResolver)),
        Arc::clone(clock),
        Arc::<Metrics>::clone(metrics),
        EngineSettings { max_in_flight: settings.probes.max_probes_in_flight.into() },
    );
    let (stop, mut acting) = (ending.stop.clone(), channels.acting.subscribe());
    tasks.spawn("health", async move {
        // Only the leader probes. Its first knowledge is what the conditions say, in a fleet that is not stale.
        let elected = async { acting.wait_for(|acting| *acting).await.map(drop) };
        if let Some(elected) = stop.run_until_cancelled(elected).await {
            elected?;
            engine.run(stop).await;
        }
        Ok(())
    });
    store
}

fn lifecycle_setup(
    settings: &Settings,
    cluster: &Cluster,
    providers: &LoadedProviders,
    channels: Channels,
    (clock, metrics, leadership): (&SharedClock, &Arc<Metrics>, Leadership),
) -> LifecycleSetup {
    let names = settings.namespaces();
    let namespaces = if names.is_empty() { Namespaces::All } else { Namespaces::Only(names) };
    LifecycleSetup {
        client: cluster.client.clone(),
        namespaces,
        providers: providers.host(),
        provider_changes: providers.changed(),
        verdicts: channels.verdicts.subscribe(),
        leases: channels.leases.subscribe(),
        fleet: channels.fleet,
        clock: Arc::clone(clock),
        policy: settings.policy(),
        cluster: cluster.id.clone(),
        default_probe_url: settings.probes.probe_url.clone(),
        instance: settings.instance.clone(),
        leadership,
        acting: channels.acting,
        metrics: Arc::<Metrics>::clone(metrics),
    }
}
