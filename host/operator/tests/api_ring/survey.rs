//! A fleet at rest is looked at by lists. Whoever is not in them as before is asked for.

use std::time::Duration;

use egress_proxies_core::lifecycle::Policy;
use egress_proxies_core::provider::{Failure, Instance, InstanceState, Reason};

use crate::cloud::{Fault, Verb};
use crate::operator::{Bench, Crash, Operator, is_ready, managed, quick};

const FLEET: usize = 6;

/// A list every 2 s, and else a look at each machine after 2.4 to 3 s.
fn policy() -> Policy {
    Policy { drift_poll: Duration::from_secs(3), list_from: 4, ..quick() }
}

fn names() -> impl Iterator<Item = String> {
    (0..FLEET).map(|number| format!("px{number}"))
}

async fn at_rest(bench: &Bench) -> Operator {
    let operator = bench.operator_with(policy(), Crash::never());
    for name in names() {
        bench.create(&name, managed()).await;
    }
    for name in names() {
        bench.until_ready(&name).await;
    }
    // Two lists: the first may come before the last verdict is written.
    tokio::time::sleep(Duration::from_secs(5)).await;
    operator
}

/// Calls of `get` and of `list` within so many seconds.
async fn calls_in(bench: &Bench, seconds: u64) -> (usize, usize) {
    let count = || (bench.cloud.count(Verb::Get), bench.cloud.count(Verb::List));
    let (gets, lists) = count();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    (count().0 - gets, count().1 - lists)
}

#[tokio::test]
async fn a_fleet_at_rest_costs_a_list_now_and_then_and_no_call_for_each_machine() {
    let Some(bench) = Bench::open("survey").await else { return };
    let operator = at_rest(&bench).await;
    let (writes, reconciles) = (operator.spy.proxy_writes().len(), operator.metrics.reconciles());
    let (gets, lists) = calls_in(&bench, 12).await;
    assert!((4..=7).contains(&lists), "{lists} lists in 12 s");
    // One late list costs a call for each.
    assert!(gets <= FLEET, "{gets} calls for single machines; without lists there are 24");
    assert_eq!(operator.spy.proxy_writes().len(), writes, "and nothing is written");
    let reconciles = operator.metrics.reconciles() - reconciles;
    assert!(reconciles <= 8 * FLEET, "{reconciles} reconciles, at most one after each list and one besides");

    bench.cloud.lose_machines();
    let born = bench.cloud.born();
    for name in names() {
        bench
            .until(&name, "made anew", |proxy| {
                let incarnation = proxy.status.as_ref().and_then(|status| status.incarnation.clone());
                let number = incarnation.and_then(|it| it.strip_prefix('m')?.parse::<u64>().ok());
                is_ready(proxy) && number.is_some_and(|number| number > born)
            })
            .await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn where_lists_fail_or_are_not_allowed_each_machine_is_asked_for() {
    let Some(bench) = Bench::open("survey-fails").await else { return };
    let operator = at_rest(&bench).await;
    for _ in 0..200 {
        let failure = Failure::new(Reason::Denied, "this key may get machines but not list them");
        bench.cloud.next(Verb::List, Fault::Refuse(failure));
    }
    let (gets, lists) = calls_in(&bench, 13).await;
    assert!(lists >= 1 && gets >= 3 * FLEET, "{lists} lists failed, {gets} gets");
    let runs = bench.cloud.machines().remove(0);
    let name = runs.tags["proxy-operator-name"].clone();
    bench.cloud.put(Instance { state: InstanceState::Stopped, endpoints: Vec::new(), ..runs });
    bench.until(&name, "hidden", |proxy| !is_ready(proxy)).await;
    operator.stop().await;
}
