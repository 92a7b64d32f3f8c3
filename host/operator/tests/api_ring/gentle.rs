//! Machines that work are exchanged gently: with room, after their leases, once for each request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use egress_proxies_core::facts::Fleet;
use egress_proxies_core::ids::ProxyUid;
use egress_proxies_core::lifecycle::{Caps, Policy};
use egress_proxies_core::provider::InstanceState;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::watch;

use crate::cloud::Verb;
use crate::operator::{Bench, Crash, is_ready, managed, provisioned, quick};

const REPLACE: &str = "crawl.example.com/replace";

/// Proxies that clients can be sent to.
fn serving(fleet: &Fleet) -> usize {
    fleet.proxies.values().filter(|facts| facts.serves()).count()
}

/// The fewest that served while `what` went on.
async fn fewest_serving(mut fleet: watch::Receiver<Fleet>, mut what: BoxFuture<'_, ()>) -> usize {
    let mut fewest = serving(&fleet.borrow_and_update());
    loop {
        tokio::select! {
            () = &mut what => return fewest,
            changed = fleet.changed() => {
                changed.unwrap();
                fewest = fewest.min(serving(&fleet.borrow_and_update()));
            }
        }
    }
}

fn says(proxy: &Proxy, reason: &str) -> bool {
    provisioned(proxy).is_some_and(|(said, _)| said == reason)
}

fn incarnation(proxy: &Proxy) -> Option<String> {
    proxy.status.as_ref().and_then(|status| status.incarnation.clone())
}

fn name(number: usize) -> String {
    format!("p{number:02}")
}

async fn many(bench: &Bench, count: usize, spec: &serde_json::Value) {
    for number in 0..count {
        bench.create(&name(number), spec.clone()).await;
    }
    for number in 0..count {
        bench.until_ready(&name(number)).await;
    }
}

