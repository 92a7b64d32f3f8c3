//! Scheduler and kubelet of one namespace, played: pods run when the test says so, report what it says, and go when
//! it confirms that.

use std::net::Ipv4Addr;
use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);
/// Where all pods run.
pub(super) const NODE: &str = "node-1";

/// The namespace and what is played in it.
pub(super) struct Node {
    pub(super) namespace: String,
    pods: Api<Pod>,
}

impl Node {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Self { pods: Api::namespaced(client, &namespace), namespace }
    }

    /// All pods that there are.
    pub(super) async fn pods(&self) -> Vec<Pod> {
        self.pods.list(&ListParams::default()).await.unwrap().items
    }

    /// The pod of a Proxy, if it is there.
    pub(super) async fn pod(&self, proxy: &Proxy) -> Option<Pod> {
        self.pods.get_opt(&format!("px-{}", proxy.metadata.uid.as_deref().unwrap())).await.unwrap()
    }

    /// Waits for a pod of the Proxy that is as it should be.
    pub(super) async fn until(&self, proxy: &Proxy, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pod = self.pod(proxy).await;
            if let Some(found) = pod.clone().filter(&holds) {
                return found;
            }
            assert!(tokio::time::Instant::now() < deadline, "no pod is {what} in time: {pod:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The scheduler gives the Proxy's pod a node, and the kubelet starts it.
    pub(super) async fn runs(&self, proxy: &Proxy, address: Ipv4Addr) -> Pod {
        let pod = self.until(proxy, "to be scheduled", |pod| node_of(pod).is_none()).await;
        let name = pod.name_any();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}
        });
        let parameters = PostParams::default();
        let bound = self.pods.create_subresource::<_, Status>("binding", &name, &parameters, &binding);
        bound.await.unwrap();
        let now = "2026-01-01T00:00:00Z";
        let started = json!({
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
                {"type": "Ready", "status": "True", "lastTransitionTime": now}
            ],
            "containerStatuses": [container(true, &json!({"running": {"startedAt": now}}))]
        });
        self.reports(&pod, started).await
    }

    /// The kubelet, or who speaks for it, writes this into the pod's status.
    #[expect(clippy::disallowed_methods, reason = "a kubelet writes the status of a pod, not of a Proxy")]
    pub(super) async fn reports(&self, pod: &Pod, status: Value) -> Pod {
        let patch = Patch::Merge(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        let (name, parameters) = (pod.name_any(), PatchParams::default());
        let written = self.pods.patch_subresource("status", &name, &parameters, &patch);
        written.await.unwrap()
    }

    /// Somebody deletes the pod: a person, or the controller that clears lost nodes.
    pub(super) async fn deletes(&self, pod: &Pod) {
        self.deletes_within(pod, None).await;
    }

    /// The same with another time to end, in seconds, than the pod's own.
    pub(super) async fn deletes_within(&self, pod: &Pod, grace_period_seconds: Option<u32>) {
        let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
        let parameters = DeleteParams { grace_period_seconds, preconditions, ..DeleteParams::default() };
        drop(self.pods.delete(&pod.name_any(), &parameters).await.unwrap());
    }

    /// The kubelet says that nothing of the pod runs any more.
    pub(super) async fn confirms(&self, pod: &Pod) {
        self.deletes_within(pod, Some(0)).await;
    }

    /// Somebody holds the object of the pod back, or lets it go.
    pub(super) async fn holds(&self, pod: &Pod, is_held: bool) {
        let finalizers = if is_held { json!(["example.com/hold"]) } else { Value::Null };
        let patch = Patch::Merge(json!({"metadata": {"uid": pod.uid(), "finalizers": finalizers}}));
        self.pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

/// What a kubelet says of the one container.
pub(super) fn container(is_ready: bool, state: &Value) -> Value {
    json!({
        "name": "squid", "image": "registry.invalid/squid:1", "imageID": "", "ready": is_ready, "restartCount": 0,
        "state": state
    })
}

/// Where a pod was scheduled to.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// True if somebody deleted it.
pub(super) fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
