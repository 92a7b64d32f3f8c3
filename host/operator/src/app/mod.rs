//! Builds everything, connects it, supervises it, ends it in order.
//!
//! The only room that knows all others. It decides nothing about Proxies: it makes the channels over which
//! `lifecycle`, `health`, `pool`, `gc` and `http` exchange the values of `egress_proxies_core::facts`.

mod api_server;
mod cluster;
mod collection;
mod gates;
mod leading;
mod providers;
mod servers;
mod supervisor;
mod suspicions;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use egress_proxies_core::facts::{Fleet, GoodProbe, LeaseCounts, ProbeRequest, Suspicions, Verdicts};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::cluster::Cluster;
use self::gates::Gates;
use self::leading::{Leading, keeps_leases};
pub use self::providers::COMPILE_COMMAND;
pub(crate) use self::providers::host_config;
use self::providers::{LoadedProviders, ProviderPlan};
use self::servers::{Pages, Servers};
pub use self::supervisor::Ending;
use self::supervisor::{End, Supervisor};
use crate::clock::{SharedClock, SystemClock};
use crate::config::Settings;
use crate::health::{EndpointPolicy, Engine, EngineSettings, HttpProber, Ports, SystemResolver};
use crate::http::{Api, TokenSources, Tokens};
use crate::leadership::Leadership;
use crate::lifecycle::{self, LifecycleSetup, Namespaces};
use crate::metrics::{Metrics, PerProxy, ScrapeSources};
use crate::pool::{MemoryStore, Sweeper, SweeperChannels};

/// Time for all tasks once the end is announced: above what each of them allows itself (reconciles 15 s, then Events
/// 2 s), and with the rest below the 30 s that Kubernetes gives a pod.
const DRAIN: Duration = Duration::from_secs(20);
/// Time for provider calls that nobody waits for any more, after that.
const PROVIDER_GRACE: Duration = Duration::from_secs(5);
/// Time for provider calls that are broken off when another process leads.
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
    suspicions: watch::Sender<Suspicions>,
    acting: watch::Sender<bool>,
}

impl Channels {
    fn open() -> Self {
        Self {
            fleet: watch::channel(Fleet::default()).0,
            verdicts: watch::channel(Verdicts::default()).0,
            leases: watch::channel(LeaseCounts::default()).0,
            suspicions: watch::channel(Suspicions::default()).0,
            acting: watch::channel(false).0,
        }
    }
}

/// Runs the operator until it is told to end or one of its tasks dies.
///
/// # Errors
/// If it cannot start, with what to do about it, or with the reason of the task that died.
pub async fn run(settings: Settings, ending: Ending) -> anyhow::Result<()> {
    // The start waits for others, such as a silent API server; told to end, it is given up.
    let stop = ending.stop.clone();
    match stop.run_until_cancelled(Box::pin(Application::prepare(settings, &ending))).await {
        None => Ok(()),
        Some(prepared) => {
            let (application, prepared) = prepared?;
            Box::pin(application.run(prepared, ending)).await
        }
    }
}

/// What runs already when the cluster has answered, or begins then.
struct Prepared {
    servers: Servers,
    gates: Gates,
    leading: Leading,
    tasks: Supervisor,
}

/// What the loops are built from.
struct Application {
    settings: Settings,
    cluster: Cluster,
    leadership: Leadership,
    providers: LoadedProviders,
    channels: Channels,
    clock: SharedClock,
    metrics: Arc<Metrics>,
}

