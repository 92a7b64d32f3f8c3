//! Other writers: they win no race against us and lose none of their own changes.

use std::time::Duration;

use egress_proxies_core::crd::FINALIZER;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::json;

use crate::cloud::Verb;
use crate::operator::{Bench, managed, merge};

const THEIRS: &str = "example.com/theirs";

#[tokio::test]
async fn labels_and_finalizers_of_others_survive_a_write_between_our_read_and_our_patch() {
    let Some(bench) = Bench::open("another-writer").await else { return };
    let operator = bench.operator();
    let theirs = json!({"metadata": {"labels": {"team": "x"}, "finalizers": [THEIRS]}});
    operator.spy.before("/proxies/a", merge(bench.proxies(), "a".to_owned(), theirs));
    bench.create("a", managed()).await;
    let ready = bench.until_ready("a").await;
    assert_eq!(ready.metadata.labels.unwrap()["team"], "x");
    assert_eq!(ready.metadata.finalizers.unwrap(), [THEIRS, FINALIZER]);

    bench.delete("a").await;
    let ours_gone = bench.until("a", "free of our finalizer", |proxy| {
        proxy.metadata.finalizers.as_deref().is_some_and(|names| !names.iter().any(|name| name == FINALIZER))
    });
    assert_eq!(ours_gone.await.metadata.finalizers.unwrap(), [THEIRS]);
    assert_eq!(bench.cloud.machines(), []);
    bench.patch("a", json!({"metadata": {"finalizers": null}})).await;
    bench.until_gone("a").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_proxy_deleted_before_the_first_reconcile_gets_neither_finalizer_nor_machine() {
    let Some(bench) = Bench::open("deleted-before").await else { return };
    bench.create_with("a", json!({"finalizers": [THEIRS]}), managed()).await;
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    drop(bench.proxies().delete("a", &foreground).await.unwrap());
    let operator = bench.operator();
    bench.create("later", managed()).await;
    bench.until_ready("later").await;
    let left = bench.get("a").await.unwrap();
    assert!(!left.metadata.finalizers.unwrap().contains(&FINALIZER.to_owned()));
    assert_eq!(bench.cloud.born(), 1, "only the machine of the other Proxy was made");
    assert_eq!(operator.spy.proxy_writes().iter().filter(|write| write.contains("/proxies/a")).count(), 0);
    operator.stop().await;
}

#[tokio::test]
async fn a_finalizer_that_somebody_forced_off_during_the_cleanup_is_done_with() {
    let Some(bench) = Bench::open("forced-off").await else { return };
    bench.cloud.take_looks(0, 1000);
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    bench.delete("a").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.patch("a", json!({"metadata": {"finalizers": null}})).await;
    bench.until_gone("a").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (reconciles, looks) = (operator.metrics.reconciles(), bench.cloud.count(Verb::Get));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(operator.metrics.reconciles(), reconciles, "nobody works on it any more");
    assert_eq!(bench.cloud.count(Verb::Get), looks);
    operator.stop().await;
}

#[tokio::test]
async fn our_finalizer_removed_by_somebody_just_before_us_is_done_with() {
    let Some(bench) = Bench::open("removed-before").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    operator.spy.before(
        "/proxies/a",
        merge(bench.proxies(), "a".to_owned(), json!({"metadata": {"finalizers": null}})),
    );
    bench.delete("a").await;
    bench.until_gone("a").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let reconciles = operator.metrics.reconciles();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(operator.metrics.reconciles(), reconciles);
    assert_eq!(bench.cloud.machines(), []);
    operator.stop().await;
}

#[tokio::test]
async fn a_status_write_that_meets_another_version_is_repeated_from_a_fresh_read() {
    let Some(bench) = Bench::open("status-conflict").await else { return };
    let operator = bench.operator();
    let theirs = json!({"metadata": {"labels": {"team": "x"}}});
    operator.spy.before("/proxies/a/status", merge(bench.proxies(), "a".to_owned(), theirs));
    bench.create("a", managed()).await;
    let ready = bench.until_ready("a").await;
    assert_eq!(ready.metadata.labels.unwrap()["team"], "x");
    assert_eq!(bench.cloud.born(), 1);
    assert_eq!(operator.spy.proxy_writes().len(), 4, "three and the one that met another version");
    operator.stop().await;
}

#[tokio::test]
async fn a_machine_whose_object_went_before_its_id_was_written_is_deleted() {
    let Some(bench) = Bench::open("gone-in-between").await else { return };
    let operator = bench.operator();
    let proxies = bench.proxies();
    operator.spy.before("/proxies/a/status", async move {
        merge(proxies.clone(), "a".to_owned(), json!({"metadata": {"finalizers": null}})).await;
        drop(proxies.delete("a", &DeleteParams::default()).await.unwrap());
    });
    bench.create("a", managed()).await;
    bench.until_gone("a").await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !bench.cloud.machines().is_empty() || bench.cloud.born() == 0 {
        assert!(tokio::time::Instant::now() < deadline, "left behind: {:?}", bench.cloud.machines());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bench.cloud.born(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn an_object_of_the_same_name_with_another_uid_gets_a_machine_of_its_own() {
    let Some(bench) = Bench::open("same-name").await else { return };
    let operator = bench.operator();
    let first = bench.create("a", managed()).await;
    bench.until_ready("a").await;
    bench.delete("a").await;
    bench.until_gone("a").await;
    let second = bench.create("a", managed()).await;
    bench.until_ready("a").await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    let machines = bench.cloud.machines();
    assert_eq!(machines.len(), 1);
    assert_eq!(machines[0].name, format!("px-{}", second.metadata.uid.unwrap()));
    operator.stop().await;
}
