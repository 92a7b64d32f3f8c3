//! What passes to the API server and what does not, a row per rule.

mod fence;

use std::sync::Mutex;

use http::{Method, Request};
use serde_json::{Value, json};

use super::*;
use crate::gate::fence::Fence;

/// Keeps what was sent and answers 200.
#[derive(Default)]
struct Recorder(Mutex<Vec<Request<Bytes>>>);

impl KubernetesTransport for Recorder {
    fn send(&self, request: Request<Bytes>, _: SendLimits) -> Sending<'_> {
        self.0.lock().unwrap().push(request);
        Box::pin(async { Ok(http::Response::new(Bytes::from_static(b"{}"))) })
    }
}

fn grant(resources: &[KubernetesResource]) -> KubernetesGrant {
    KubernetesGrant {
        namespace: "proxies".into(),
        service_account: "provider".into(),
        resources: resources.to_vec(),
    }
}

fn access(resources: &[KubernetesResource]) -> (Access, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (Access::new(grant(resources), Arc::<Recorder>::clone(&recorder)), recorder)
}

/// Why a request of this call is refused; empty if it passes.
fn refused(errand: &Errand, method: Method, path: &str, kind: &str, body: &str) -> String {
    let (access, _) = access(&[KubernetesResource::Pods, KubernetesResource::Secrets]);
    let uri = format!("https://kubernetes.internal{path}");
    let request = Request::builder().method(method).uri(uri).header("content-type", kind);
    let (parts, ()) = request.body(()).unwrap().into_parts();
    check(&access, &parts, body.as_bytes(), errand).err().unwrap_or_default()
}

/// The same for a call that makes `px-1`.
fn denied(method: Method, path: &str, body: &Value) -> String {
    let kind = if method == Method::PATCH { MERGE_PATCH } else { JSON };
    refused(&making(), method, path, kind, &body.to_string())
}

fn making() -> Errand {
    Errand::Make("px-1".to_owned())
}

const PODS: &str = "/api/v1/namespaces/proxies/pods";

fn ungate() -> Value {
    json!({"metadata": {"uid": "u"}, "spec": {"schedulingGates": null}})
}

fn limits(held: &Budget) -> Limits<'_> {
    fence::behind(Fence::open(), held)
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
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"},
        "propagationPolicy": "Background", "gracePeriodSeconds": 0});
    for (method, path, body) in [
        (Method::GET, format!("{PODS}/px-1"), Value::Null),
        (Method::GET, format!("{PODS}?labelSelector=a%3Db&limit=500&continue=x"), Value::Null),
        (Method::DELETE, format!("{PODS}/px-1?propagationPolicy=Background"), options.clone()),
        (Method::PATCH, format!("{PODS}/px-1"), ungate()),
        (Method::POST, PODS.to_owned(), good_pod()),
    ] {
        assert_eq!(denied(method, &path, &body), "", "{path}");
    }
    let removal = Errand::Remove("px-1".to_owned());
    let path = format!("{PODS}/px-1");
    for body in [options.to_string(), String::new()] {
        assert_eq!(refused(&removal, Method::DELETE, &path, JSON, &body), "");
    }
    for errand in [Errand::Look, removal, making()] {
        assert_eq!(refused(&errand, Method::GET, &path, "", ""), "", "every call may look");
    }
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
        (Method::GET, format!("{base}/services"), "services (v1) is not known to this release"),
        (Method::POST, format!("{base}/services"), "not known to this release"),
        (Method::PUT, format!("{base}/configmaps/kube-root-ca.crt"), "not known to this release"),
        (Method::GET, "/apis/apps/v1/namespaces/proxies/deployments".into(), "may use pods and secrets"),
        (Method::GET, "/apis/evil/v1/namespaces/proxies/pods".into(), "pods (evil) is not known"),
        (Method::PUT, format!("{base}/pods/px-1"), "update on pods is never allowed"),
        (Method::DELETE, format!("{base}/pods/px-2"), "px-1"),
        (Method::PATCH, format!("{base}/pods/px-2"), "px-1"),
        (Method::PATCH, format!("{base}/pods/px-1?force=true"), "force"),
        (Method::POST, format!("{base}/pods?fieldValidation=Ignore"), "fieldValidation"),
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
    ]
}

