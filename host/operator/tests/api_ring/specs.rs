//! What never replaces a machine: another release's annotation, none, and whatever no machine is made from.

use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cloud::Verb;
use crate::operator::{Bench, is_ready, managed};

const HASH: &str = "crawl.example.com/spec-hash";

#[tokio::test]
async fn no_annotation_and_no_edit_of_what_a_machine_is_not_made_from_replaces_it() {
    let Some(bench) = Bench::open("never-replaced").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    let edits = [
        ("a Go-era annotation", json!({"metadata": {"annotations": {HASH: "5d41402abc4b2a76"}}})),
        ("another version", json!({"metadata": {"annotations": {HASH: "v9:00"}}})),
        ("another hash", json!({"metadata": {"annotations": {HASH: format!("v1:{}", "0".repeat(64))}}})),
        ("a stripped annotation", json!({"metadata": {"annotations": {HASH: null}}})),
        ("all annotations stripped", json!({"metadata": {"annotations": null}})),
        ("labels", json!({"metadata": {"labels": {"team": "x"}}})),
        ("attributes", json!({"spec": {"attributes": {"geo": "eu"}, "suspend": true, "maxLeases": 3}})),
        ("a default that is spelled out", json!({"spec": {"healthCheck": {"intervalSeconds": 30}}})),
        ("what probes use", json!({"spec": {"healthCheck": {"url": "http://other.invalid/"}}})),
        (
            "an empty request for another machine",
            json!({"metadata": {"annotations": {
                "crawl.example.com/replace": " "
            }}}),
        ),
    ];
    for (what, patch) in edits {
        bench.patch("a", patch).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!((bench.cloud.born(), bench.cloud.count(Verb::Delete)), (1, 0), "{what}");
    }
    let edits = [
        (
            "an edit of the status",
            json!({"status": {"phase": "Failed", "latencyMillis": 7, "conditions": []}}),
        ),
        ("a machine that is another", json!({"status": {"providerID": "elsewhere", "incarnation": "x"}})),
        ("a status that is wiped", json!({"status": null})),
    ];
    for (what, patch) in edits {
        edit_status(&bench, "a", patch).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!((bench.cloud.born(), bench.cloud.count(Verb::Delete)), (1, 0), "{what}");
    }
    let settled = |proxy: &Proxy| {
        let status = proxy.status.as_ref();
        is_ready(proxy) && status.and_then(|it| it.observed_generation) == proxy.metadata.generation
    };
    bench.until("a", "Ready of its last generation", settled).await;
    operator.stop().await;
}

#[expect(clippy::disallowed_methods, reason = "somebody else writes the status here")]
#[cfg(test)]
async fn edit_status(bench: &Bench, name: &str, patch: Value) {
    let (proxies, patch) = (bench.proxies(), Patch::Merge(patch));
    proxies.patch_subresource("status", name, &PatchParams::default(), &patch).await.unwrap();
}
