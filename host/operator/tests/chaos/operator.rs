//! One small world per test case: a namespace of a real API server, a cloud, a providers config, and the
//! operator processes that come and go in it.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use egress_proxies_operator::kubernetes_client;
use egress_proxies_operator::lifecycle;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cloud::Cloud;
use crate::gate::{Fates, Process};
use crate::provider::{Configured, Shelf};
use crate::support::api_server::ApiServer;
use crate::wire::WireLayer;
use crate::wiring::{Wiring, judge};

/// How to reach the API server; shared by all worlds of a test.
#[derive(Clone)]
pub(crate) struct Access {
    server: &'static ApiServer,
    client: Client,
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
    access: Access,
    namespace: String,
}

impl World {
    pub(crate) async fn new(access: &Access, purpose: &str, fates: Arc<Fates>) -> Arc<Self> {
        let namespace = access.server.namespace(&access.client, purpose).await;
        let (cloud, shelf) = (Cloud::new(), Shelf::new());
        Arc::new(Self { cloud, shelf, fates, access: access.clone(), namespace })
    }

    pub(crate) fn proxies(&self) -> Api<Proxy> {
        Api::namespaced(self.access.client.clone(), &self.namespace)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.access.client.clone(), &self.namespace)
    }

    /// Creates a Proxy; its uid, or the reason against it.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<String, kube::Error> {
        let proxy: Proxy = serde_json::from_value(json!({
            "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
            "metadata": {"name": name}, "spec": spec
        }))
        .unwrap();
        let proxies = self.proxies();
        let made: Proxy = insist(async || proxies.create(&PostParams::default(), &proxy).await).await?;
        Ok(made.metadata.uid.unwrap_or_default())
    }

    /// A merge patch by a user; an object that is not there is left so.
    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        let (proxies, patch) = (self.proxies(), Patch::Merge(patch));
        not_found_is_fine(insist(async || proxies.patch(name, &PatchParams::default(), &patch).await).await);
    }

    /// A delete by a user; an object that is not there is left so.
    ///
    /// Of the version that was read: kube-apiserver looks at the finalizers first and deletes then, whatever
    /// came in between, so that a plain delete may take away an object whose finalizer was just added. What
    /// is made for it then is an orphan, and for garbage collection, which does not run here.
    pub(crate) async fn delete(&self, name: &str) {
        let proxies = self.proxies();
        loop {
            let Some(proxy) = insist(async || proxies.get_opt(name).await).await.unwrap() else { return };
            let (resource_version, uid) = (proxy.metadata.resource_version, proxy.metadata.uid);
            let preconditions = Some(Preconditions { resource_version, uid });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            match insist(async || proxies.delete(name, &params).await).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {} // it changed meanwhile
                answer => return not_found_is_fine(answer),
            }
        }
    }

    /// Creates or changes the Secret `boot`; without the label the operator does not see it.
    pub(crate) async fn put_secret(&self, text: &str, visible: bool) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "boot", "labels": {"crawl.example.com/cloud-init": visible.to_string()}},
            "stringData": {"text": text}
        });
        let apply = PatchParams::apply("user").force();
        let (secrets, secret) = (self.secrets(), Patch::Apply(secret));
        insist(async || secrets.patch("boot", &apply, &secret).await).await.unwrap();
    }

    /// Another writer adds its finalizer to an object that is not being deleted, or takes it away; nobody
    /// else's is touched.
    pub(crate) async fn finalizer(&self, name: &str, theirs: &str, there: bool) {
        let proxies = self.proxies();
        loop {
            let Some(proxy) = insist(async || proxies.get_opt(name).await).await.unwrap() else { return };
            let mut all = proxy.metadata.finalizers.clone().unwrap_or_default();
            let before = all.len();
            all.retain(|finalizer| finalizer != theirs);
            if there && proxy.metadata.deletion_timestamp.is_none() {
                all.push(theirs.to_owned());
            }
            if all.len() == before {
                return;
            }
            let version = proxy.metadata.resource_version;
            let patch = json!({"metadata": {"finalizers": all, "resourceVersion": version}});
            let patch = Patch::Merge(patch);
            match insist(async || proxies.patch(name, &PatchParams::default(), &patch).await).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {} // it changed meanwhile
                answer => return not_found_is_fine(answer),
            }
        }
    }

    /// All Proxies as they are.
    pub(crate) async fn list(&self) -> Vec<Proxy> {
        let proxies = self.proxies();
        insist(async || proxies.list(&ListParams::default()).await).await.unwrap().items
    }

    /// The same for the message of a failure.
    pub(crate) async fn state(&self) -> Vec<Value> {
        let all = self.list().await;
        let of = |proxy: &Proxy| json!({"metadata": &proxy.metadata, "status": &proxy.status});
        all.iter().map(of).collect()
    }

    /// Waits, for as long as it takes, until the object is as it should be.
    pub(crate) async fn until(&self, name: &str, holds: impl Fn(Option<&Proxy>) -> bool) -> Option<Proxy> {
        loop {
            match await_condition(self.proxies(), name, |object: Option<&Proxy>| holds(object)).await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
    }

    /// Starts an operator process.
    pub(crate) fn start(&self) -> Operator {
        let process = Process::new(Arc::clone(&self.fates));
        let layer = WireLayer(Arc::clone(&process));
        let config = self.access.config.clone();
        let client = kubernetes_client::builder(config).unwrap().with_layer(&layer).build();
        let providers = Configured {
            shelf: Arc::clone(&self.shelf),
            cloud: Arc::clone(&self.cloud),
            process: Arc::clone(&process),
        };
        let Wiring { setup, fleet, verdicts } =
            Wiring::new(client, &self.namespace, Arc::new(providers), self.shelf.changes());
        let mut tasks = JoinSet::new();
        let run = lifecycle::run(setup, CancellationToken::new());
        tasks.spawn(async move { run.await.unwrap() });
        tasks.spawn(judge(fleet, verdicts, |_| false));
        Operator { process, tasks }
    }

    /// Runs an operator, and a new one whenever it ended, for ever.
    pub(crate) async fn keep_running(&self) {
        loop {
            self.start().ended().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Why it must not go on: a Proxy had two living machines.
    pub(crate) fn check_doubles(&self) -> Result<(), String> {
        let doubles = self.cloud.doubles();
        if doubles.is_empty() { Ok(()) } else { Err(format!("two machines: {doubles:?}")) }
    }
}

/// Asks again while the API server says that it cannot now: the test's own requests are not under test, and
/// the machine may be busy.
async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T, kube::Error>) -> Result<T, kube::Error> {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        let answer = ask().await;
        let busy = match &answer {
            Err(kube::Error::Api(status)) => status.code >= 500 || status.code == 429,
            Err(_) => true,
            Ok(_) => false,
        };
        if !busy || tokio::time::Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn not_found_is_fine<T>(answer: Result<T, kube::Error>) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Ok(_) => {}
        Err(error) => panic!("a request of the test itself: {error}"),
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
    /// Resolves when the process has ended at one of its effects, and nothing of it runs any more.
    pub(crate) async fn ended(mut self) {
        tokio::select! {
            () = self.process.ended() => {}
            ended = self.tasks.join_next() => panic!("the operator ended by itself: {ended:?}"),
        }
        self.tasks.shutdown().await;
    }
}
