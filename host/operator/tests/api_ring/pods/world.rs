//! A provider host with the built component, an operator in the test's own process that uses it, and namespaces in
//! which it may make pods.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use egress_proxies_core::lifecycle::Policy;
use egress_proxies_operator::app::COMPILE_COMMAND;
use egress_proxies_operator::kubernetes_route::KubernetesRoute;
use egress_proxies_wasm::config::ProvidersConfig;
use egress_proxies_wasm::{CompileCommand, HostConfig, ProviderHost};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::node::Node;
use crate::operator::{Bench, Crash, Operator, quick};
use crate::support::api_server::ApiServer;

const RIGHTS: &str = include_str!("../../../../../deploy/base/2-rbac.yaml");
/// Who makes the pods, there.
const PROVIDER: &str = "egress-proxies-provider";
/// They share a folder for what they compile, which is for one host of a process at a time.
static LOADING: Mutex<()> = Mutex::const_new(());
static SKIPPED: Once = Once::new();

/// An API server and the component.
pub(super) struct World {
    pub(super) bench: Bench,
    component: PathBuf,
}

/// A running operator and its provider host.
pub(super) struct Run {
    pub(super) operator: Operator,
    host: Arc<ProviderHost>,
}

impl Run {
    pub(super) async fn stop(self) {
        self.operator.stop().await;
        assert!(self.host.shutdown(Duration::from_secs(10)).await, "a call did not end");
    }
}

impl World {
    /// None, with a line that says so, where there is no API server or no component to be had.
    pub(super) async fn open(purpose: &str) -> Option<Self> {
        let component = component()?;
        Some(Self { bench: Bench::open(purpose).await?, component })
    }

    /// A namespace in which a provider may make pods, with the rights of `deploy/base`.
    pub(super) async fn node(&self, purpose: &str) -> Node {
        let server = ApiServer::shared().await.unwrap();
        let namespace = server.namespace(&self.bench.client, purpose).await;
        // What a controller makes for each namespace.
        let default = json!({"metadata": {"name": "default"}});
        create::<ServiceAccount>(&self.bench.client, &namespace, default).await;
        for document in RIGHTS.split("\n---\n") {
            let mut object: Value = serde_saphyr::from_str(document).unwrap();
            if object["metadata"]["name"] != PROVIDER {
                continue;
            }
            object["metadata"]["namespace"] = json!(namespace);
            match object["kind"].as_str().unwrap() {
                "ServiceAccount" => create::<ServiceAccount>(&self.bench.client, &namespace, object).await,
                "Role" => create::<Role>(&self.bench.client, &namespace, object).await,
                "RoleBinding" => {
                    object["subjects"][0]["namespace"] = json!(namespace);
                    create::<RoleBinding>(&self.bench.client, &namespace, object).await;
                }
                other => panic!("a {other} of that name"),
            }
        }
        self.until_granted(&namespace).await;
        Node::new(self.bench.client.clone(), namespace)
    }

    /// The API server takes rights up a moment after they were written.
    async fn until_granted(&self, namespace: &str) {
        let mut config = self.bench.config.clone();
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{PROVIDER}"));
        let pods = Api::<Pod>::namespaced(Client::try_from(config).unwrap(), namespace);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while let Err(error) = pods.list(&ListParams::default()).await {
            assert!(tokio::time::Instant::now() < deadline, "no rights in {namespace}: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts the operator with a providers config of these: name, where it makes pods, further lines.
    pub(super) async fn start(&self, providers: &[(&str, &Node, &str)]) -> Run {
        self.start_with(providers, quick()).await
    }

    /// With other waits.
    pub(super) async fn start_with(&self, providers: &[(&str, &Node, &str)], policy: Policy) -> Run {
        let mut text =
            "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n".to_owned();
        for (name, node, lines) in providers {
            write!(
                text,
                "  {name}:\n    source: {{ file: {} }}\n    config: {{ image: \"registry.invalid/squid:1\" }}\n    \
                 kubernetes: {{ namespace: {}, serviceAccount: {PROVIDER}, resources: [pods, secrets] }}\n    \
                 addressCidrs: [10.0.0.0/8]\n    {lines}\n",
                self.component.display(),
                node.namespace,
            )
            .unwrap();
        }
        // Removed with the API server.
        let folder = self.bench.kubeconfig.parent().unwrap();
        let config = ProvidersConfig::parse(&text, &folder.join("providers.yaml")).unwrap();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_egress-proxies-operator"));
        let command = CompileCommand { program, args: vec![COMPILE_COMMAND.into()] };
        let mut settings = HostConfig::new(folder.join("compiled"), command);
        settings.kubernetes = Some(Arc::new(KubernetesRoute::new(self.bench.config.clone())));
        let host = {
            let _turn = LOADING.lock().await;
            let host = ProviderHost::start(settings, config).unwrap();
            tokio::time::timeout(Duration::from_mins(5), host.loaded()).await.expect("it is loaded in time");
            host
        };
        let changes = host.changed();
        let providers = Arc::<ProviderHost>::clone(&host);
        let operator = self.bench.operator_of(providers, changes, policy, Crash::never());
        Run { operator, host }
    }
}

async fn create<T>(client: &Client, namespace: &str, object: Value)
where
    T: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    T: Clone + serde::Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object: T = serde_json::from_value(object).unwrap();
    Api::<T>::namespaced(client.clone(), namespace).create(&PostParams::default(), &object).await.unwrap();
}

/// The built component, or a line that says what is left out.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what has been built")]
fn component() -> Option<PathBuf> {
    let folder = std::env::var_os("EPO_GUESTS_DIR").filter(|text| !text.is_empty());
    let path = folder.map(|folder| Path::new(&folder).join("kubernetes.wasm"));
    let found = path.filter(|path| path.exists());
    if found.is_none() {
        let wanted = std::env::var("EPO_GUESTS").unwrap_or_default();
        assert!(!wanted.split(',').any(|name| name == "kubernetes"), "EPO_GUESTS_DIR has no kubernetes.wasm");
        SKIPPED.call_once(say_skipped);
    }
    found
}

/// Not with `eprintln!`: what that says is shown only of tests that fail.
fn say_skipped() {
    writeln!(
        std::io::stderr(),
        "SKIPPED: the kubernetes provider on a real API server, whose tests pass without having run. Run `make test`, or set EPO_GUESTS_DIR to a folder with kubernetes.wasm."
    )
    .expect("standard error takes a line");
}

/// For so long no status of these changes.
pub(super) async fn writes_nothing_for(bench: &Bench, names: &[&str], time: Duration) {
    let version = async |name: &str| bench.get(name).await.unwrap().metadata.resource_version;
    let mut before = Vec::new();
    for name in names {
        before.push(version(name).await);
    }
    tokio::time::sleep(time).await;
    for (name, before) in names.iter().zip(before) {
        let proxy = bench.get(name).await.unwrap();
        assert_eq!(proxy.metadata.resource_version, before, "{name}: {:#?}", proxy.status);
    }
}
