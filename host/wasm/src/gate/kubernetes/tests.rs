//! What passes to the API server and what does not, a row per rule.

use std::sync::Mutex;

use http::{Method, Request};
use serde_json::{Value, json};

use super::*;

/// Keeps what was sent and answers 200.
#[derive(Default)]
struct Recorder(Mutex<Vec<Request<Bytes>>>);

impl KubernetesTransport for Recorder {
    fn send(&self, request: Request<Bytes>, _: SendLimits) -> Sending<'_> {
        self.0.lock().unwrap().push(request);
        Box::pin(async { Ok(http::Response::new(Bytes::from_static(b"{}"))) })
    }
}

fn access(resources: &[KubernetesResource]) -> (Access, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let grant = KubernetesGrant {
        namespace: "proxies".into(),
        service_account: "provider".into(),
        resources: resources.to_vec(),
    };
    (Access::new(grant, Arc::<Recorder>::clone(&recorder)), recorder)
}

fn denied(method: Method, path: &str, body: &Value) -> String {
    let (access, _) = access(&[KubernetesResource::Pods, KubernetesResource::Secrets]);
    let uri = format!("https://kubernetes.internal{path}");
    let (parts, ()) = Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
    match check(&access, &parts, body.to_string().as_bytes(), Some("px-1")) {
        Ok(()) => String::new(),
        Err(why) => why,
    }
}

fn good_pod() -> Value {
    json!({
        "metadata": {"name": "px-1"},
        "spec": {
            "automountServiceAccountToken": false,
            "schedulingGates": [{"name": "g"}],
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
                "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]},
            "containers": [{"name": "squid", "image": "squid", "ports": [{"containerPort": 3128}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
            "volumes": [{"name": "config", "secret": {"secretName": "px-1"}}, {"name": "scratch", "emptyDir": {}}],
        },
    })
}

#[test]
fn the_requests_of_a_provider_pass() {
    let pods = "/api/v1/namespaces/proxies/pods";
    for (method, path) in [
        (Method::GET, format!("{pods}/px-1")),
        (Method::GET, format!("{pods}?labelSelector=a%3Db&limit=500&continue=x")),
        (Method::DELETE, format!("{pods}/px-1?propagationPolicy=Background")),
        (Method::PATCH, format!("{pods}/px-1")),
    ] {
        assert_eq!(denied(method, &path, &Value::Null), "", "{path}");
    }
    assert_eq!(denied(Method::POST, pods, &good_pod()), "");
}

#[test]
fn everything_else_is_refused_with_its_reason() {
    let base = "/api/v1/namespaces/proxies";
    for (method, path, word) in [
        (Method::GET, "/api/v1/namespaces/kube-system/pods".into(), "kube-system"),
        (Method::GET, "/api/v1/pods".into(), "nothing else is allowed"),
        (Method::GET, "/api/v1/nodes".into(), "nothing else is allowed"),
        (Method::GET, "/version".into(), "nothing else is allowed"),
        (Method::GET, format!("{base}/pods?watch=true"), "watch"),
        (Method::GET, format!("{base}/pods?watch=1&limit=1"), "watch"),
        (Method::GET, "/api/v1/watch/namespaces/proxies/pods".into(), "nothing else is allowed"),
        (Method::POST, format!("{base}/pods/px-1/exec"), "subresource"),
        (Method::POST, format!("{base}/pods/px-1/attach"), "subresource"),
        (Method::POST, format!("{base}/pods/px-1/portforward"), "subresource"),
        (Method::GET, format!("{base}/pods/px-1/proxy/a/b"), "subresource"),
        (Method::GET, format!("{base}/pods/px-1/log"), "subresource"),
        (Method::POST, format!("{base}/serviceaccounts/default/token"), "subresource"),
        (Method::DELETE, format!("{base}/pods"), "at once"),
        (Method::GET, format!("{base}/secrets/px-1"), "never allowed"),
        (Method::GET, format!("{base}/secrets"), "never allowed"),
        (Method::PUT, format!("{base}/secrets/px-1"), "never allowed"),
        (Method::PATCH, format!("{base}/secrets/px-1"), "never allowed"),
        (Method::DELETE, format!("{base}/secrets/px-1"), "never allowed"),
        (Method::GET, format!("{base}/services"), "resources: [pods, secrets, services]"),
        (Method::GET, "/apis/apps/v1/namespaces/proxies/deployments".into(), "deployments"),
        (Method::GET, "/apis/evil/v1/namespaces/proxies/pods".into(), "pods"),
        (Method::POST, format!("{base}/pods/px-1"), "no request"),
        (Method::GET, format!("{base}/pods/PX"), "nothing else is allowed"),
    ] {
        let why = denied(method.clone(), &path, &Value::Null);
        assert!(why.contains(word), "{method} {path}: {why:?}");
    }
}

/// What is changed in a good pod, and the word of the refusal.
fn bad_pods() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("/spec/hostNetwork", json!(true), "hostNetwork"),
        ("/spec/hostPID", json!(true), "hostPID"),
        ("/spec/hostIPC", json!(true), "hostIPC"),
        ("/spec/nodeName", json!("n1"), "nodeName"),
        ("/spec/automountServiceAccountToken", json!(true), "automountServiceAccountToken"),
        ("/spec/automountServiceAccountToken", Value::Null, "automountServiceAccountToken"),
        ("/spec/serviceAccountName", json!("admin"), "serviceAccountName"),
        ("/spec/serviceAccount", json!("admin"), "serviceAccount"),
        ("/spec/priorityClassName", json!("system-node-critical"), "priorityClassName"),
        ("/spec/ephemeralContainers", json!([{"name": "x"}]), "ephemeralContainers"),
        ("/spec/securityContext/sysctls", json!([{"name": "kernel.msgmax"}]), "kernel.msgmax"),
        ("/spec/securityContext/seccompProfile", json!({"type": "Unconfined"}), "seccompProfile"),
        ("/spec/volumes/1", json!({"name": "h", "hostPath": {"path": "/"}}), "hostPath"),
        ("/spec/volumes/1", json!({"name": "c", "csi": {"driver": "d"}}), "csi"),
        ("/spec/volumes/1", json!({"name": "s", "secret": {"secretName": "other"}}), "other"),
        (
            "/spec/volumes/1",
            json!({"name": "p", "projected": {"sources": [{"serviceAccountToken": {}}]}}),
            "serviceAccountToken",
        ),
        (
            "/spec/volumes/1",
            json!({"name": "p", "projected": {"sources": [{"secret": {"name": "other"}}]}}),
            "other",
        ),
        ("/spec/containers/0/securityContext/privileged", json!(true), "privileged"),
        (
            "/spec/containers/0/securityContext/allowPrivilegeEscalation",
            json!(true),
            "allowPrivilegeEscalation",
        ),
        ("/spec/containers/0/securityContext/capabilities", json!({"add": ["SYS_ADMIN"]}), "SYS_ADMIN"),
        ("/spec/containers/0/securityContext/procMount", json!("Unmasked"), "procMount"),
        (
            "/spec/containers/0/securityContext/seccompProfile",
            json!({"type": "Unconfined"}),
            "seccompProfile",
        ),
        ("/spec/containers/0/ports/0", json!({"containerPort": 1, "hostPort": 1}), "hostPort"),
        (
            "/spec/containers/0/env",
            json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]),
            "other",
        ),
        ("/spec/containers/0/envFrom", json!([{"secretRef": {"name": "other"}}]), "other"),
        ("/spec/containers/0/volumeDevices", json!([{"name": "x"}]), "volumeDevices"),
        (
            "/spec/initContainers",
            json!([{"name": "i", "securityContext": {"privileged": true}}]),
            "privileged",
        ),
        ("/metadata/name", json!("kube-proxy"), "px-1"),
        ("/spec", Value::Null, "no spec"),
    ]
}