/// The same for its containers and its metadata.
fn bad_containers() -> Vec<(&'static str, Value, &'static str)> {
    vec![
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
        ("/spec/containers/0/ports/0", json!({"containerPort": 1, "hostPort": 1.0}), "hostPort"),
        ("/spec/containers/0/ports/0", json!({"containerPort": 1, "hostIP": "127.0.0.1"}), "hostIP"),
        (
            "/spec/initContainers",
            json!([{"name": "i", "securityContext": {"privileged": true}}]),
            "privileged",
        ),
        (
            "/metadata/annotations",
            json!({"container.apparmor.security.beta.kubernetes.io/squid": "unconfined"}),
            "apparmor",
        ),
        (
            "/metadata/annotations",
            json!({"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}),
            "seccomp",
        ),
        (
            "/spec/initContainers",
            json!([{"name": "i", "restartPolicy": "Always", "startupProbe": {"httpGet": {"host": "169.254.169.254"}}}]),
            "startupProbe.httpGet.host",
        ),
        ("/metadata/name", json!("kube-proxy"), "px-1"),
        ("/spec", Value::Null, "no spec"),
    ]
}

#[test]
fn the_kubelet_is_sent_to_the_pod_and_nowhere_else() {
    for (kind, port) in [("httpGet", "http"), ("tcpSocket", "3128")] {
        for place in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let mut pod = good_pod();
            set(&mut pod, &format!("/spec/containers/0/{place}"), json!({kind: {"port": port}}));
            assert_eq!(denied(Method::POST, PODS, &pod), "", "{place}");
            set(&mut pod, &format!("/spec/containers/0/{place}/{kind}/host"), json!("169.254.169.254"));
            let why = denied(Method::POST, PODS, &pod);
            assert!(why.contains(&format!("{place}.{kind}.host")), "{why:?}");
        }
        for hook in ["postStart", "preStop"] {
            let mut pod = good_pod();
            set(
                &mut pod,
                "/spec/containers/0/lifecycle",
                json!({hook: {kind: {"host": "10.0.0.1", "port": 1}}}),
            );
            let why = denied(Method::POST, PODS, &pod);
            assert!(why.contains(&format!("lifecycle.{hook}.{kind}.host")), "{why:?}");
        }
    }
}

#[test]
fn a_pod_has_no_power_beyond_itself() {
    for (pointer, value, word) in bad_pods().into_iter().chain(bad_containers()) {
        let mut pod = good_pod();
        set(&mut pod, pointer, value.clone());
        let why = denied(Method::POST, "/api/v1/namespaces/proxies/pods", &pod);
        assert!(why.contains(word), "{pointer} {value}: {why:?}");
    }
}

#[test]
fn a_patch_takes_the_gates_of_the_machine_away_and_nothing_else() {
    let path = format!("{PODS}/px-1");
    let patch = |body: &Value| denied(Method::PATCH, &path, body);
    for good in
        [ungate(), json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"schedulingGates": []}})]
    {
        assert_eq!(patch(&good), "", "{good}");
    }
    let image = json!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "app", "image": "evil"}]}});
    for (bad, word) in [
        (image, "schedulingGates"),
        (
            json!({"metadata": {"uid": "u"}, "spec": {"schedulingGates": null, "hostNetwork": true}}),
            "hostNetwork",
        ),
        (json!({"metadata": {"uid": "u"}, "spec": {"schedulingGates": [{"name": "g"}]}}), "null or []"),
        (json!({"metadata": {"uid": "u"}, "spec": {}}), "null or []"),
        (json!({"metadata": {"uid": "u"}}), "spec of the patch"),
        (json!({"spec": {"schedulingGates": null}}), "metadata of the patch"),
        (json!({"metadata": {}, "spec": {"schedulingGates": null}}), "uid"),
        (json!({"metadata": {"uid": null}, "spec": {"schedulingGates": null}}), "must be a text"),
        (
            json!({"metadata": {"uid": "u", "labels": {"a": "b"}}, "spec": {"schedulingGates": null}}),
            "labels",
        ),
        (json!({"metadata": {"uid": "u"}, "spec": {"schedulingGates": null}, "status": {}}), "status"),
        (json!([{"op": "remove", "path": "/spec/schedulingGates"}]), "must be an object"),
    ] {
        let why = patch(&bad);
        assert!(why.contains(word), "{bad}: {why:?}");
    }
}

#[test]
fn a_patch_is_a_merge_patch_of_the_call_that_makes_the_machine() {
    let path = format!("{PODS}/px-1");
    let body = ungate().to_string();
    for kind in [
        "application/apply-patch+yaml",
        "application/apply-patch+cbor",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "",
    ] {
        let why = refused(&making(), Method::PATCH, &path, kind, &body);
        assert!(why.contains(MERGE_PATCH), "{kind}: {why:?}");
    }
    let kind = "Application/Merge-Patch+JSON; charset=utf-8";
    assert_eq!(refused(&making(), Method::PATCH, &path, kind, &body), "");
    for errand in [Errand::Look, Errand::Remove("px-1".into())] {
        let why = refused(&errand, Method::PATCH, &path, MERGE_PATCH, &body);
        assert!(why.contains("only the call create"), "{errand:?}: {why:?}");
    }
}

