//! What becomes of a provider while the operator runs: nobody polls for it, so each change must be a
//! trigger; and what the config says of it holds whether or not it is loaded.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::Phase;
use egress_proxies_core::lifecycle::Policy;
use egress_proxies_core::provider::{Failure, Reason};

use crate::cloud::{Fault, Verb};
use crate::operator::{Bench, Crash, managed, provisioned, quick};
use crate::provider::Component;

/// Quick, but nothing that waits for a person or an administrator comes again by itself.
fn patient() -> Policy {
    Policy { slow_poll: Duration::from_hours(1), ..quick() }
}

#[tokio::test]
async fn a_request_that_can_not_work_is_tried_again_with_another_component() {
    let Some(bench) = Bench::open("new-component").await else { return };
    let never = Failure::new(Reason::Permanent, "this release knows no such image");
    bench.cloud.next(Verb::Validate, Fault::Refuse(never));
    let operator = bench.operator_with(patient(), Crash::never());
    bench.create("a", managed()).await;
    let told = bench.until("a", "PermanentError", |proxy| {
        provisioned(proxy).is_some_and(|(reason, _)| reason == "PermanentError")
    });
    assert!(provisioned(&told.await).unwrap().1.contains("no such image"));

    bench.shelf.put(Component::Ready("sha256:00"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.cloud.born(), 0, "the same component is not asked again");

    bench.shelf.put(Component::Ready("sha256:01"));
    bench.until_ready("a").await;
    assert_eq!(bench.cloud.born(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn while_a_provider_is_loading_nothing_is_written_and_then_the_machine_is_made() {
    let Some(bench) = Bench::open("loading").await else { return };
    bench.shelf.put(Component::Loading);
    let operator = bench.operator_with(patient(), Crash::never());
    bench.create("a", managed()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(operator.metrics.reconciles() > 0, "it was looked at");
    assert_eq!(operator.spy.proxy_writes(), Vec::<String>::new());
    assert_eq!(operator.spy.events(), 0);
    bench.shelf.put(Component::Ready("sha256:00"));
    bench.until_ready("a").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_provider_that_recovers_is_used_at_once() {
    let Some(bench) = Bench::open("recovers").await else { return };
    bench.shelf.put(Component::Failed);
    let operator = bench.operator_with(patient(), Crash::never());
    bench.create("a", managed()).await;
    let told = bench.until("a", "ProviderUnavailable", |proxy| {
        provisioned(proxy).is_some_and(|(reason, _)| reason == "ProviderUnavailable")
    });
    assert!(provisioned(&told.await).unwrap().1.contains("no such file"));
    bench.shelf.put(Component::Ready("sha256:00"));
    bench.until_ready("a").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_fleet_is_whole_while_its_provider_is_loading_or_can_not_be_loaded() {
    let Some(bench) = Bench::open("not-loaded").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    operator.stop().await;
    for component in [Component::Loading, Component::Failed] {
        bench.shelf.put(component.clone());
        let operator = bench.operator();
        let mut fleet = operator.fleet.clone();
        let ready = fleet.wait_for(|fleet| fleet.ready);
        let ready = tokio::time::timeout(Duration::from_secs(10), ready).await;
        let ready = ready.expect("one provider that is not loaded holds up the whole fleet").unwrap().clone();
        let facts = Arc::clone(ready.proxies.values().next().expect("known as soon as the fleet is ready"));
        let probe = facts.probe.as_ref().unwrap();
        assert_eq!(probe.url, "http://probe.of-the-provider.invalid/", "{component:?}");
        assert_eq!(facts.attributes["cloud"], "fake", "{component:?}");
        assert_eq!((facts.healthy, facts.phase), (Some(true), Phase::Ready), "{component:?}");

        bench.shelf.put(component.clone());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let later = Arc::clone(operator.fleet.borrow().proxies.values().next().unwrap());
        assert_eq!((&later.probe, &later.attributes), (&facts.probe, &facts.attributes), "{component:?}");
        operator.stop().await;
    }
}
