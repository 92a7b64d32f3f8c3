//! An API server with real state, as far as one namespace of pods and secrets goes: names are unique, uids
//! are new for each object, deletes take a moment, selectors select.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use egress_proxies_wasm::gate::kubernetes::{
    KubernetesTransport, KubernetesTransportFactory, SendLimits, Sending,
};
use http::{Method, Request, Response};
use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Cluster(Mutex<State>);

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Value>,
    secrets: BTreeMap<String, Value>,
    made: u32,
    requests: Vec<String>,
    identity: Option<(String, String)>,
}

/// Gives out one cluster, and remembers for whom.
pub(crate) struct Factory(pub Arc<Cluster>);

impl KubernetesTransportFactory for Factory {
    fn for_service_account(
        &self,
        namespace: &str,
        account: &str,
    ) -> Result<Arc<dyn KubernetesTransport>, String> {
        self.0.0.lock().unwrap().identity = Some((namespace.into(), account.into()));
        Ok(Arc::<Cluster>::clone(&self.0))
    }
}

impl Cluster {
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().requests.clone()
    }

    pub(crate) fn identity(&self) -> Option<(String, String)> {
        self.0.lock().unwrap().identity.clone()
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap().pods.get(name).cloned()
    }

    pub(crate) fn secret(&self, name: &str) -> Option<Value> {
        self.0.lock().unwrap().secrets.get(name).cloned()
    }

    /// The kubelet's part: the pod runs and has an address.
    pub(crate) fn run(&self, name: &str, ip: &str) {
        let mut state = self.0.lock().unwrap();
        let pod = state.pods.get_mut(name).unwrap();
        assert!(pod.pointer("/spec/schedulingGates").is_none_or(Value::is_null), "still gated");
        pod["status"] = json!({
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "squid", "ready": true, "started": true, "restartCount": 0,
                "image": "i", "imageID": "i", "state": {"running": {}}}],
        });
    }

    /// The kubelet's part of a delete, and the garbage collector's.
    pub(crate) fn finish_deletes(&self) {
        let mut state = self.0.lock().unwrap();
        state.pods.retain(|_, pod| pod.pointer("/metadata/deletionTimestamp").is_none());
        let pods: Vec<String> = state.pods.keys().cloned().collect();
        state.secrets.retain(|name, _| pods.contains(name));
    }
}

impl KubernetesTransport for Cluster {
    fn send(&self, request: Request<Bytes>, _: SendLimits) -> Sending<'_> {
        let answer = self.0.lock().unwrap().answer(&request);
        Box::pin(async move { Ok(answer) })
    }
}

fn reply(status: u16, body: &Value) -> Response<Bytes> {
    let body = Bytes::from(body.to_string());
    Response::builder().status(status).header("content-type", "application/json").body(body).unwrap()
}

fn status(code: u16, reason: &str) -> Response<Bytes> {
    reply(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code}),
    )
}

/// As the API server says it: which object is missing, and not its namespace.
fn absent(pod: &str) -> Response<Bytes> {
    let what = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("pods \"{pod}\" not found"), "details": {"name": pod, "kind": "pods"}});
    reply(404, &what)
}

impl State {
    fn answer(&mut self, request: &Request<Bytes>) -> Response<Bytes> {
        self.requests.push(format!("{} {}", request.method(), request.uri()));
        let body: Value = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        match (request.method(), path.as_slice()) {
            (&Method::POST, ["api", "v1", "namespaces", _, kind]) => self.create(kind, body),
            (&Method::GET, ["api", "v1", "namespaces", _, "pods"]) => {
                self.list(request.uri().query().unwrap_or(""))
            }
            (&Method::GET, ["api", "v1", "namespaces", _, "pods", name]) => match self.pods.get(*name) {
                Some(pod) => reply(200, pod),
                None => absent(name),
            },
            (&Method::PATCH, ["api", "v1", "namespaces", _, "pods", name]) => self.patch(name, &body),
            (&Method::DELETE, ["api", "v1", "namespaces", _, "pods", name]) => self.delete(name, &body),
            other => panic!("the fake does not know {other:?}"),
        }
    }

    fn create(&mut self, kind: &str, mut object: Value) -> Response<Bytes> {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.made += 1;
        let uid = format!("00000000-0000-4000-8000-{:012}", self.made);
        let objects = if kind == "pods" { &mut self.pods } else { &mut self.secrets };
        if objects.contains_key(&name) {
            return status(409, "AlreadyExists");
        }
        object["metadata"]["uid"] = json!(uid);
        object["metadata"]["creationTimestamp"] = json!("2026-01-02T03:04:05Z");
        object["metadata"]["resourceVersion"] = json!(self.made.to_string());
        if kind == "pods" {
            object["status"] = json!({"phase": "Pending"});
        }
        objects.insert(name, object.clone());
        reply(201, &object)
    }

    fn list(&self, query: &str) -> Response<Bytes> {
        let decode = |text: &str| text.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
        let wanted = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("labelSelector="))
            .map(decode)
            .unwrap_or_default();
        let items: Vec<&Value> = self
            .pods
            .values()
            .filter(|pod| {
                wanted.split(',').filter_map(|term| term.split_once('=')).all(|(key, value)| {
                    pod["metadata"]["labels"].get(key).and_then(Value::as_str) == Some(value)
                })
            })
            .collect();
        reply(
            200,
            &json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
        )
    }

    fn patch(&mut self, name: &str, patch: &Value) -> Response<Bytes> {
        let Some(pod) = self.pods.get_mut(name) else { return absent(name) };
        if patch.pointer("/metadata/uid").is_some_and(|uid| *uid != pod["metadata"]["uid"]) {
            return status(409, "Conflict");
        }
        merge(pod, patch);
        reply(200, pod)
    }

    fn delete(&mut self, name: &str, options: &Value) -> Response<Bytes> {
        let Some(pod) = self.pods.get_mut(name) else { return absent(name) };
        if options.pointer("/preconditions/uid").is_some_and(|uid| *uid != pod["metadata"]["uid"]) {
            return status(409, "Conflict");
        }
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T04:04:05Z");
        reply(200, pod)
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, change) in changes {
        if change.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key.as_str()], change);
        }
    }
}
