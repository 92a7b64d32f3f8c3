//! The node of a cluster that has none: it says of each Pod at once that it runs, and writes down which Pods there
//! were, in the order in which the API server has it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::operator::Bench;

/// The tag that says whose machine it is.
const OWNER: &str = "proxy-operator-uid";
/// As whom the provider acts.
pub(crate) const PROVIDER: &str = "provider";

/// The Pods that were seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pods {
    /// Uids of all Pods that a Proxy had, by its uid, the first one first.
    pub(crate) of: BTreeMap<String, Vec<String>>,
    /// Those that are there, with the Proxy of each.
    pub(crate) there: BTreeMap<String, String>,
    /// Each time that a Proxy had two at once.
    pub(crate) doubles: Vec<String>,
}

impl Pods {
    /// How many were ever made.
    pub(crate) fn made(&self) -> usize {
        self.of.values().map(Vec::len).sum()
    }

    fn is_there(&mut self, uid: &str, owner: &str) {
        let all = self.of.entry(owner.to_owned()).or_default();
        if all.iter().any(|known| known == uid) {
            return;
        }
        if let Some(other) = all.iter().find(|other| self.there.contains_key(*other)) {
            self.doubles.push(format!("{uid} was made for {owner}, which has {other}"));
        }
        all.push(uid.to_owned());
        self.there.insert(uid.to_owned(), owner.to_owned());
    }
}

/// The node. Dropping it ends it.
pub(crate) struct Node {
    pub(crate) pods: watch::Receiver<Pods>,
    api: Api<Pod>,
    _tasks: JoinSet<()>,
}

impl Node {
    /// For the Pods in the namespace of the bench; gives the provider its rights there.
    pub(crate) async fn start(bench: &Bench) -> Self {
        allow(bench).await;
        let api = Api::<Pod>::namespaced(bench.client.clone(), &bench.namespace);
        let (seen, pods) = watch::channel(Pods::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(run(api.clone(), seen));
        Self { pods, api, _tasks: tasks }
    }

    /// Waits until it holds of the Pods that were seen.
    pub(crate) async fn until(&self, what: &str, within: Duration, holds: impl Fn(&Pods) -> bool) {
        let mut pods = self.pods.clone();
        let waited = tokio::time::timeout(within, pods.wait_for(holds)).await.is_ok();
        assert!(waited, "not in {within:?}: {what}: {:#?}", self.pods.borrow());
    }

    /// How many there are, by the API server's own word.
    pub(crate) async fn left(&self) -> usize {
        self.api.list(&ListParams::default()).await.unwrap().items.len()
    }
}

async fn run(api: Api<Pod>, seen: watch::Sender<Pods>) {
    let mut events = std::pin::pin!(watcher(api.clone(), watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                let (uid, owner) = names(&pod);
                seen.send_modify(|pods| pods.is_there(&uid, &owner));
                if pod.status.as_ref().is_none_or(|status| status.phase.as_deref() != Some("Running")) {
                    says_that_it_runs(&api, &pod).await;
                }
            }
            Ok(watcher::Event::Delete(pod)) => {
                let (uid, _) = names(&pod);
                seen.send_modify(|pods| drop(pods.there.remove(&uid)));
            }
            // What fails is begun again after a while.
            Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
        }
    }
}

/// Uids of the Pod and of its Proxy.
fn names(pod: &Pod) -> (String, String) {
    let owner = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OWNER)).cloned();
    (pod.metadata.uid.clone().unwrap_or_default(), owner.unwrap_or_default())
}

#[expect(clippy::disallowed_methods, reason = "the status of a Pod is its kubelet's, which is played here")]
async fn says_that_it_runs(api: &Api<Pod>, pod: &Pod) {
    let spec = pod.spec.as_ref().unwrap();
    let container = |name: &str| {
        json!({
            "name": name, "image": "squid", "imageID": "squid", "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": pod.metadata.creation_timestamp}}
        })
    };
    let containers: Vec<Value> = spec.containers.iter().map(|it| container(&it.name)).collect();
    let status = json!({
        "phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "containerStatuses": containers, "conditions": [{"type": "Ready", "status": "True"}]
    });
    let patch = Patch::Merge(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}));
    let name = pod.metadata.name.as_deref().unwrap();
    match api.patch_status(name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        // It is gone, or another one has its name.
        Err(kube::Error::Api(said)) if matches!(said.code, 404 | 409 | 422) => {
            assert!(said.code != 422 || said.message.contains("uid"), "{said:?}");
        }
        Err(error) => panic!("Pod {name}: {error}"),
    }
}

/// The rights of `deploy/base`, in the namespace of the bench; and whom the Pods run as, which a controller would make
/// that is not there.
async fn allow(bench: &Bench) {
    for name in ["default", PROVIDER] {
        make::<ServiceAccount>(bench, json!({"metadata": {"name": name}})).await;
    }
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]);
    make::<Role>(bench, json!({"metadata": {"name": PROVIDER}, "rules": rules})).await;
    make::<RoleBinding>(
        bench,
        json!({
            "metadata": {"name": PROVIDER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": PROVIDER},
            "subjects": [{"kind": "ServiceAccount", "name": PROVIDER, "namespace": bench.namespace}]
        }),
    )
    .await;
}

async fn make<K>(bench: &Bench, object: Value)
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    let api = Api::<K>::namespaced(bench.client.clone(), &bench.namespace);
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[test]
fn a_second_pod_of_a_proxy_is_a_double_only_while_the_first_is_there() {
    let mut pods = Pods::default();
    pods.is_there("1", "a");
    pods.is_there("1", "a");
    pods.is_there("2", "b");
    assert_eq!((pods.made(), pods.doubles.len()), (2, 0));
    pods.there.remove("2");
    pods.is_there("3", "b");
    assert_eq!((pods.made(), pods.doubles.len()), (3, 0));
    pods.is_there("4", "a");
    assert_eq!((pods.made(), pods.doubles.len()), (4, 1));
}