impl Application {
    /// Nothing runs yet but the probe server, and providers begin to load. What can be wrong on this machine comes
    /// first, so that a bad start fails at once and says so whatever the cluster does; then the cluster is waited for.
    async fn prepare(settings: Settings, ending: &Ending) -> anyhow::Result<(Self, Prepared)> {
        let planned = ProviderPlan::read(&settings)?;
        let (servers, probes) = Servers::bind(&settings.servers)?;
        let per_proxy = if settings.probes.per_proxy_metrics { PerProxy::On } else { PerProxy::Off };
        let metrics = Arc::new(Metrics::new(per_proxy).context("the metrics could not be registered")?);
        let (mut tasks, gates) = (Supervisor::new(ending.clone()), Gates::shut());
        probes.spawn(&mut tasks, ending, gates.all())?;
        let cluster = Cluster::connect(&settings).await?;
        let leading = Leading::new(&settings, &cluster)?;
        let leadership = leading.leadership();
        let providers = planned.start(&cluster, &metrics, &leadership)?;
        let (channels, clock) = (Channels::open(), SystemClock::start());
        let application = Self { settings, cluster, leadership, providers, channels, clock, metrics };
        Ok((application, Prepared { servers, gates, leading, tasks }))
    }

    async fn run(mut self, prepared: Prepared, ending: Ending) -> anyhow::Result<()> {
        let Prepared { servers, gates, leading, mut tasks } = prepared;
        let stop = ending.stop.clone();
        gates.watch(&mut tasks, &ending, self.channels.fleet.subscribe(), &self.providers);
        let (ask, asked) = mpsc::channel(PROBE_BACKLOG);
        let (good, good_probes) = mpsc::channel(PROBE_BACKLOG);
        let store = self.start_pool(&mut tasks, &stop, ask, good_probes);
        self.start_health(&mut tasks, &stop, asked, good);
        let tokens = self.start_tokens(&mut tasks, &stop).await;
        self.metrics.scrape(ScrapeSources {
            fleet: self.channels.fleet.subscribe(),
            leases: self.channels.leases.subscribe(),
            providers: self.providers.series(),
            leads: Arc::clone(&self.leadership.may_act),
        })?;
        let pages = Pages {
            metrics: Arc::clone(&self.metrics),
            providers: self.providers.debug(),
            suspicions: suspicions::page(self.channels.suspicions.subscribe()),
        };
        servers.spawn(&mut tasks, &ending, self.api(store, tokens), pages)?;
        collection::start(&mut tasks, &stop, &self);
        let running = lifecycle::run(self.lifecycle_setup(), stop);
        tasks.spawn("lifecycle", async move { Ok(running.await?) });
        tracing::info!(version = env!("CARGO_PKG_VERSION"), cluster = %self.cluster.id, "started");
        end(leading, tasks, &self.providers).await
    }

    fn start_pool(
        &self,
        tasks: &mut Supervisor,
        stop: &CancellationToken,
        ask: mpsc::Sender<ProbeRequest>,
        good_probes: mpsc::Receiver<GoodProbe>,
    ) -> Arc<MemoryStore> {
        let fleet = self.channels.fleet.subscribe();
        let store = Arc::new(MemoryStore::new(fleet, Arc::clone(&self.clock), self.settings.cooldown));
        let sweeper = Sweeper::new(
            Arc::<MemoryStore>::clone(&store),
            SweeperChannels {
                fleet: self.channels.fleet.subscribe(),
                good_probes,
                probe_requests: ask,
                counts: self.channels.leases.clone(),
            },
        );
        let stop = stop.clone();
        tasks.spawn("pool", async move {
            sweeper.run(stop).await;
            Ok(())
        });
        store
    }

