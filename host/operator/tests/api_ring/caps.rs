//! Many machines that have to go at once meet the caps per minute: they go one after the other, in the order in
//! which they came, those that wait stay as they are, and all get through.

use std::collections::BTreeMap;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use egress_proxies_core::lifecycle::{Caps, Policy};
use egress_proxies_core::provider::{Instance, InstanceState, MaxUnavailable, Replacement};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use crate::operator::{Bench, Crash, Operator, is_ready, managed, provisioned, quick};

/// Of each kind.
const MANY: usize = 16;
/// A minute is the unit of the caps and can't be made shorter, so they are such that the test is: one a second.
const CAP: u32 = 60;
/// Neighbours may overtake one another on the way to the ledger.
const OVERTAKES: usize = 3;

fn names(kind: char) -> Vec<String> {
    (0..MANY).map(|number| format!("{kind}{number:02}")).collect()
}

/// An operator that begins to act now: its caps begin without their burst.
fn capped(bench: &Bench) -> (Operator, Instant) {
    let caps = Caps { replacements_per_minute: CAP, deletions_per_minute: CAP, ..quick().caps };
    (bench.operator_with(Policy { caps, ..quick() }, Crash::never()), Instant::now())
}

/// Whose machines went so far, of this kind, and when.
fn went(bench: &Bench, kind: char) -> Vec<(Instant, String)> {
    let taken = bench.cloud.taken();
    taken.into_iter().filter(|(_, name)| name.starts_with(kind)).collect()
}

/// All Proxies and their machines; then those whose machine went by then. Who is not among them waited.
struct Waiting {
    proxies: BTreeMap<String, Proxy>,
    machines: Vec<Instance>,
}

impl Waiting {
    async fn of(bench: &Bench) -> Self {
        let all = bench.proxies().list(&Default::default()).await.unwrap();
        let mut proxies: BTreeMap<String, Proxy> =
            all.into_iter().map(|proxy| (proxy.name_any(), proxy)).collect();
        let machines = bench.cloud.machines();
        for (_, name) in bench.cloud.taken() {
            proxies.remove(&name);
        }
        Self { proxies, machines }
    }

    /// They are as they were, but for one of each kind whose turn it is.
    fn check(&self) {
        let as_before = |(name, proxy): &(&String, &Proxy)| {
            let status = proxy.status.clone().unwrap_or_default();
            let runs = |it: &Instance| {
                status.provider_id.as_deref() == Some(it.id.as_str()) && it.state == InstanceState::Running
            };
            let shown = if name.starts_with('d') {
                status.phase == Phase::Deleting && proxy.metadata.deletion_timestamp.is_some()
            } else {
                let drains = provisioned(proxy).is_some_and(|(reason, _)| reason == "Draining");
                drains && status.ip.is_some()
            };
            shown && self.machines.iter().any(runs)
        };
        let others: Vec<_> = self.proxies.iter().filter(|it| !as_before(it)).collect();
        assert!(others.len() <= 2, "{others:#?}");
    }
}

async fn until_went(bench: &Bench, count: usize) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while went(bench, 'd').len() < count || went(bench, 'r').len() < count {
        assert!(Instant::now() < deadline, "{:?}", bench.cloud.taken());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Never more at once than the caps allow from the moment at which the operator began, and nobody is passed over.
fn check_order(taken: &[(Instant, String)], began: Instant, kind: char) {
    let mut order: Vec<&String> = taken.iter().map(|(_, name)| name).collect();
    for (rank, (at, _)) in taken.iter().enumerate() {
        let seconds = at.duration_since(began).as_secs_f64();
        let allowed = 1.0 + seconds * f64::from(CAP) / 60.0;
        let count = f64::from(u32::try_from(rank + 1).unwrap());
        assert!(count <= allowed, "{count} went in {seconds} s: {taken:?}");
    }
    let wanted = names(kind);
    for (rank, name) in wanted.iter().enumerate() {
        let found = order.iter().position(|it| *it == name).unwrap();
        assert!(found.abs_diff(rank) <= OVERTAKES, "{name} was number {found}: {order:?}");
    }
    order.sort();
    assert_eq!(order, wanted.iter().collect::<Vec<_>>(), "each went once");
}

#[tokio::test]
async fn machines_that_wait_under_the_caps_stay_as_they_are_and_go_in_their_order() {
    let Some(bench) = Bench::open("caps").await else { return };
    let all_at_once = Replacement { max_unavailable: MaxUnavailable::Percent(100), ..Replacement::default() };
    let bench = bench.replacing(all_at_once);
    let first = bench.operator();
    for name in names('d').iter().chain(&names('r')) {
        bench.create(name, managed()).await;
    }
    for name in names('d').iter().chain(&names('r')) {
        bench.until_ready(name).await;
    }
    first.stop().await;

    let (operator, began) = capped(&bench);
    for (deleted, replaced) in names('d').iter().zip(&names('r')) {
        bench.delete(deleted).await;
        bench.patch(replaced, json!({"spec": {"port": 8888}})).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until_went(&bench, MANY / 4).await;
    let early = Waiting::of(&bench).await;
    early.check();
    until_went(&bench, MANY / 2).await;
    let late = Waiting::of(&bench).await;
    late.check();
    let written: Vec<&String> = late
        .proxies
        .iter()
        .filter(|(name, proxy)| early.proxies[*name].resource_version() != proxy.resource_version())
        .map(|(name, _)| name)
        .collect();
    assert!(written.len() <= 4, "who waits is not written to: {written:?}");

    for name in names('d') {
        bench.until_gone(&name).await;
    }
    for name in names('r') {
        let current = |proxy: &Proxy| {
            let status = proxy.status.as_ref();
            is_ready(proxy) && status.and_then(|it| it.observed_generation) == proxy.metadata.generation
        };
        bench.until(&name, "Ready with another machine", current).await;
    }
    for kind in ['d', 'r'] {
        check_order(&went(&bench, kind), began, kind);
    }
    assert_eq!(bench.cloud.machines().len(), MANY);
    assert_eq!(bench.cloud.born(), 3 * u64::try_from(MANY).unwrap(), "one each, and one more for each edit");
    operator.stop().await;
}
