//! Hand-over between two lifecycle loops over one cloud.

use std::time::Duration;

use egress_proxies_core::leader::Timing;
use egress_proxies_core::provider::{Failure, HostFault, Reason};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::contender::{Contender, short};
use crate::cloud::{Fault, Verb};
use crate::operator::{Bench, is_ready, managed};

const SOON: Duration = Duration::from_secs(30);
/// Less than a Lease takes to run out that its holder did not give up.
const GIVEN_UP: Duration = Duration::from_secs(9);

fn lease(bench: &Bench) -> Api<Lease> {
    Api::namespaced(bench.client.clone(), &bench.namespace)
}

async fn holder(bench: &Bench) -> Option<String> {
    lease(bench).get("operator").await.unwrap().spec.unwrap().holder_identity
}

#[tokio::test]
async fn a_leader_that_is_cut_off_stops_acting_before_another_begins_and_nothing_is_made_twice() {
    let Some(bench) = Bench::open("cut-off").await else { return };
    let first = Contender::start(&bench, "first", short()).await;
    first.leads(SOON).await;
    let second = Contender::start(&bench, "second", short()).await;
    for name in ["a", "b"] {
        bench.create(name, managed()).await;
        bench.until_ready(name).await;
    }
    assert_eq!(second.effects().len(), 0, "a standby does nothing");

    first.cut_off();
    // Reasons to act for whoever may: the cloud is open to both.
    bench.cloud.lose_machines();
    bench.create("c", managed()).await;
    second.leads(SOON).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while (bench.cloud.born(), bench.cloud.machines().len()) != (5, 3) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for name in ["a", "b", "c"] {
        bench.until_ready(name).await;
    }
    first.reconnect();
    let (_, why) = first.ended(SOON).await;
    assert!(why.contains("no longer leads") && why.contains("held by second now"), "{why}");
    let last = first.effects().into_iter().max().unwrap();
    let begins = second.effects().into_iter().min().unwrap();
    assert!(last < begins, "the first stopped {:?} too late", last - begins);
    // What was held up on the way may arrive now.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for name in ["a", "b", "c"] {
        assert!(is_ready(&bench.get(name).await.unwrap()), "{name}");
    }
    let alive = bench.cloud.machines().len();
    assert_eq!((bench.cloud.born(), alive), (5, 3), "two, then two again and one more");
    second.stop().await;
}

#[tokio::test]
async fn a_leader_alone_that_pauses_goes_on_afterwards_with_all_that_became_due() {
    let Some(bench) = Bench::open("pauses").await else { return };
    let leader = Contender::start(&bench, "leader", short()).await;
    leader.leads(SOON).await;
    for name in ["stays", "goes"] {
        bench.create(name, managed()).await;
        bench.until_ready(name).await;
    }
    // A create under way whose failure comes in the pause: it would latch, and says nothing if it was held back.
    let refused = Failure::new(Reason::Permanent, "the connection was closed");
    bench.cloud.next(Verb::Create, Fault::RefuseLate(Duration::from_secs(12), refused));
    bench.create("under-way", managed()).await;
    while bench.cloud.count(Verb::Create) < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leader.election_link.cut();
    leader.may_act_is(false, SOON).await;
    let writes = leader.spy.proxy_writes();
    // The watches go on: that all of this is due is known, and none of it is done.
    bench.create("new", managed()).await;
    bench.delete("goes").await;
    let before = bench.get("stays").await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(leader.spy.proxy_writes(), writes);
    assert_eq!(
        (bench.cloud.born(), bench.cloud.count(Verb::Create), bench.cloud.count(Verb::Delete)),
        (2, 3, 0)
    );
    assert!(*leader.acting.borrow(), "it knows all that it knew");

    leader.election_link.heal();
    leader.may_act_is(true, SOON).await;
    for name in ["new", "under-way"] {
        bench.until_ready(name).await;
    }
    bench.until_gone("goes").await;
    assert_eq!(bench.get("stays").await.unwrap(), before, "what is as it was needs no write");
    assert_eq!((bench.cloud.born(), bench.cloud.machines().len()), (4, 3), "nothing was made twice");
    assert_eq!(holder(&bench).await.as_deref(), Some("leader"));
    leader.stop().await;
    assert_eq!(holder(&bench).await, None, "given up as ever");
}

#[tokio::test]
async fn a_leader_whose_watches_died_in_a_pause_makes_nothing_from_what_was_true_before_it() {
    let Some(bench) = Bench::open("died-in-a-pause").await else { return };
    let leader = Contender::start(&bench, "leader", short()).await;
    leader.leads(SOON).await;
    bench.secret("boot", json!({"crawl.example.com/cloud-init": "true"}), json!({"text": "before"})).await;
    let cloud_init = json!({"secretRef": {"name": "boot", "key": "text"}});
    bench.create("a", json!({"mode": "Managed", "provider": "fake", "cloudInit": cloud_init})).await;
    bench.until_ready("a").await;
    leader.cut_off();
    leader.may_act_is(false, SOON).await;
    bench.patch_secret("boot", json!({"stringData": {"text": "after"}})).await;
    // Another machine is due at once.
    bench.cloud.lose_machines();
    leader.link.heal_for_new_connections();
    leader.election_link.heal_for_new_connections();
    leader.may_act_is(true, SOON).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    while bench.cloud.born() == 1 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bench.cloud.bootstraps(), ["before", "after"].map(|text| Some(text.to_owned())));
    bench.until_ready("a").await;
    leader.stop().await;
}

