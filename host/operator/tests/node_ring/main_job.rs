//! The path of the first screen of the README.

use serde_json::{Value, json};

use super::cluster::{condition, curl, wait_for};
use super::operator::{TOKEN, ring};

#[test]
fn a_proxy_becomes_a_healthy_squid_and_is_leased() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("main-job");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n  attributes: { test: main-job }\n");
    let proxy = space.wait("one", "Ready", "True");
    assert_eq!(proxy["status"]["phase"], "Ready");
    let pod = ring.pod(&proxy).expect("a real pod");
    assert_eq!(pod["status"]["podIP"], proxy["status"]["ip"]);

    let columns = ring.cluster.kubectl(&["-n", &space.name, "get", "px"]);
    let header: Vec<&str> = columns.lines().next().expect("a header").split_whitespace().collect();
    assert_eq!(header, ["NAME", "MODE", "PROVIDER", "PHASE", "IP", "HEALTHY", "AGE"]);

    let listed = ring.api(
        "GET",
        &format!("/v1/proxies?attr.test=main-job&healthy=true&namespace={}", space.name),
        None,
    );
    let listed: Value = serde_json::from_str(&listed.body).expect("JSON");
    assert_eq!(listed["count"], 1);
    assert_eq!(listed["proxies"][0]["id"], format!("{}/one", space.name));

    let body =
        json!({ "selector": { "test": "main-job" }, "ttlSeconds": 60, "target": "example.com" }).to_string();
    let granted = ring.api("POST", "/v1/leases", Some(&body));
    assert_eq!(granted.status, 201, "{}", granted.body);
    let lease: Value = serde_json::from_str(&granted.body).expect("JSON");
    let url = lease["proxy"]["url"].as_str().expect("a url");
    let page = curl(&["-x", url, &ring.page]);
    assert_eq!((page.status, page.body.trim()), (200, "ok"));

    let id = lease["leaseID"].as_str().expect("an id");
    let report = ring.api("POST", &format!("/v1/leases/{id}/report"), Some(r#"{"result":"rate_limited"}"#));
    assert_eq!(report.status, 204, "{}", report.body);
    assert_eq!(ring.api("DELETE", &format!("/v1/leases/{id}"), None).status, 204);
    // It rests for that target now, and for that one alone.
    let again = ring.api("POST", "/v1/leases", Some(&body));
    assert_eq!(again.status, 409, "{}", again.body);
    let refused: Value = serde_json::from_str(&again.body).expect("JSON");
    assert_eq!((&refused["reason"], &refused["inCooldown"]), (&json!("busy"), &json!(1)));

    let log = ring.log_text();
    assert!(!log.contains(id) && !log.contains(TOKEN), "the operator logged a lease's id or a token");

    ring.cluster.kubectl(&["-n", &space.name, "delete", "px", "one", "--timeout=100s"]);
    assert!(ring.pod(&proxy).is_none(), "the pod is gone with the Proxy");
}

#[test]
fn a_spec_that_the_provider_cannot_serve_fails_and_names_the_field() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("wrong-spec");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n  placement: { zone: europe-west1-b }\n");
    let proxy = wait_for("it is Failed", || {
        let proxy = space.get("one");
        if proxy["status"]["phase"] == "Failed" { Ok(proxy) } else { Err(proxy["status"].to_string()) }
    });
    let (status, reason, message) = condition(&proxy, "Provisioned");
    assert_eq!((status, reason), ("False", "PermanentError"));
    assert!(message.contains("/placement/zone"), "{message}");
    assert!(ring.pod(&proxy).is_none(), "nothing was made");

    // The latch opens with the edit: `kubectl apply` takes the field away.
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n");
    space.wait("one", "Ready", "True");
}

#[test]
fn an_unknown_provider_is_said_with_the_names_that_exist() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("unknown-provider");
    space.proxy("one", "  mode: Managed\n  provider: kubernets\n");
    let proxy = space.wait("one", "Provisioned", "False");
    let (_, reason, message) = condition(&proxy, "Provisioned");
    assert_eq!(reason, "ProviderUnavailable");
    assert!(message.contains("kubernets") && message.contains("kubernetes"), "{message}");
}
