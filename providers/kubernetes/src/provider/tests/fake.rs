//! An API server that keeps real state: pods and secrets of one namespace, with uids, graceful deletion,
//! ownership by uid, label selection and pages. It can lose a request or an answer, and it refuses
//! whatever this provider has no business with.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use egress_proxies_provider_sdk::model::{CallContext, Level, Pair};
use egress_proxies_provider_sdk::{Call, Context, Host, Method, Request, Response, SendError};
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "proxies";

/// What happens to the next request that fits.
pub(super) enum Fault {
    /// Not carried out, no answer.
    LoseRequest,
    /// Carried out, no answer.
    LoseAnswer,
    /// Not carried out, this answer.
    Answer(u16, Value),
    /// Somebody deletes the pod and makes another one of its name just before; then carried out.
    Replace(&'static str),
    /// The operator does not let it out.
    Deny,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) pods: BTreeMap<String, Value>,
    pub(super) secrets: BTreeMap<String, Value>,
    made: u32,
}

pub(super) struct Fake {
    pub(super) state: RefCell<State>,
    faults: RefCell<VecDeque<(Method, &'static str, Fault)>>,
    pub(super) requests: RefCell<Vec<String>>,
    now: Cell<Timestamp>,
    left: Cell<Duration>,
    /// Whether the garbage collector keeps up.
    pub(super) collects: Cell<bool>,
    pub(super) context: Context,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::with_config("{}")
    }

    pub(super) fn with_config(config: &str) -> Self {
        Self {
            state: RefCell::default(),
            faults: RefCell::default(),
            requests: RefCell::default(),
            now: Cell::new("2026-11-29T12:00:00Z".parse().unwrap()),
            left: Cell::new(Duration::from_mins(1)),
            collects: Cell::new(true),
            context: Context::new(CallContext {
                provider: "kubernetes".into(),
                config: config.into(),
                timeout_ms: 60_000,
                request_id: "r".into(),
                extra: vec![Pair { key: "kubernetes-namespace".into(), value: NAMESPACE.into() }],
            }),
        }
    }

