//! The Squid pod itself: who may use it, for what, and what it may do to its node.

use serde_json::{Value, json};

use super::cluster::{condition, curl, wait_for};
use super::operator::{PODS, ring};

/// Every character that breaks a URL, a shell or a configuration file somewhere, and two outside ASCII.
const PASSWORD: &str = "p@ss:w/o%r$d# with spaces äß";

#[test]
fn credentials_of_a_secret_reach_squid_probes_and_leases_whatever_they_contain() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("auth");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "user", "namespace": space.name, "labels": { "crawl.example.com/proxy-auth": "true" } },
        "stringData": { "username": "crawler", "password": PASSWORD },
    });
    ring.cluster.apply(&secret.to_string());
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n  attributes: { test: auth }\n  auth: { secretRef: { name: user } }\n");
    space.wait("one", "Ready", "True");

    let body = json!({ "selector": { "test": "auth" }, "namespace": space.name }).to_string();
    let granted = ring.api("POST", "/v1/leases", Some(&body));
    assert_eq!(granted.status, 201, "{}", granted.body);
    let lease: Value = serde_json::from_str(&granted.body).expect("JSON");
    assert_eq!(lease["proxy"]["password"], PASSWORD);
    let page = curl(&["-x", lease["proxy"]["url"].as_str().expect("a url"), &ring.page]);
    assert_eq!((page.status, page.body.trim()), (200, "ok"));
    let without = curl(&["-x", lease["proxy"]["server"].as_str().expect("a server"), &ring.page]);
    assert_eq!(without.status, 407, "{}", without.body);
    assert!(!ring.log_text().contains(PASSWORD), "the operator logged a password");
    let events = ring.cluster.kubectl(&["-n", &space.name, "get", "events", "-o", "yaml"]);
    assert!(!events.contains(PASSWORD), "an Event shows a password");
}

#[test]
fn squid_refuses_ports_that_are_not_for_the_web() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("ports");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n");
    let proxy = space.wait("one", "Ready", "True");
    let url = format!("http://{}:3128", proxy["status"]["ip"].as_str().expect("an address"));
    for target in ["https://192.0.2.1:25/", "https://192.0.2.1:22/"] {
        let refused = curl(&["-x", &url, target, "-v"]);
        assert!(refused.body.contains("403"), "CONNECT {target}: {}", refused.body);
    }
    for target in ["http://127.0.0.1/", "http://169.254.169.254/"] {
        let refused = curl(&["-x", &url, target]);
        assert_eq!(refused.status, 403, "{target}: {}", refused.body);
    }
}

#[test]
fn squid_runs_without_rights_logs_requests_and_comes_back_after_a_kill() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("pod");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n");
    let proxy = space.wait("one", "Ready", "True");
    let pod = ring.pod(&proxy).expect("a pod");
    let spec = &pod["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    let security = &spec["containers"][0]["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);

    let name = pod["metadata"]["name"].as_str().expect("a name");
    let url = format!("http://{}:3128", proxy["status"]["ip"].as_str().expect("an address"));
    assert_eq!(curl(&["-x", &url, &format!("{}status/204", ring.page)]).status, 204);
    wait_for("the request is in kubectl logs", || {
        let log = ring.cluster.kubectl(&["-n", PODS, "logs", name]);
        if log.contains("/status/204") { Ok(()) } else { Err(log) }
    });

    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0);
    let before = restarts(&pod);
    // Process 1 of a container can't be killed from inside: kill everything of Squid's as the node's root.
    let container = pod["status"]["containerStatuses"][0]["containerID"].as_str().expect("an id");
    kill_container(container.rsplit('/').next().expect("an id"));
    wait_for("it was started again and is healthy", || {
        let now = ring.pod(&proxy).expect("the same pod");
        let ready = now["status"]["containerStatuses"][0]["ready"] == true;
        if restarts(&now) > before && ready { Ok(()) } else { Err(now["status"].to_string()) }
    });
    assert_eq!(curl(&["-x", &url, &ring.page]).status, 200);
    let after = space.get("one");
    assert_eq!(after["status"]["incarnation"], proxy["status"]["incarnation"], "a restart is no replacement");
    assert_ne!(condition(&after, "Provisioned").0, "False");
}

/// `kill -9` of every process whose cgroup names the container.
fn kill_container(id: &str) {
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let cgroup = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if cgroup.contains(id) {
            let pid = entry.file_name().to_string_lossy().into_owned();
            let status = std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill starts");
            killed += i32::from(status.success());
        }
    }
    assert!(killed > 0, "no process of container {id} was found");
}
