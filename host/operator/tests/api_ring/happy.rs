//! The ordinary life of a Proxy: how little is written, and that it is found and cleaned up.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::FINALIZER;
use egress_proxies_core::lifecycle::Policy;
use serde_json::json;

use crate::cloud::Verb;
use crate::operator::{Bench, Crash, managed, provisioned, quick};

#[tokio::test]
async fn from_apply_to_ready_there_are_three_writes_and_at_most_two_events() {
    let Some(bench) = Bench::open("three-writes").await else { return };
    bench.cloud.take_looks(1, 1);
    let operator = bench.operator_with(Policy::default(), Crash::never());
    bench.create("a", managed()).await;
    let ready = bench.until_ready("a").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let path = format!("PATCH /apis/crawl.example.com/v1alpha1/namespaces/{}/proxies/a", bench.namespace);
    assert_eq!(
        operator.spy.proxy_writes(),
        [path.clone(), format!("{path}/status"), format!("{path}/status")]
    );
    assert!(operator.spy.events() <= 2, "{} events", operator.spy.events());
    let status = ready.status.unwrap();
    assert_eq!(status.ip.as_deref(), Some("198.51.100.7"));
    assert_eq!(status.port, Some(3128));
    assert_eq!(status.latency_millis, Some(12));
    operator.stop().await;
}

#[tokio::test]
async fn an_ordinary_life_is_told_without_a_warning() {
    let Some(bench) = Bench::open("no-warning").await else { return };
    // Slower to be judged than the status waits for it.
    bench.cloud.take_looks(1, 1);
    let patient = Policy { verdict_wait: Duration::ZERO, ..quick() };
    let operator = bench.operator_with(patient, Crash::never());
    bench.create("managed", managed()).await;
    bench.create("external", json!({"mode": "External", "endpoint": {"host": "192.0.2.9", "port": 1}})).await;
    for name in ["managed", "external"] {
        bench.until_ready(name).await;
    }
    for (name, most) in [("managed", 2), ("external", 1)] {
        let told = bench.until_told(name, "ProbeSucceeded").await;
        assert!(told.len() <= most, "{name}: {told:?}");
        assert!(told.iter().all(|(kind, ..)| kind == "Normal"), "{name}: {told:?}");
    }
    operator.stop().await;
}

#[tokio::test]
async fn at_rest_nothing_is_written_and_only_the_drift_poll_reconciles() {
    let Some(bench) = Bench::open("at-rest").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let writes = operator.spy.proxy_writes().len();
    let (reconciles, looks) = (operator.metrics.reconciles(), bench.cloud.count(Verb::Get));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(operator.spy.proxy_writes().len(), writes);
    let reconciles = operator.metrics.reconciles() - reconciles;
    assert_eq!(reconciles, bench.cloud.count(Verb::Get) - looks, "each reconcile is a look at the machine");
    assert!((4..=7).contains(&reconciles), "{reconciles} reconciles in 5 s with a poll of 0.8 to 1 s");
    operator.stop().await;
}

#[tokio::test]
async fn the_finalizer_stays_while_the_machine_is_being_deleted() {
    let Some(bench) = Bench::open("still-deleting").await else { return };
    bench.cloud.take_looks(0, u32::MAX);
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    bench.delete("a").await;
    let deleting = bench
        .until("a", "Deleting", |proxy| provisioned(proxy).is_some_and(|(reason, _)| reason == "Deleting"));
    assert_eq!(deleting.await.metadata.finalizers.unwrap(), [FINALIZER]);
    assert_eq!(bench.cloud.machines().len(), 1);
    bench.cloud.take_looks(0, 0);
    bench.until_gone("a").await;
    assert_eq!(bench.cloud.machines(), []);
    assert_eq!(bench.cloud.count(Verb::Delete), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_machine_that_vanished_is_made_anew() {
    let Some(bench) = Bench::open("vanished").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let first = bench.until_ready("a").await.status.unwrap().incarnation;
    bench.cloud.lose_machines();
    let again = bench.until("a", "Ready with another machine", move |proxy| {
        let status = proxy.status.as_ref().unwrap();
        crate::operator::is_ready(proxy) && status.incarnation != first
    });
    again.await;
    assert_eq!(bench.cloud.born(), 2);
    operator.stop().await;
}

#[tokio::test]
async fn an_external_proxy_becomes_ready_without_provider_or_finalizer() {
    let Some(bench) = Bench::open("external").await else { return };
    let operator = bench.operator();
    let spec = json!({"mode": "External", "endpoint": {"host": "203.0.113.9", "port": 8080}});
    bench.create("a", spec).await;
    let ready = bench.until_ready("a").await;
    assert_eq!(ready.metadata.finalizers, None);
    let status = ready.status.unwrap();
    assert_eq!((status.ip.as_deref(), status.port), (Some("203.0.113.9"), Some(8080)));
    let writes = operator.spy.proxy_writes();
    assert!(writes.len() <= 2 && writes.iter().all(|write| write.ends_with("/status")), "{writes:?}");
    bench.delete("a").await;
    bench.until_gone("a").await;
    operator.stop().await;
}

#[tokio::test]
async fn the_fleet_follows_the_objects() {
    let Some(bench) = Bench::open("fleet").await else { return };
    let operator = bench.operator();
    let mut fleet = operator.fleet.clone();
    let spec = json!({"mode": "Managed", "provider": "fake", "attributes": {"geo": "eu"}});
    bench.create("a", spec).await;
    let shows = fleet
        .wait_for(|fleet| fleet.ready && fleet.proxies.values().any(|facts| facts.healthy == Some(true)));
    let facts = Arc::clone(shows.await.unwrap().proxies.values().next().unwrap());
    assert_eq!(facts.attributes["geo"], "eu");
    assert_eq!(facts.machine.as_ref().unwrap().incarnation.as_str(), "m1");
    bench.delete("a").await;
    fleet.wait_for(|fleet| fleet.proxies.is_empty()).await.unwrap();
    operator.stop().await;
}