#[tokio::test]
async fn a_call_that_was_held_back_says_nothing_although_its_process_may_act_again() {
    let Some(bench) = Bench::open("held-back").await else { return };
    let held_back = Failure::new(Reason::Host(HostFault::HeldBack), "a request of the call was held back");
    bench.cloud.next(Verb::Create, Fault::Refuse(held_back));
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    assert_eq!((bench.cloud.born(), bench.cloud.count(Verb::Create)), (1, 2));
    assert_eq!(operator.spy.proxy_writes().len(), 3, "none of them says that it failed");
    operator.stop().await;
}

#[tokio::test]
async fn a_leader_told_to_end_hands_over_at_once_and_the_next_one_writes_nothing() {
    let Some(bench) = Bench::open("told-to-end").await else { return };
    let first = Contender::start(&bench, "first", Timing::default()).await;
    first.leads(SOON).await;
    for name in ["a", "b"] {
        bench.create(name, managed()).await;
        bench.until_ready(name).await;
    }
    let second = Contender::start(&bench, "second", Timing::default()).await;
    let mut fleet = second.fleet.clone();
    fleet.wait_for(|fleet| fleet.ready && fleet.proxies.len() == 2).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = (bench.get("a").await.unwrap(), bench.get("b").await.unwrap());

    let told = Instant::now();
    first.stop().await;
    let looks = bench.cloud.count(Verb::Get) + bench.cloud.count(Verb::List);
    // Up to 2 s until it looks, and then what it does before it acts. A Lease that was not given up takes 13 s
    // at least: 15 s from a renewal that is 2 s old.
    second.leads(GIVEN_UP).await;
    assert!(told.elapsed() < GIVEN_UP, "handed over in {:?}", told.elapsed());
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(bench.cloud.count(Verb::Get) + bench.cloud.count(Verb::List) > looks, "it looks at the machines");
    assert_eq!((second.spy.proxy_writes(), second.spy.events()), (Vec::<String>::new(), 0));
    assert_eq!((bench.get("a").await.unwrap(), bench.get("b").await.unwrap()), before);
    assert_eq!(bench.cloud.born(), 2);
    second.stop().await;
    assert_eq!(holder(&bench).await, None, "given up");
}

#[tokio::test]
async fn a_standby_with_a_dead_watch_reads_everything_anew_before_it_acts() {
    let Some(bench) = Bench::open("dead-watch").await else { return };
    let first = Contender::start(&bench, "first", short()).await;
    first.leads(SOON).await;
    bench.create("old", managed()).await;
    bench.until_ready("old").await;
    let second = Contender::start(&bench, "second", short()).await;
    let mut fleet = second.fleet.clone();
    fleet.wait_for(|fleet| fleet.proxies.len() == 1).await.unwrap();

    second.link.cut();
    bench.delete("old").await;
    bench.until_gone("old").await;
    bench.create("new", managed()).await;
    bench.until_ready("new").await;
    first.stop().await;
    while holder(&bench).await.as_deref() != Some("second") {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let elected = Instant::now();
    let calls = |verbs: [Verb; 5]| verbs.map(|verb| bench.cloud.count(verb));
    let all = [Verb::Validate, Verb::Create, Verb::Get, Verb::Delete, Verb::List];
    let before = calls(all);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(calls(all), before, "and does nothing about Proxies that it may know wrongly");
    assert_eq!(second.spy.proxy_writes(), Vec::<String>::new());
    assert!(!*second.acting.borrow());

    second.link.heal_for_new_connections();
    second.leads(Duration::from_secs(40)).await;
    assert!(elected.elapsed() < Duration::from_mins(1), "a watch that is dead goes unnoticed for 75 s");
    let known =
        second.fleet.borrow().proxies.values().map(|facts| facts.key.name.clone()).collect::<Vec<_>>();
    assert_eq!(known, ["new"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(second.spy.proxy_writes(), Vec::<String>::new());
    assert_eq!((bench.cloud.born(), bench.cloud.machines().len()), (2, 1));
    second.stop().await;
}

#[tokio::test]
async fn a_leader_whose_lease_somebody_gives_to_another_or_deletes_ends() {
    let Some(bench) = Bench::open("lease-taken").await else { return };
    let leader = Contender::start(&bench, "leader", short()).await;
    leader.leads(SOON).await;
    let patch = |spec| Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    lease(&bench).patch("operator", &params, &patch(json!({"leaseDurationSeconds": 4}))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        holder(&bench).await.as_deref(),
        Some("leader"),
        "an edit that takes nothing away changes nothing"
    );

    lease(&bench).patch("operator", &params, &patch(json!({"holderIdentity": "somebody"}))).await.unwrap();
    let (_, why) = leader.ended(SOON).await;
    assert!(why.contains("held by somebody now"), "{why}");

    let next = Contender::start(&bench, "next", short()).await;
    next.leads(SOON).await;
    lease(&bench).delete("operator", &DeleteParams::default()).await.unwrap();
    let (_, why) = next.ended(SOON).await;
    assert!(why.contains("deleted"), "{why}");
}

#[tokio::test]
async fn a_slow_api_server_costs_nobody_the_lead() {
    let Some(bench) = Bench::open("slow-server").await else { return };
    let leader = Contender::start(&bench, "leader", Timing::default()).await;
    leader.leads(SOON).await;
    let standby = Contender::start(&bench, "standby", Timing::default()).await;
    for contender in [&leader, &standby] {
        contender.election_link.slow(Duration::from_secs(1));
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(holder(&bench).await.as_deref(), Some("leader"));
    assert!(!*standby.acting.borrow());
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    leader.stop().await;
    standby.leads(SOON).await;
    standby.stop().await;
}
