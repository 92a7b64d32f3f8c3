//! The lifecycle loop under test, on a real API server, with a cloud in memory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_proxies_core::crd::{ConditionType, Proxy};
use egress_proxies_core::facts::{Fleet, LeaseCounts};
use egress_proxies_core::lifecycle::Policy;
use egress_proxies_core::provider::{Providers, Replacement};
use egress_proxies_operator::kubernetes_client;
use egress_proxies_operator::lifecycle::{self, LifecycleMetrics, LifecycleSetup, Outcome, Write};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cloud::Cloud;
use crate::provider::{Configured, Shelf};
pub(crate) use crate::spy::Crash;
use crate::spy::{Spy, SpyLayer};
use crate::support::api_server::ApiServer;
use crate::wiring::{Wiring, judge};
pub(crate) use crate::wiring::{is_ready, quick};

const PATIENCE: Duration = Duration::from_mins(1);

/// A namespace of a real API server, a cloud, and how the provider for it was loaded.
pub(crate) struct Bench {
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) config: Config,
    /// The same for programs that read a file.
    pub(crate) kubeconfig: PathBuf,
}

impl Bench {
    /// None, with a line that says so, where there is no API server to be had.
    pub(crate) async fn open(purpose: &str) -> Option<Self> {
        Some(Self::on(ApiServer::shared().await?, purpose).await)
    }

    /// On this server.
    pub(crate) async fn on(server: &ApiServer, purpose: &str) -> Self {
        let client = server.client();
        let namespace = server.namespace(&client, purpose).await;
        let (config, kubeconfig) = (server.config(), server.kubeconfig());
        Self { namespace, client, cloud: Cloud::new(), shelf: Shelf::new(), config, kubeconfig }
    }

    /// The operators to come reach the API server at this address; the test itself goes on as before.
    pub(crate) fn through(mut self, address: SocketAddr) -> Self {
        self.config.cluster_url = format!("https://{address}").parse().unwrap();
        self
    }

    /// The provider's machines are replaced so.
    pub(crate) fn replacing(mut self, replacement: Replacement) -> Self {
        self.shelf = Shelf::replacing(replacement);
        self
    }

    pub(crate) fn proxies(&self) -> Api<Proxy> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Proxy {
        self.create_with(name, json!({}), spec).await
    }