#[test]
fn a_pod_has_no_power_beyond_itself() {
    for (pointer, value, word) in bad_pods() {
        let mut pod = good_pod();
        set(&mut pod, pointer, value.clone());
        let why = denied(Method::POST, "/api/v1/namespaces/proxies/pods", &pod);
        assert!(why.contains(word), "{pointer} {value}: {why:?}");
    }
}

fn set(document: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match document.pointer_mut(parent).unwrap() {
        Value::Object(map) => {
            map.insert(field.to_owned(), value);
        }
        Value::Array(items) => items[field.parse::<usize>().unwrap()] = value,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            panic!("{pointer} leads into {other}")
        }
    }
}

#[test]
fn a_secret_is_that_of_the_machine_and_belongs_to_its_pod() {
    let good = json!({"metadata": {"name": "px-1",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "px-1", "uid": "u"}]},
        "type": "Opaque", "stringData": {"a": "b"}});
    let path = "/api/v1/namespaces/proxies/secrets";
    assert_eq!(denied(Method::POST, path, &good), "");
    for (pointer, value, word) in [
        ("/metadata/name", json!("other"), "px-1"),
        ("/metadata/ownerReferences", json!([]), "ownerReference"),
        (
            "/metadata/ownerReferences/0",
            json!({"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "u"}),
            "ownerReference",
        ),
        (
            "/metadata/ownerReferences/0",
            json!({"apiVersion": "v1", "kind": "Pod", "name": "px-1", "uid": ""}),
            "ownerReference",
        ),
        ("/type", json!("kubernetes.io/service-account-token"), "Opaque"),
        ("/metadata/generateName", json!("px-"), "generateName"),
    ] {
        let mut secret = good.clone();
        set(&mut secret, pointer, value);
        let why = denied(Method::POST, path, &secret);
        assert!(why.contains(word), "{pointer}: {why:?}");
    }
}

#[tokio::test]
async fn only_harmless_headers_reach_the_api_server() {
    let (access, recorder) = access(&[KubernetesResource::Pods]);
    let (parts, ()) = Request::builder()
        .uri("https://kubernetes.internal/api/v1/namespaces/proxies/pods?limit=1")
        .header("accept", "application/json")
        .header("impersonate-user", "system:admin")
        .header("authorization", "Bearer x")
        .header("x-anything", "y")
        .body(())
        .unwrap()
        .into_parts();
    send(&access, &parts, Bytes::new(), None, Duration::from_secs(5)).await.unwrap();
    let sent = recorder.0.lock().unwrap();
    let sent = sent.first().unwrap();
    assert_eq!(sent.uri(), "/api/v1/namespaces/proxies/pods?limit=1");
    assert_eq!(sent.headers().keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
}
