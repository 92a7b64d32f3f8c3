//! The Pod of one machine, and the Secret of one that has secrets.
//!
//! The Pod fits the `restricted` Pod Security Standard. It must never get a service account token, a
//! capability, a writable root or a volume of its node.

use std::collections::BTreeMap;

use egress_proxies_provider_sdk::model::{CreateRequest, Failure};
use serde_json::{Value, json};

use crate::settings::Settings;
use crate::squid::{self, EXTRA_FILE, FOLDER, Files, MAIN_FILE, SCRATCH, USERS_FILE};
use crate::tags;
use crate::users;

/// Keeps a pod that needs a Secret from being scheduled until it is there; without it the machine is complete.
pub(crate) const GATE: &str = "crawl.example.com/secret";
/// Set on the Pod for its owner's records: equal for all retries of one attempt.
const ATTEMPT: &str = "crawl.example.com/attempt";
/// Holds the main configuration file, which is no secret; the pod shows it to Squid as a file.
pub(crate) const MAIN_CONFIG: &str = "crawl.example.com/squid.conf";
/// Time between the end of Squid's own grace period and the kill.
const GRACE_MARGIN: u16 = 10;
/// The first port that needs no privilege.
const FIRST_FREE_PORT: u16 = 1024;

/// What of the request has to be in a Secret.
fn files(request: &CreateRequest) -> Files {
    Files { extra: request.bootstrap.is_some(), users: request.access.is_some() }
}

/// The main configuration of one machine.
pub(crate) fn main_config(request: &CreateRequest, settings: &Settings) -> String {
    squid::config(settings, &request.name, request.port, files(request))
}

/// The Pod of one machine.
pub(crate) fn pod(namespace: &str, request: &CreateRequest, settings: &Settings) -> Value {
    let mut labels = settings.labels.clone();
    labels.insert("app.kubernetes.io/name".to_owned(), "squid".to_owned());
    labels.insert("app.kubernetes.io/managed-by".to_owned(), "egress-proxies-operator".to_owned());
    let main = main_config(request, settings);
    let mut annotations =
        BTreeMap::from([(ATTEMPT.to_owned(), request.attempt_key.clone()), (MAIN_CONFIG.to_owned(), main)]);
    tags::write(&request.tags, &mut labels, &mut annotations);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": pod_spec(request, settings),
    })
}

fn pod_spec(request: &CreateRequest, settings: &Settings) -> Value {
    let config = &settings.config;
    let mut spec = json!({
        "restartPolicy": "Always",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "dnsPolicy": config.dns_policy,
        "terminationGracePeriodSeconds": config.shutdown_seconds.saturating_add(GRACE_MARGIN),
        "securityContext": pod_security(request.port, config.run_as_user),
        "containers": [container(request, settings)],
        "volumes": [
            // Readable for whatever user the platform chooses: nobody else is in the pod.
            {"name": "config", "projected": {"sources": config_files(request), "defaultMode": 0o444}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
        "tolerations": [off_after("node.kubernetes.io/not-ready"), off_after("node.kubernetes.io/unreachable")],
    });
    if files(request).any() {
        spec["schedulingGates"] = json!([{"name": GATE}]);
    }
    if !config.node_selector.is_empty() {
        spec["nodeSelector"] = json!(config.node_selector);
    }
    if !config.image_pull_secrets.is_empty() {
        let names: Vec<Value> = config.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
        spec["imagePullSecrets"] = json!(names);
    }
    spec
}

/// Where the files in Squid's folder come from.
fn config_files(request: &CreateRequest) -> Value {
    let main = json!({"path": MAIN_FILE, "fieldRef": {"fieldPath": format!("metadata.annotations['{MAIN_CONFIG}']")}});
    let mut sources = vec![json!({"downwardAPI": {"items": [main]}})];
    if files(request).any() {
        sources.push(json!({"secret": {"name": request.name}}));
    }
    Value::Array(sources)
}

/// Off a dead node after half a minute instead of five.
fn off_after(taint: &str) -> Value {
    json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30})
}

fn pod_security(port: u16, user: Option<u32>) -> Value {
    let mut security = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    if let Some(user) = user {
        security["runAsUser"] = json!(user);
        security["runAsGroup"] = json!(user);
        security["fsGroup"] = json!(user);
    }
    if port < FIRST_FREE_PORT {
        // One of the sysctls that Kubernetes calls safe; it counts for this pod's own network alone.
        security["sysctls"] =
            json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": port.to_string()}]);
    }
    security
}

fn container(request: &CreateRequest, settings: &Settings) -> Value {
    let config = &settings.config;
    // A TCP connection that sends nothing: Squid is told not to log those.
    let connects = json!({"port": request.port});
    json!({
        "name": "squid",
        "image": config.image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["/usr/sbin/squid", "-N", "-f", format!("{FOLDER}/{MAIN_FILE}")],
        "ports": [{"name": "proxy", "containerPort": request.port, "protocol": "TCP"}],
        "resources": config.resources,
        "startupProbe": {"tcpSocket": connects, "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 120},
        "readinessProbe": {"tcpSocket": connects, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": FOLDER, "readOnly": true},
            {"name": "scratch", "mountPath": SCRATCH},
        ],
    })
}

/// The Secret of one machine that needs one, owned by its Pod. `salt` is for the password's hash.
pub(crate) fn secret(
    namespace: &str,
    request: &CreateRequest,
    pod_uid: &str,
    salt: &[u8],
) -> Result<Value, Failure> {
    let mut files = BTreeMap::new();
    if let Some(bootstrap) = &request.bootstrap {
        files.insert(EXTRA_FILE, format!("{bootstrap}\n"));
    }
    if let Some(credentials) = &request.access {
        files.insert(USERS_FILE, users::file(credentials, salt)?);
    }
    let (mut labels, mut annotations) = (BTreeMap::new(), BTreeMap::new());
    tags::write(&request.tags, &mut labels, &mut annotations);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": request.name, "uid": pod_uid}],
        },
        "type": "Opaque",
        "immutable": true,
        "stringData": files,
    }))
}

/// The merge patch that lets the Pod go: it names the uid, so that it never hits another pod.
pub(crate) fn ungate(pod_uid: &str) -> Value {
    json!({"metadata": {"uid": pod_uid}, "spec": {"schedulingGates": null}})
}

#[cfg(test)]
mod tests;
