//! What clouds do to machines: they have none left, take them away, stop them, give them other addresses, and
//! answer that now is not the time.

use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use egress_proxies_core::lifecycle::Policy;
use egress_proxies_core::provider::{Failure, InstanceState, Reason};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cloud::{Fault, Verb};
use crate::operator::{Bench, Crash, has_reason, is_ready, managed, provisioned, quick};

fn in_zone(zone: &str) -> Value {
    json!({"mode": "Managed", "provider": "fake", "placement": {"zone": zone}})
}

fn incarnation(proxy: &Proxy) -> Option<String> {
    proxy.status.as_ref()?.incarnation.clone()
}

#[tokio::test]
async fn a_machine_that_never_came_to_be_tells_why_and_is_not_asked_for_again_before_the_back_off() {
    let Some(bench) = Bench::open("never-came").await else { return };
    bench.cloud.take_looks(1000, 0);
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until("a", "Provisioning", |proxy| has_reason(proxy, "Provisioning")).await;
    let why = Failure::new(Reason::Capacity, "zone europe-west1-b has none left");
    bench.cloud.take_looks(0, 0);
    bench.cloud.lose_machines_because(why);
    let told = bench.until("a", "QuotaExceeded", |proxy| has_reason(proxy, "QuotaExceeded")).await;
    assert!(provisioned(&told).unwrap().1.contains("zone europe-west1-b"), "{told:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(bench.cloud.count(Verb::Create), 1, "not before the quota poll");
    bench.until_ready("a").await;
    assert_eq!((bench.cloud.born(), bench.cloud.most_at_once()), (2, 1));
    operator.stop().await;
}

#[tokio::test]
async fn a_location_that_has_none_left_holds_up_nobody_else() {
    let Some(bench) = Bench::open("dry-zone").await else { return };
    let operator = bench.operator();
    bench.create("dry", in_zone("dry")).await;
    let good: Vec<String> = (0..12).map(|number| format!("good{number}")).collect();
    for name in &good {
        bench.create(name, in_zone("wet")).await;
    }
    for name in &good {
        bench.until_ready(name).await;
    }
    let told = bench.until("dry", "QuotaExceeded", |proxy| has_reason(proxy, "QuotaExceeded")).await;
    assert!(provisioned(&told).unwrap().1.contains("zone dry"), "{told:?}");
    assert_eq!(bench.cloud.born(), 12);
    operator.stop().await;
}

#[tokio::test]
async fn what_is_missing_upstream_is_named_and_asked_for_slowly_until_it_is_there_or_the_spec_is_another() {
    let Some(bench) = Bench::open("missing").await else { return };
    // Of the second one nothing comes by itself: its next try would be in a quarter of an hour.
    for (name, first) in [("restored", Duration::from_millis(100)), ("edited", Duration::from_mins(1))] {
        let (tried, born) = (bench.cloud.count(Verb::Create), bench.cloud.born());
        for _ in 0..100 {
            let retired = Failure::new(Reason::Missing, "image family squid-9 does not exist");
            bench.cloud.next(Verb::Create, Fault::Refuse(retired));
        }
        let began = Instant::now();
        let operator = bench.operator_with(Policy { backoff_first: first, ..quick() }, Crash::never());
        bench.create(name, managed()).await;
        let told = bench.until(name, "Missing", |proxy| has_reason(proxy, "Missing")).await;
        assert!(provisioned(&told).unwrap().1.contains("image family squid-9"), "{told:?}");
        let status = told.status.unwrap();
        assert_eq!((status.phase, status.ip, status.provider_id), (Phase::Pending, None, None), "{name}");
        let (kind, reason, note) = bench.until_told(name, "Missing").await.pop().unwrap();
        assert!(kind == "Warning" && note.contains("image family squid-9"), "{kind} {reason}: {note}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        // The waits are 1.5 s and more, less a fifth.
        let most = 1 + began.elapsed().as_millis() / 1200;
        let tries = bench.cloud.count(Verb::Create) - tried;
        assert!(u128::try_from(tries).unwrap() <= most, "{name}: {tries} tries, {most} are due");
        assert_eq!(bench.cloud.born(), born, "{name}");
        bench.cloud.forgive();
        if name == "edited" {
            bench.patch(name, json!({"spec": {"placement": {"image": "squid-10"}}})).await;
        }
        bench.until_ready(name).await;
        assert_eq!(bench.cloud.born(), born + 1, "{name}");
        operator.stop().await;
    }
}

#[tokio::test]
async fn a_machine_with_our_name_and_another_owner_is_neither_used_nor_deleted() {
    let Some(bench) = Bench::open("name-taken").await else { return };
    bench.cloud.take_names();
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until("a", "NameConflict", |proxy| has_reason(proxy, "NameConflict")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let shown = bench.get("a").await.unwrap().status.unwrap();
    assert_eq!((shown.ip, shown.provider_id), (None, None), "it is not ours to show");
    bench.delete("a").await;
    bench.until_gone("a").await;
    assert_eq!(bench.cloud.count(Verb::Delete), 0);
    assert_eq!(bench.cloud.machines().len(), 1, "it stays with its owner");
    assert_eq!(bench.cloud.born(), 0);
    operator.stop().await;
}

#[tokio::test]
async fn a_machine_that_stopped_or_failed_is_hidden_at_once_and_made_anew() {
    for (purpose, state) in [("stopped", InstanceState::Stopped), ("failed", InstanceState::Failed)] {
        let Some(bench) = Bench::open(purpose).await else { return };
        bench.cloud.take_looks(0, 2);
        let operator = bench.operator();
        bench.create("a", managed()).await;
        let first = incarnation(&bench.until_ready("a").await);
        bench.cloud.put_machines(&state, None);
        let hidden = bench.until("a", "hidden", |proxy| {
            let status = proxy.status.as_ref();
            status.is_some_and(|status| status.ip.is_none()) && !is_ready(proxy)
        });
        assert_eq!(bench.cloud.born(), 1, "{purpose}: {:?}", hidden.await.status);
        bench
            .until("a", "Ready with another machine", |proxy| is_ready(proxy) && incarnation(proxy) != first)
            .await;
        assert_eq!((bench.cloud.born(), bench.cloud.most_at_once()), (2, 1), "{purpose}");
        operator.stop().await;
    }
}

#[tokio::test]
async fn a_machine_that_came_back_with_another_address_is_shown_with_it() {
    let Some(bench) = Bench::open("readdressed").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let first = incarnation(&bench.until_ready("a").await);
    bench.cloud.put_machines(&InstanceState::Running, Some("198.51.100.8"));
    let moved = bench.until("a", "at its new address", |proxy| {
        is_ready(proxy) && proxy.status.as_ref().unwrap().ip.as_deref() == Some("198.51.100.8")
    });
    assert_eq!(incarnation(&moved.await), first, "it is the same machine");
    let fleet = operator.fleet.borrow().clone();
    let facts = fleet.proxies.values().next().unwrap();
    assert_eq!(facts.machine.as_ref().unwrap().address, "198.51.100.8");
    assert_eq!(bench.cloud.born(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_delete_that_cannot_be_accepted_yet_is_repeated() {
    let Some(bench) = Bench::open("not-ready-yet").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    for reason in [Reason::Busy, Reason::Transient] {
        bench.cloud.next(Verb::Delete, Fault::Refuse(Failure::new(reason, "the resource is not ready")));
    }
    bench.delete("a").await;
    bench.until_gone("a").await;
    assert_eq!((bench.cloud.count(Verb::Delete), bench.cloud.machines()), (3, Vec::new()));
    operator.stop().await;
}

#[tokio::test]
async fn a_proxy_deleted_while_its_machine_is_being_made_leaves_none_and_no_complaint() {
    let Some(bench) = Bench::open("being-made").await else { return };
    bench.cloud.take_looks(1000, 2);
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until("a", "Provisioning", |proxy| has_reason(proxy, "Provisioning")).await;
    bench.delete("a").await;
    bench.until_gone("a").await;
    assert_eq!((bench.cloud.count(Verb::Delete), bench.cloud.machines()), (1, Vec::new()));
    operator.stop().await;
}

#[tokio::test]
async fn looks_that_fail_after_a_create_lead_to_no_second_machine() {
    let Some(bench) = Bench::open("failed-looks").await else { return };
    for _ in 0..3 {
        let failure = Failure::new(Reason::Transient, "the address could not be read");
        bench.cloud.next(Verb::Get, Fault::Refuse(failure));
    }
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    assert_eq!((bench.cloud.born(), bench.cloud.count(Verb::Create)), (1, 1));
    operator.stop().await;
}