    pub(crate) async fn create_with(&self, name: &str, metadata: Value, spec: Value) -> Proxy {
        let mut object = json!({
            "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": metadata, "spec": spec
        });
        object["metadata"]["name"] = json!(name);
        let proxy = serde_json::from_value(object).unwrap();
        self.proxies().create(&PostParams::default(), &proxy).await.unwrap()
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Proxy> {
        self.proxies().get_opt(name).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        merge(self.proxies(), name.to_owned(), patch).await;
    }

    pub(crate) async fn delete(&self, name: &str) {
        drop(self.proxies().delete(name, &DeleteParams::default()).await.unwrap());
    }

    pub(crate) async fn secret(&self, name: &str, labels: Value, data: Value) {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels}, "stringData": data
        }))
        .unwrap();
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    pub(crate) async fn delete_secret(&self, name: &str) {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        drop(api.delete(name, &DeleteParams::default()).await.unwrap());
    }

    pub(crate) async fn patch_secret(&self, name: &str, patch: Value) {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the object is as it should be; answers with it.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Proxy) -> bool) -> Proxy {
        match self.wait(name, |object| object.is_some_and(&holds)).await {
            Some(found) => found.unwrap(),
            None => {
                panic!("not {what} in time: {:#?}", self.get(name).await.map(|it| (it.metadata, it.status)))
            }
        }
    }

    /// None after a while. An API server that is away is waited for.
    async fn wait(&self, name: &str, holds: impl Fn(Option<&Proxy>) -> bool) -> Option<Option<Proxy>> {
        let waited = async {
            loop {
                match await_condition(self.proxies(), name, |object: Option<&Proxy>| holds(object)).await {
                    Ok(found) => return found,
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, waited).await.ok()
    }

    /// Waits until this is the last that was told of it; answers with all that was.
    pub(crate) async fn until_told(&self, name: &str, last: &str) -> Vec<(String, String, String)> {
        let began = tokio::time::Instant::now();
        loop {
            let told = self.told(name).await;
            if told.last().is_some_and(|(_, reason, _)| reason == last) {
                return told;
            }
            assert!(began.elapsed() < Duration::from_mins(1), "{name} does not say {last}: {told:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What `kubectl describe` shows of it: type, reason and note of each Event, the first one first.
    pub(crate) async fn told(&self, name: &str) -> Vec<(String, String, String)> {
        let events = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let mut told = events.list(&ListParams::default()).await.unwrap().items;
        told.retain(|event| event.regarding.as_ref().and_then(|of| of.name.as_deref()) == Some(name));
        told.sort_by_key(|event| event.event_time.clone().map(|at| at.0));
        let words =
            |event: Event| [event.type_, event.reason, event.note].map(Option::unwrap_or_default).into();
        told.into_iter().map(words).collect()
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Proxy {
        self.until(name, "Ready", is_ready).await
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let gone = self.wait(name, |object| object.is_none()).await.is_some();
        assert!(gone, "not gone in time: {:#?}", self.get(name).await.map(|it| (it.metadata, it.status)));
    }

    /// Starts the operator with short waits.
    pub(crate) fn operator(&self) -> Operator {
        self.operator_with(quick(), Crash::never())
    }

    pub(crate) fn operator_with(&self, policy: Policy, crash: Arc<Crash>) -> Operator {
        let (shelf, cloud) = (Arc::clone(&self.shelf), Arc::clone(&self.cloud));
        let providers = Arc::new(Configured::new(shelf, cloud, Arc::clone(&crash)));
        self.operator_of(providers, self.shelf.changes(), policy, crash)
    }

    /// Starts the operator with another providers config.
    pub(crate) fn operator_of(
        &self,
        providers: Arc<dyn Providers>,
        changes: watch::Receiver<u64>,
        policy: Policy,
        crash: Arc<Crash>,
    ) -> Operator {
        let spy = Spy::new(crash);
        let layer = SpyLayer(Arc::clone(&spy));
        let client = kubernetes_client::builder(self.config.clone()).unwrap().with_layer(&layer).build();
        let Wiring { setup, fleet, verdicts } = Wiring::new(client, &self.namespace, providers, changes);
        let metrics = Arc::new(Counted::default());
        let (leases, counted) = watch::channel(LeaseCounts::default());
        let setup =
            LifecycleSetup { policy, leases: counted, metrics: Arc::<Counted>::clone(&metrics), ..setup };
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let run = lifecycle::run(setup, cancel.clone());
        tasks.spawn(async move { run.await.unwrap() });
        let cloud = Arc::clone(&self.cloud);
        tasks.spawn(judge(fleet.clone(), verdicts, move |machine| cloud.is_sick(machine)));
        Operator { spy, metrics, fleet, leases, cancel, tasks }
    }
}

/// A merge patch by somebody else.
pub(crate) async fn merge(api: Api<Proxy>, name: String, patch: Value) {
    api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// A running loop. Dropping it is a crash.
pub(crate) struct Operator {
    pub(crate) spy: Arc<Spy>,
    pub(crate) metrics: Arc<Counted>,
    pub(crate) fleet: watch::Receiver<Fleet>,
    /// What the pool would say.
    pub(crate) leases: watch::Sender<LeaseCounts>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl Operator {
    /// Ends it in order.
    pub(crate) async fn stop(mut self) {
        self.cancel.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

/// Counts reconciles, and knows what the queue was like.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    reconciles: AtomicUsize,
    longest_wait: Mutex<Duration>,
}

impl Counted {
    pub(crate) fn reconciles(&self) -> usize {
        self.reconciles.load(Ordering::SeqCst)
    }

    pub(crate) fn longest_wait(&self) -> Duration {
        *self.longest_wait.lock().unwrap()
    }
}

impl LifecycleMetrics for Counted {
    fn reconciled(&self, _outcome: Outcome, _took: Duration) {
        self.reconciles.fetch_add(1, Ordering::SeqCst);
    }
    fn wrote(&self, _what: Write, _outcome: Outcome) {}
    fn queue(&self, _planned: usize, _running: usize, longest_wait: Duration) {
        *self.longest_wait.lock().unwrap() = longest_wait;
    }
}

pub(crate) fn managed() -> Value {
    json!({"mode": "Managed", "provider": "fake"})
}

/// True if that is the reason of the Provisioned condition.
pub(crate) fn has_reason(proxy: &Proxy, wanted: &str) -> bool {
    provisioned(proxy).is_some_and(|(reason, _)| reason == wanted)
}

/// Reason and message of the Provisioned condition.
pub(crate) fn provisioned(proxy: &Proxy) -> Option<(String, String)> {
    let conditions = &proxy.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|it| it.type_ == ConditionType::Provisioned.as_str())?;
    Some((condition.reason.clone(), condition.message.clone()))
}