    pub(super) fn call(&self) -> Call<'_> {
        self.left.set(Duration::from_mins(1));
        Call { context: &self.context, host: self }
    }

    pub(super) fn next(&self, method: Method, path: &'static str, fault: Fault) {
        self.faults.borrow_mut().push_back((method, path, fault));
    }

    pub(super) fn pass(&self, seconds: i64) {
        self.now.set(self.now.get() + seconds.seconds());
    }

    /// Change a pod as the kubelet or a person would.
    pub(super) fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        edit(self.state.borrow_mut().pods.get_mut(name).unwrap());
    }

    /// The kubelet: scheduled, started, ready.
    pub(super) fn start(&self, name: &str, ip: &str) {
        self.edit(name, |pod| {
            assert!(pod["spec"]["schedulingGates"].is_null(), "a gated pod does not start");
            pod["spec"]["nodeName"] = json!("node-1");
            pod["status"] = json!({
                "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"ready": true, "restartCount": 0, "state": {"running": {}}}],
            });
        });
    }

    /// The kubelet: the containers have ended, the pod goes.
    pub(super) fn finish_deletion(&self, name: &str) {
        let gone = self.state.borrow_mut().pods.remove(name).unwrap();
        assert!(!gone["metadata"]["deletionTimestamp"].is_null());
    }

    pub(super) fn uid(&self, name: &str) -> String {
        self.state.borrow().pods[name]["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Secrets whose owner is gone go.
    pub(super) fn collect_garbage(&self) {
        let mut state = self.state.borrow_mut();
        let uids: Vec<Value> = state.pods.values().map(|pod| pod["metadata"]["uid"].clone()).collect();
        state.secrets.retain(|_, secret| uids.contains(&secret["metadata"]["ownerReferences"][0]["uid"]));
    }

    pub(super) fn count(&self, start: &str) -> usize {
        self.requests.borrow().iter().filter(|request| request.starts_with(start)).count()
    }

    fn fault(&self, request: &Request) -> Option<Fault> {
        let mut faults = self.faults.borrow_mut();
        let fits = |(method, path, _): &(Method, &str, Fault)| {
            *method == request.method && request.path.contains(path)
        };
        let at = faults.iter().position(fits)?;
        faults.remove(at).map(|(_, _, fault)| fault)
    }

    fn serve(&self, request: &Request) -> Response {
        let path =
            request.path.strip_prefix("/api/v1/namespaces/proxies/").expect("only the granted namespace");
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        match (request.method, path.split_once('/').unwrap_or((path, ""))) {
            (Method::Post, ("pods", "")) => self.create_pod(body),
            (Method::Post, ("secrets", "")) => self.create_secret(&body),
            (Method::Get, ("pods", name)) if !name.is_empty() => self.read_pod(name),
            (Method::Get, (list, "")) if list.starts_with("pods?") => self.list_pods(list),
            (Method::Delete, ("pods", name)) => self.delete_pod(name, &body),
            (Method::Patch, ("pods", name)) => {
                assert!(
                    request.headers.contains(&("content-type".into(), "application/merge-patch+json".into()))
                );
                self.patch_pod(name, &body)
            }
            other => panic!("this provider must never ask for {other:?}"),
        }
    }

    fn create_pod(&self, mut pod: Value) -> Response {
        let mut state = self.state.borrow_mut();
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        if state.pods.contains_key(&name) {
            return status(409, "AlreadyExists", "pods", &name);
        }
        state.made += 1;
        pod["metadata"]["uid"] = json!(format!("uid-{}", state.made));
        pod["metadata"]["creationTimestamp"] = json!(self.now.get().to_string());
        pod["status"] = json!({"phase": "Pending"});
        state.pods.insert(name, pod.clone());
        answer(201, &pod)
    }

    fn create_secret(&self, secret: &Value) -> Response {
        let mut state = self.state.borrow_mut();
        let name = secret["metadata"]["name"].as_str().unwrap().to_owned();
        if state.secrets.contains_key(&name) {
            return status(409, "AlreadyExists", "secrets", &name);
        }
        state.secrets.insert(name, secret.clone());
        answer(201, secret)
    }

    fn read_pod(&self, name: &str) -> Response {
        self.state
            .borrow()
            .pods
            .get(name)
            .map_or_else(|| status(404, "NotFound", "pods", name), |pod| answer(200, pod))
    }

    fn delete_pod(&self, name: &str, options: &Value) -> Response {
        let mut state = self.state.borrow_mut();
        let Some(pod) = state.pods.get_mut(name) else { return status(404, "NotFound", "pods", name) };
        if pod["metadata"]["uid"] != options["preconditions"]["uid"] {
            return status(409, "Conflict", "pods", name);
        }
        let forced = options["gracePeriodSeconds"] == 0;
        let grace = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap();
        pod["metadata"]["deletionTimestamp"] = json!((self.now.get() + grace.seconds()).to_string());
        let gone = pod.clone();
        // Nothing runs of a pod that was never scheduled.
        if forced || pod["spec"]["nodeName"].is_null() {
            state.pods.remove(name);
        }
        answer(200, &gone)
    }

    fn patch_pod(&self, name: &str, patch: &Value) -> Response {
        let mut state = self.state.borrow_mut();
        let Some(pod) = state.pods.get_mut(name) else { return status(404, "NotFound", "pods", name) };
        if pod["metadata"]["uid"] != patch["metadata"]["uid"] {
            // A uid cannot be changed, which is what such a patch asks for.
            return status(422, "Invalid", "pods", name);
        }
        assert_eq!(patch["spec"], json!({"schedulingGates": null}), "nothing else of a pod is changed");
        pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
        answer(200, pod)
    }

    fn list_pods(&self, query: &str) -> Response {
        let state = self.state.borrow();
        let value = |key: &str| {
            let found = query.split(['?', '&']).find_map(|part| part.strip_prefix(key));
            found.map(|text| text.replace("%3D", "=").replace("%2C", ",")).unwrap_or_default()
        };
        let terms = value("labelSelector=");
        let fits = |pod: &Value| {
            terms.split(',').filter(|term| !term.is_empty()).all(|term| {
                let (key, value) = term.split_once('=').unwrap();
                pod["metadata"]["labels"][key] == value
            })
        };
        let (limit, from) = (value("limit=").parse().unwrap(), value("continue="));
        let mut found = state.pods.iter().filter(|(name, pod)| **name > from && fits(pod));
        let items: Vec<(&String, &Value)> = found.by_ref().take(limit).collect();
        let next = if found.next().is_some() { items.last().unwrap().0.as_str() } else { "" };
        let pods: Vec<&Value> = items.iter().map(|(_, pod)| *pod).collect();
        answer(200, &json!({"kind": "PodList", "metadata": {"continue": next}, "items": pods}))
    }
}

pub(super) fn answer(code: u16, body: &Value) -> Response {
    Response { status: code, headers: Vec::new(), body: body.to_string().into_bytes() }
}

pub(super) fn status_body(reason: &str, resource: &str, name: &str) -> Value {
    json!({
        "kind": "Status", "status": "Failure", "reason": reason,
        "message": format!("{resource} \"{name}\": {reason}"), "details": {"kind": resource, "name": name},
    })
}

fn status(code: u16, reason: &str, resource: &str, name: &str) -> Response {
    answer(code, &status_body(reason, resource, name))
}

impl Host for Fake {
    fn send(&self, request: &Request) -> Result<Response, SendError> {
        assert_eq!(request.origin, "https://kubernetes.internal");
        self.requests.borrow_mut().push(format!("{} {}", request.method.as_str(), request.path));
        match self.fault(request) {
            None => Ok(self.serve(request)),
            Some(Fault::LoseRequest) => Err(SendError::Network("connection refused".into())),
            Some(Fault::LoseAnswer) => {
                self.serve(request);
                Err(SendError::TimedOut)
            }
            Some(Fault::Answer(code, body)) => Ok(answer(code, &body)),
            Some(Fault::Replace(name)) => {
                self.edit(name, |pod| pod["metadata"]["uid"] = json!("uid-of-another"));
                Ok(self.serve(request))
            }
            Some(Fault::Deny) => Err(SendError::Denied("not granted".into())),
        }
    }

    fn now(&self) -> Timestamp {
        self.now.get()
    }

    fn left(&self) -> Duration {
        self.left.get()
    }

    fn pause(&self, duration: Duration) {
        self.left.set(self.left.get().saturating_sub(duration));
        if self.collects.get() {
            self.collect_garbage();
        }
    }

    fn random(&self, len: usize) -> Vec<u8> {
        (0..=u8::MAX).cycle().take(len).collect()
    }

    fn log(&self, _: Level, _: &str, _: &[(&str, &str)]) {}
}