#[tokio::test]
async fn one_bad_edit_of_a_secret_shared_by_fifty_leaves_four_fifths_serving() {
    let Some(bench) = Bench::open("shared-secret").await else { return };
    let caps = Caps { ready_within: Duration::from_secs(8), ..quick().caps };
    let operator = bench.operator_with(Policy { caps, ..quick() }, Crash::never());
    let label = json!({"crawl.example.com/cloud-init": "true"});
    bench.secret("boot", label, json!({"text": "good"})).await;
    let spec = json!({
        "mode": "Managed", "provider": "fake",
        "cloudInit": {"secretRef": {"name": "boot", "key": "text"}}
    });
    many(&bench, 50, &spec).await;
    let mut fleet = operator.fleet.clone();
    fleet.wait_for(|fleet| serving(fleet) == 50).await.unwrap();

    let what = async {
        bench.patch_secret("boot", json!({"stringData": {"text": "broken"}})).await;
        for number in 0..50 {
            let waits = |proxy: &Proxy| says(proxy, "ReplacementPaused") || !is_ready(proxy);
            bench.until(&name(number), "replaced or held back", waits).await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    let fewest = fewest_serving(fleet.clone(), what.boxed()).await;
    assert_eq!(fewest, 40);
    assert_eq!(bench.cloud.born(), 60, "no further one is tried");
    let held = bench.proxies().list(&Default::default()).await.unwrap();
    let held = held.items.iter().filter(|proxy| says(proxy, "ReplacementPaused"));
    assert_eq!(held.filter(|proxy| is_ready(proxy)).count(), 40, "they stay Ready and say why they wait");

    bench.patch_secret("boot", json!({"stringData": {"text": "good"}})).await;
    for number in 0..50 {
        bench.until_ready(&name(number)).await;
    }
    assert_eq!(bench.cloud.born(), 70, "only those that were taken away by the mistake were made anew");
    operator.stop().await;
}

#[tokio::test]
async fn a_machine_that_drains_keeps_its_address_until_its_last_lease_has_ended() {
    let Some(bench) = Bench::open("drain").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let ready = bench.until_ready("a").await;
    let uid = ProxyUid::parse(ready.metadata.uid.clone().unwrap()).unwrap();
    operator.leases.send_replace(Arc::new(BTreeMap::from([(uid, 1)])));
    bench.patch("a", json!({"spec": {"port": 8888}})).await;
    let drains = bench.until("a", "Draining", |proxy| says(proxy, "Draining")).await;
    let status = drains.status.clone().unwrap();
    assert_eq!((status.phase, status.ip.as_deref()), (Phase::Replacing, Some("198.51.100.7")));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.cloud.count(Verb::Delete), 0);
    let shown = operator
        .fleet
        .borrow()
        .proxies
        .values()
        .next()
        .map(|facts| (facts.machine.is_some(), facts.staying_machine().is_some()));
    assert_eq!(shown, Some((true, false)), "probed, and handed out no more");

    operator.leases.send_replace(Arc::default());
    let ended = tokio::time::Instant::now();
    let before = incarnation(&drains);
    bench.until("a", "Ready again", |proxy| is_ready(proxy) && incarnation(proxy) != before).await;
    assert!(ended.elapsed() < Duration::from_secs(10), "it went when the last lease ended");
    assert_eq!(bench.cloud.most_at_once(), 1);
    operator.stop().await;
}

/// The request was served: another machine, and nothing of it left to do.
async fn until_replaced(bench: &Bench, name: &str, nonce: &str, before: Option<String>) {
    let served = |proxy: &Proxy| {
        let status = proxy.status.as_ref();
        let done =
            status.is_some_and(|it| it.replace_nonce.as_deref() == Some(nonce) && it.replacing.is_none());
        done && is_ready(proxy) && incarnation(proxy) != before
    };
    bench.until(name, "Ready with another machine", served).await;
}

#[tokio::test]
async fn a_value_of_the_replace_annotation_makes_one_machine_wherever_the_operator_stops() {
    let Some(bench) = Bench::open("replace-crashes").await else { return };
    for effects in 1.. {
        let name = format!("a{effects}");
        let first = bench.operator();
        bench.create(&name, managed()).await;
        let before = incarnation(&bench.until_ready(&name).await);
        first.stop().await;
        let born = bench.cloud.born();
        let crash = Crash::after(effects);
        let second = bench.operator_with(quick(), Arc::clone(&crash));
        bench.patch(&name, json!({"metadata": {"annotations": {REPLACE: "n"}}})).await;
        let crashed = tokio::select! {
            () = crash.happened() => true,
            () = until_replaced(&bench, &name, "n", before.clone()) => false,
        };
        drop(second); // also one that did not come to its stop yet
        let last = bench.operator();
        until_replaced(&bench, &name, "n", before).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(bench.cloud.born() - born, 1, "machines made with a stop after {effects} effects");
        bench.delete(&name).await;
        bench.until_gone(&name).await;
        last.stop().await;
        if !crashed {
            assert!(effects > 5, "a replacement has at least five effects");
            break;
        }
    }
}

#[tokio::test]
async fn machines_that_all_look_stopped_at_once_are_left_alone_but_for_two() {
    let Some(bench) = Bench::open("suspect").await else { return };
    let operator = bench.operator();
    many(&bench, 12, &managed()).await;
    let mut fleet = operator.fleet.clone();
    fleet.wait_for(|fleet| serving(fleet) == 12).await.unwrap();
    let what = async {
        bench.cloud.show_all_as(Some(InstanceState::Stopped));
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    let fewest = fewest_serving(fleet.clone(), what.boxed()).await;
    assert!(fewest >= 10, "{fewest} of 12 served");
    let all = bench.proxies().list(&Default::default()).await.unwrap();
    let suspect: Vec<&Proxy> = all.items.iter().filter(|proxy| says(proxy, "FleetSuspect")).collect();
    assert!(suspect.len() >= 9, "{} say so", suspect.len());
    assert!(suspect.iter().filter(|proxy| is_ready(proxy)).count() >= 9, "and serve on");
    let (_, message) = provisioned(suspect[0]).unwrap();
    assert!(message.contains("account") && message.contains("fake"), "{message}");

    bench.cloud.show_all_as(None);
    fleet.wait_for(|fleet| serving(fleet) == 12).await.unwrap();
    assert!(bench.cloud.born() <= 14 + 2, "{} machines made", bench.cloud.born());
    operator.stop().await;
}