#[test]
fn a_call_changes_its_own_machine_and_a_look_changes_nothing() {
    let path = format!("{PODS}/px-1");
    let why = refused(&Errand::Look, Method::DELETE, &path, JSON, "");
    assert!(why.contains("only the calls create and delete"), "{why:?}");
    let why = refused(&Errand::Remove("px-2".into()), Method::DELETE, &path, JSON, "");
    assert!(why.contains("px-2"), "{why:?}");
    for errand in [Errand::Look, Errand::Remove("px-1".into())] {
        for (kind, body) in [("pods", good_pod()), ("secrets", good_secret())] {
            let path = format!("/api/v1/namespaces/proxies/{kind}");
            let why = refused(&errand, Method::POST, &path, JSON, &body.to_string());
            assert!(why.contains("only the call create"), "{errand:?} {kind}: {why:?}");
        }
    }
    for (options, word) in [
        (json!({"orphanDependents": true}), "orphanDependents"),
        (json!({"preconditions": {"labels": {}}}), "labels"),
        (json!({"preconditions": {"uid": 3}}), "must be a text"),
        (json!("Background"), "must be an object"),
    ] {
        let why = denied(Method::DELETE, &path, &options);
        assert!(why.contains(word), "{options}: {why:?}");
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

fn good_secret() -> Value {
    json!({"metadata": {"name": "px-1",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "px-1", "uid": "u"}]},
        "type": "Opaque", "stringData": {"a": "b"}})
}

#[test]
fn a_secret_is_that_of_the_machine_and_belongs_to_its_pod() {
    let good = good_secret();
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
    send(&access, &parts, Bytes::new(), &Errand::Look, limits(&Budget::new(64 << 20))).await.unwrap();
    let sent = recorder.0.lock().unwrap();
    let sent = sent.first().unwrap();
    assert_eq!(sent.uri(), "/api/v1/namespaces/proxies/pods?limit=1");
    assert_eq!(sent.headers().keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
}

/// A text with a key twice says two things: serde hears the last one, Go's decoder merges both.
#[tokio::test]
async fn what_is_sent_is_what_was_checked() {
    let (access, recorder) = access(&[KubernetesResource::Pods, KubernetesResource::Secrets]);
    let pod = good_pod();
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let twice =
        format!(r#"{{"metadata":{metadata},"spec":{{"hostNetwork":true,"hostPID":true}},"spec":{spec}}}"#);
    for (method, path, kind, body, sent_as) in [
        (Method::POST, PODS.to_owned(), "application/yaml", twice, JSON),
        (
            Method::PATCH,
            format!("{PODS}/px-1"),
            MERGE_PATCH,
            r#"{"spec":{"hostNetwork":true},"metadata":{"uid":"u"},"spec":{"schedulingGates":null}}"#
                .to_owned(),
            MERGE_PATCH,
        ),
        (
            Method::DELETE,
            format!("{PODS}/px-1"),
            "application/yaml",
            r#"{"gracePeriodSeconds":0,"gracePeriodSeconds":5}"#.to_owned(),
            JSON,
        ),
        (
            Method::POST,
            "/api/v1/namespaces/proxies/secrets".to_owned(),
            "application/vnd.kubernetes.protobuf",
            good_secret().to_string().replacen('{', r#"{"type":"kubernetes.io/service-account-token","#, 1),
            JSON,
        ),
    ] {
        let request = Request::builder().method(method).uri(format!("https://kubernetes.internal{path}"));
        let (parts, ()) = request.header("content-type", kind).body(()).unwrap().into_parts();
        send(&access, &parts, Bytes::from(body), &making(), limits(&Budget::new(64 << 20))).await.unwrap();
        let sent = recorder.0.lock().unwrap().pop().unwrap();
        assert_eq!(sent.headers().get("content-type").unwrap(), sent_as);
        let text = std::str::from_utf8(sent.body()).unwrap();
        assert!(!text.contains("hostNetwork") && !text.contains("service-account-token"), "{text}");
        for key in ["\"spec\"", "\"gracePeriodSeconds\"", "\"type\":\"Opaque"] {
            assert!(text.matches(key).count() <= 1, "{key}: {text}");
        }
    }
    let (parts, ()) =
        Request::builder().uri(format!("https://kubernetes.internal{PODS}")).body(()).unwrap().into_parts();
    send(&access, &parts, Bytes::from_static(b"{}"), &making(), limits(&Budget::new(64 << 20)))
        .await
        .unwrap();
    assert!(recorder.0.lock().unwrap().pop().unwrap().body().is_empty(), "a read has no body");
}
