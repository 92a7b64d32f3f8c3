//! One small world per test case: a namespace of a real API server, a cloud, a providers config, and the
//! operator processes that come and go in it.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::gc::{self, View};
use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::lifecycle::Policy;
use egress_proxies_core::provider::Replacement;
use egress_proxies_operator::clock::SystemClock;
use egress_proxies_operator::gc::{GcSetup, ProxyApi};
use egress_proxies_operator::kubernetes_client;
use egress_proxies_operator::leadership::Leadership;
use egress_proxies_operator::lifecycle::{self, LifecycleSetup};
use kube::{Client, Config};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::books::Books;
use crate::clients::Clients;
use crate::cloud::Cloud;
use crate::collected::Collected;
use crate::gate::{Fates, Process};
use crate::provider::{Configured, Shelf};
use crate::support::api_server::ApiServer;
use crate::wire::WireLayer;
use crate::wiring::{Wiring, judge};

/// How to reach the API server; shared by all worlds of a test.
#[derive(Clone)]
pub(crate) struct Access {
    server: &'static ApiServer,
    pub(crate) client: Client,
    config: Config,
}

impl Access {
    /// None, with a line that says so, where there is no API server to be had.
    pub(crate) async fn open() -> Option<Self> {
        let server = ApiServer::shared().await?;
        Some(Self { server, client: server.client(), config: server.config() })
    }
}

/// A world.
pub(crate) struct World {
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) fates: Arc<Fates>,
    pub(crate) clients: Clients,
    pub(crate) books: Books,
    pub(crate) access: Access,
    pub(crate) namespace: String,
}

impl World {
    pub(crate) async fn new(access: &Access, purpose: &str, fates: Arc<Fates>) -> Arc<Self> {
        Self::with(access, purpose, fates, Replacement::default()).await
    }

    /// One whose machines are replaced so.
    pub(crate) async fn with(
        access: &Access,
        purpose: &str,
        fates: Arc<Fates>,
        replacement: Replacement,
    ) -> Arc<Self> {
        let namespace = access.server.namespace(&access.client, purpose).await;
        let (cloud, shelf) = (Cloud::new(), Shelf::new(replacement));
        let (clients, books) = (Clients::new(), Books::default());
        Arc::new(Self { cloud, shelf, fates, clients, books, access: access.clone(), namespace })
    }

    /// Starts an operator process.
    pub(crate) fn start(&self) -> Operator {
        let process = Process::new(Arc::clone(&self.fates));
        let (client, providers) = self.ways_of(&process);
        let Wiring { setup, fleet, verdicts } =
            Wiring::new(client, &self.namespace, Arc::new(providers), self.shelf.changes());
        let (asked, paused) = (Arc::clone(&self.fates), Arc::clone(&self.fates));
        let (resume, resumed) = watch::channel(0);
        let may_act = Arc::new(move || asked.may_act());
        let leadership = Leadership { may_act, resumed, ..Leadership::alone() };
        // Two are a fleet that is looked at by lists.
        let policy = Policy { list_from: 2, ..setup.policy };
        let setup = LifecycleSetup { leases: self.clients.counts(), leadership, policy, ..setup };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { paused.end_pauses(&resume).await });
        let run = lifecycle::run(setup, CancellationToken::new());
        tasks.spawn(async move { run.await.unwrap() });
        tasks.spawn(judge(fleet, verdicts, |_| false));
        Operator { process, tasks }
    }

    /// To the API server and to the cloud, through the gate of a process.
    fn ways_of(&self, process: &Arc<Process>) -> (Client, Configured) {
        let layer = WireLayer(Arc::clone(process));
        let config = self.access.config.clone();
        let client = kubernetes_client::builder(config).unwrap().with_layer(&layer).build();
        let (shelf, cloud) = (Arc::clone(&self.shelf), Arc::clone(&self.cloud));
        (client, Configured { shelf, cloud, process: Arc::clone(process) })
    }

    /// Starts one that collects garbage as well, as often as it may.
    pub(crate) fn start_collecting(&self, collected: &Arc<Collected>) -> Operator {
        let mut operator = self.start();
        let (client, providers) = self.ways_of(&operator.process);
        let view = View::Namespaces([self.namespace.clone()].into());
        let asked = Arc::clone(&self.fates);
        let setup = GcSetup {
            proxies: Arc::new(ProxyApi::new(client, view.clone())),
            view,
            providers: Arc::new(providers),
            names: Arc::new(|| vec![ProviderName::parse("fake").unwrap()]),
            cluster: "test-cluster".to_owned(),
            policy: gc::Policy { min_age: Duration::ZERO, suspect_percent: 100, ..gc::Policy::default() },
            interval: Duration::from_millis(300),
            dry_run: false,
            leadership: Leadership { may_act: Arc::new(move || asked.may_act()), ..Leadership::alone() },
            clock: SystemClock::start(),
            metrics: Arc::<Collected>::clone(collected),
        };
        let collection = egress_proxies_operator::gc::run(setup, CancellationToken::new());
        operator.tasks.spawn(async move { collection.await.unwrap() });
        operator
    }

    /// Runs an operator, and a new one whenever it ended, for ever.
    pub(crate) async fn keep_running(&self) {
        loop {
            self.start().ended().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Why it must not go on: a Proxy had two living machines, or something was begun in a pause.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (doubles, begun) = (self.cloud.doubles(), self.fates.begun_in_pause());
        if !doubles.is_empty() {
            return Err(format!("two machines: {doubles:?}"));
        }
        if begun.is_empty() { Ok(()) } else { Err(format!("begun in a pause: {begun:?}")) }
    }
}

/// A running process. Dropping it is a `kill -9`.
pub(crate) struct Operator {
    process: Arc<Process>,
    // Ends its tasks when dropped.
    tasks: JoinSet<()>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.process.end();
    }
}

impl Operator {
    /// Ends it at a moment at which none of its writes is under way.
    pub(crate) async fn end_between_writes(self) {
        self.process.ends_between_writes().await;
    }

    /// Resolves when the process has ended at one of its effects, and nothing of it runs any more.
    pub(crate) async fn ended(mut self) {
        self.has_ended().await;
        self.end().await;
    }

    /// Resolves when the process has ended at one of its effects.
    pub(crate) async fn has_ended(&mut self) {
        tokio::select! {
            () = self.process.ended() => {}
            ended = self.tasks.join_next() => panic!("the operator ended by itself: {ended:?}"),
        }
    }

    /// Ends it, whatever it does.
    pub(crate) async fn end(mut self) {
        self.process.end();
        self.tasks.shutdown().await;
    }
}
