//! Deletions in bad company: the machine, the Secret or the provider went first, or nobody was there.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::provider::{Failure, Reason};
use serde_json::json;

use crate::cloud::{Fault, Verb};
use crate::operator::{Bench, Crash, managed, provisioned, quick};
use crate::provider::Component;

#[tokio::test]
async fn a_machine_removed_by_hand_does_not_hold_up_the_deletion() {
    let Some(bench) = Bench::open("by-hand").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    bench.cloud.lose_machines();
    bench.delete("a").await;
    bench.until_gone("a").await;
    assert_eq!(bench.cloud.machines(), []);
    operator.stop().await;
}

#[tokio::test]
async fn a_proxy_whose_secrets_went_first_is_deleted_all_the_same() {
    let Some(bench) = Bench::open("secrets-first").await else { return };
    let operator = bench.operator();
    let labels = json!({"crawl.example.com/cloud-init": "true", "crawl.example.com/proxy-auth": "true"});
    bench.secret("s", labels, json!({"text": "one", "username": "u", "password": "p"})).await;
    let refers = json!({
        "mode": "Managed", "provider": "fake",
        "cloudInit": {"secretRef": {"name": "s", "key": "text"}},
        "auth": {"secretRef": {"name": "s"}}
    });
    bench.create("made", refers.clone()).await;
    bench.until_ready("made").await;
    bench.delete_secret("s").await;
    bench.create("never-made", refers).await;
    bench
        .until("never-made", "CloudInitError", |proxy| {
            provisioned(proxy).is_some_and(|(reason, _)| reason == "CloudInitError")
        })
        .await;
    for name in ["made", "never-made"] {
        bench.delete(name).await;
    }
    for name in ["made", "never-made"] {
        bench.until_gone(name).await;
    }
    assert_eq!(bench.cloud.machines(), []);
    operator.stop().await;
}

#[tokio::test]
async fn a_deletion_waits_for_a_provider_that_was_removed_and_ends_when_it_is_back() {
    let Some(bench) = Bench::open("provider-first").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.create("external", json!({"mode": "External", "endpoint": {"host": "192.0.2.9", "port": 1}})).await;
    bench.until_ready("a").await;
    operator.stop().await;
    bench.shelf.put(Component::Removed);
    let operator = bench.operator();
    for name in ["a", "external"] {
        bench.delete(name).await;
    }
    bench.until_gone("external").await;
    bench
        .until("a", "waiting for its provider", |proxy| {
            provisioned(proxy).is_some_and(|(reason, message)| {
                reason == "ProviderUnavailable" && message.contains("crawl.example.com/abandon=true")
            })
        })
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        bench.cloud.machines().len(),
        1,
        "nobody can delete it now, so the object keeps its finalizer"
    );
    let told = bench.until_told("a", "ProviderUnavailable").await;
    let (kind, _, note) = told.last().unwrap();
    assert_eq!(kind, "Warning");
    for way in ["deleteOnly", "crawl.example.com/abandon=true"] {
        assert!(note.contains(way), "{note}");
    }
    bench.shelf.put(Component::Ready("sha256:00"));
    bench.until_gone("a").await;
    assert_eq!(bench.cloud.machines(), []);
    operator.stop().await;
}

#[tokio::test]
async fn a_proxy_deleted_while_no_operator_runs_leaves_nothing_of_a_create_that_nobody_wrote_down() {
    let Some(bench) = Bench::open("nobody-there").await else { return };
    // The finalizer, then the create: the operator ends before it has seen the answer.
    let crash = Crash::after(2);
    let first = bench.operator_with(quick(), Arc::clone(&crash));
    bench.create("a", managed()).await;
    crash.happened().await;
    drop(first);
    assert_eq!((bench.cloud.born(), bench.cloud.count(Verb::Create)), (1, 1));
    assert!(bench.get("a").await.unwrap().status.and_then(|status| status.provider_id).is_none());
    bench.delete("a").await;
    let second = bench.operator();
    bench.until_gone("a").await;
    assert_eq!((bench.cloud.born(), bench.cloud.machines()), (1, Vec::new()));
    second.stop().await;
}

#[tokio::test]
async fn a_proxy_forced_away_while_its_create_has_no_answer_leaves_no_machine() {
    let Some(bench) = Bench::open("forced-away").await else { return };
    bench.cloud.next(Verb::Create, Fault::LoseAnswer);
    let failure = Failure::new(Reason::Transient, "nobody answers");
    bench.cloud.next(Verb::Get, Fault::RefuseLate(Duration::from_secs(3), failure));
    let operator = bench.operator();
    bench.create("a", managed()).await;
    until(|| bench.cloud.count(Verb::Get) > 0).await; // it looks for what it may have made
    bench.delete("a").await;
    bench.patch("a", json!({"metadata": {"finalizers": null}})).await;
    bench.until_gone("a").await;
    until(|| bench.cloud.machines().is_empty()).await;
    assert_eq!(bench.cloud.born(), 1);
    operator.stop().await;
}

async fn until(holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waits).await.unwrap();
}