    fn start_health(
        &mut self,
        tasks: &mut Supervisor,
        stop: &CancellationToken,
        requests: mpsc::Receiver<ProbeRequest>,
        good: mpsc::Sender<GoodProbe>,
    ) {
        let policy = match self.cluster.api_server.take() {
            None => EndpointPolicy::Everywhere,
            Some(api_server) => {
                let policy = EndpointPolicy::NotLocal { api_server: api_server.addresses() };
                let stop = stop.clone();
                tasks.spawn("addresses of the API server", async move {
                    api_server.follow(stop).await;
                    Ok(())
                });
                policy
            }
        };
        let ports = Ports {
            fleet: self.channels.fleet.subscribe(),
            requests,
            verdicts: self.channels.verdicts.clone(),
            suspicions: self.channels.suspicions.clone(),
            good,
        };
        let engine = Engine::new(
            ports,
            HttpProber::new(Arc::clone(&self.clock), policy, Arc::new(SystemResolver)),
            Arc::clone(&self.clock),
            Arc::<Metrics>::clone(&self.metrics),
            EngineSettings { max_in_flight: self.settings.probes.max_probes_in_flight.into() },
        );
        let (stop, mut acting) = (stop.clone(), self.channels.acting.subscribe());
        tasks.spawn("health", async move {
            // Only the leader probes. Its first knowledge is what the conditions say, in a fleet that is not stale.
            let elected = async { acting.wait_for(|acting| *acting).await.map(drop) };
            if let Some(elected) = stop.run_until_cancelled(elected).await {
                elected?;
                engine.run(stop).await;
            }
            Ok(())
        });
    }

    async fn start_tokens(&self, tasks: &mut Supervisor, stop: &CancellationToken) -> Arc<Tokens> {
        let tokens = Tokens::load(TokenSources {
            token: self.settings.access.discovery_token.clone(),
            file: self.settings.access.discovery_tokens_file.clone(),
        })
        .await;
        let stop = stop.clone();
        let watched = Tokens::watch(Arc::clone(&tokens), TOKENS_PERIOD, stop.clone());
        tasks.spawn("tokens", async move {
            watched.await;
            stop.cancelled().await;
            Ok(())
        });
        tokens
    }

    fn api(&self, pool: Arc<MemoryStore>, tokens: Arc<Tokens>) -> Api {
        Api {
            pool,
            fleet: self.channels.fleet.subscribe(),
            tokens,
            metrics: Arc::<Metrics>::clone(&self.metrics),
            clock: Arc::clone(&self.clock),
            leads: keeps_leases(&self.leadership, self.channels.acting.subscribe()),
        }
    }

    fn lifecycle_setup(&self) -> LifecycleSetup {
        let names = self.settings.namespaces();
        LifecycleSetup {
            client: self.cluster.client.clone(),
            namespaces: if names.is_empty() { Namespaces::All } else { Namespaces::Only(names) },
            providers: self.providers.host(),
            provider_changes: self.providers.changed(),
            verdicts: self.channels.verdicts.subscribe(),
            leases: self.channels.leases.subscribe(),
            fleet: self.channels.fleet.clone(),
            clock: Arc::clone(&self.clock),
            policy: self.settings.policy(),
            cluster: self.cluster.id.clone(),
            default_probe_url: self.settings.probes.probe_url.clone(),
            instance: self.settings.instance.clone(),
            leadership: self.leadership.clone(),
            acting: self.channels.acting.clone(),
            metrics: Arc::<Metrics>::clone(&self.metrics),
        }
    }
}

/// Runs until the end, and ends in order: what is under way, then provider calls, then the lead. The lead is
/// given up only if nothing was broken off: what was sent may still happen, and the next leader must not begin
/// before that is likely over. Whoever loses the lead to another process finishes nothing; a pause is no loss.
async fn end(mut leading: Leading, tasks: Supervisor, providers: &LoadedProviders) -> anyhow::Result<()> {
    let End { result, finished } = match leading.beside(tasks.run(DRAIN)).await {
        Ok(end) => end,
        Err(lost) => {
            if timeout(CUT_SHORT, providers.shutdown(Duration::ZERO)).await.is_err() {
                tracing::warn!("providers did not stop in {CUT_SHORT:?}");
            }
            return Err(lost.into());
        }
    };
    let ended = match leading.beside(providers.shutdown(PROVIDER_GRACE)).await {
        Ok(ended) => ended,
        Err(lost) => return result.and(Err(lost.into())),
    };
    if finished && ended {
        leading.release().await;
    } else {
        tracing::warn!(
            "work was broken off, so the lead is not given up: the next process leads when the Lease has run out"
        );
    }
    result
}
