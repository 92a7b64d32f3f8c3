//! Providers configs that are edited while Proxies live: one that points to another account, as a wrong project or
//! namespace does, and one with two accounts. The operator reads the file when it starts, so each edit comes with a
//! restart. Nothing is made, deleted or believed in an account in which the machine of a Proxy is not.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::{FINALIZER, Phase, Proxy};
use egress_proxies_core::provider::{Failure, Reason};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cloud::{Cloud, Fault, Verb};
use crate::operator::{Bench, Crash, Operator, has_reason, is_ready, managed, provisioned, quick};
use crate::provider::{Configured, Shelf};

/// Longer than what waits for a person waits between two looks.
const A_FEW_LOOKS: Duration = Duration::from_millis(4500);
const CALLS: [Verb; 5] = [Verb::Validate, Verb::Create, Verb::Get, Verb::Delete, Verb::List];

/// The operator, with `fake` pointing to another account than [`Bench::operator`] has it.
fn pointing_to(bench: &Bench, account: &'static str, cloud: &Arc<Cloud>) -> Operator {
    let shelf = Shelf::of(account, |_| {});
    configured(bench, Configured::new(shelf, Arc::clone(cloud), Crash::never()))
}

fn configured(bench: &Bench, providers: Configured) -> Operator {
    bench.operator_of(Arc::new(providers), bench.shelf.changes(), quick(), Crash::never())
}

/// Where the account of [`Bench::operator`] is, as `fake`.
fn here(bench: &Bench) -> Configured {
    Configured::new(Arc::clone(&bench.shelf), Arc::clone(&bench.cloud), Crash::never())
}

fn calls(cloud: &Cloud) -> [usize; 5] {
    CALLS.map(|verb| cloud.count(verb))
}

fn on(provider: &str) -> Value {
    json!({"mode": "Managed", "provider": provider})
}

fn incarnation(proxy: &Proxy) -> Option<String> {
    proxy.status.as_ref()?.incarnation.clone()
}

/// The text of the condition and of the Event, which is all that a person sees.
async fn said_out_of_scope(bench: &Bench, name: &str) -> String {
    let told = bench.until(name, "OutOfScope", |proxy| has_reason(proxy, "OutOfScope")).await;
    let (_, message) = provisioned(&told).unwrap();
    let (kind, _, note) = bench.until_told(name, "OutOfScope").await.pop().unwrap();
    assert_eq!((kind.as_str(), &note), ("Warning", &message), "{name}");
    message
}

#[tokio::test]
async fn while_the_config_points_elsewhere_machines_go_on_and_the_way_back_mends_all() {
    let Some(bench) = Bench::open("elsewhere").await else { return };
    let operator = bench.operator();
    for name in ["edited", "other"] {
        bench.create(name, managed()).await;
    }
    let first = [bench.until_ready("edited").await, bench.until_ready("other").await];
    operator.stop().await;

    let (elsewhere, machines) = (Cloud::new(), bench.cloud.machines());
    let before = calls(&bench.cloud);
    let operator = pointing_to(&bench, "elsewhere", &elsewhere);
    for name in ["edited", "other"] {
        let message = said_out_of_scope(&bench, name).await;
        for part in [
            "was made in \"fake\"",
            "now reaches \"elsewhere\"",
            "until the providers config points there again",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
    bench.patch("edited", json!({"spec": {"port": 8888}})).await;
    tokio::time::sleep(A_FEW_LOOKS).await;
    for (name, first) in ["edited", "other"].into_iter().zip(&first) {
        let now = bench.get(name).await.unwrap();
        assert!(is_ready(&now) && has_reason(&now, "OutOfScope"), "{name}: {:?}", now.status);
        let (now, first) = (now.status.unwrap(), first.status.clone().unwrap());
        assert_eq!((now.ip, now.incarnation), (first.ip, first.incarnation), "{name}");
        assert_eq!(now.observed_generation, Some(1), "{name}: nobody has looked whether it fits the edit");
    }
    let fleet = operator.fleet.borrow().clone();
    for facts in fleet.proxies.values() {
        assert_eq!((facts.healthy, facts.machine.is_some()), (Some(true), true), "clients get it: {facts:?}");
    }
    assert_eq!(calls(&elsewhere), [0; 5], "an absence there would prove nothing");
    assert_eq!((calls(&bench.cloud), bench.cloud.machines()), (before, machines));
    operator.stop().await;

    let operator = bench.operator();
    let back =
        bench.until("other", "as it was", |proxy| is_ready(proxy) && has_reason(proxy, "Created")).await;
    assert_eq!(incarnation(&back), incarnation(&first[1]));
    let replaced =
        |proxy: &Proxy| is_ready(proxy) && proxy.status.as_ref().unwrap().observed_generation == Some(2);
    let edited = bench.until("edited", "Ready with the machine of its edit", replaced).await;
    assert_ne!(incarnation(&edited), incarnation(&first[0]));
    assert_eq!((bench.cloud.born(), bench.cloud.machines().len(), elsewhere.born()), (3, 2, 0));
    operator.stop().await;
}

#[tokio::test]
async fn a_deletion_while_the_config_points_elsewhere_waits_for_the_way_back() {
    let Some(bench) = Bench::open("deleted-there").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    operator.stop().await;

    let elsewhere = Cloud::new();
    let operator = pointing_to(&bench, "elsewhere", &elsewhere);
    bench.create("b", managed()).await;
    bench.until_ready("b").await;
    bench.delete("a").await;
    let waits = |proxy: &Proxy| has_reason(proxy, "OutOfScope") && phase(proxy) == Some(Phase::Deleting);
    bench.until("a", "waiting for its account", waits).await;
    assert!(said_out_of_scope(&bench, "a").await.contains("until the providers config points there again"));
    tokio::time::sleep(A_FEW_LOOKS).await;
    let waiting = bench.get("a").await.expect("its machine is still there");
    assert_eq!(waiting.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    assert_eq!(waiting.status.as_ref().unwrap().ip, None, "nobody new is sent to it");
    assert_eq!((bench.cloud.machines().len(), elsewhere.machines().len()), (1, 1));
    assert_eq!((bench.cloud.count(Verb::Delete), elsewhere.count(Verb::Delete)), (0, 0));
    // The others go on.
    bench.delete("b").await;
    bench.until_gone("b").await;
    assert_eq!(elsewhere.machines(), []);
    operator.stop().await;

    let operator = bench.operator();
    bench.until_gone("a").await;
    assert_eq!((bench.cloud.machines(), bench.cloud.count(Verb::Delete)), (Vec::new(), 1));
    assert_eq!(elsewhere.count(Verb::Delete), 1);
    operator.stop().await;
}

fn phase(proxy: &Proxy) -> Option<Phase> {
    proxy.status.as_ref().map(|status| status.phase)
}

#[tokio::test]
async fn a_create_without_an_answer_is_not_repeated_in_another_account() {
    let Some(bench) = Bench::open("unanswered-there").await else { return };
    // The finalizer, then the create: the operator ends before it has seen the answer.
    let crash = Crash::after(2);
    let first = bench.operator_with(quick(), Arc::clone(&crash));
    bench.create("a", managed()).await;
    crash.happened().await;
    drop(first);
    assert_eq!(bench.cloud.born(), 1);

    let elsewhere = Cloud::new();
    let operator = pointing_to(&bench, "elsewhere", &elsewhere);
    let message = said_out_of_scope(&bench, "a").await;
    for part in ["may have been made in \"fake\"", "now reaches \"elsewhere\""] {
        assert!(message.contains(part), "{message}");
    }
    tokio::time::sleep(A_FEW_LOOKS).await;
    assert_eq!(phase(&bench.get("a").await.unwrap()), Some(Phase::Pending));
    assert_eq!(calls(&elsewhere), [0; 5]);
    operator.stop().await;

    let operator = bench.operator();
    bench.until_ready("a").await;
    assert_eq!((bench.cloud.born(), bench.cloud.count(Verb::Create)), (1, 1), "it is found, not made");
    operator.stop().await;
}

#[tokio::test]
async fn a_proxy_that_was_planned_in_a_wrong_account_is_freed_by_what_its_condition_says() {
    let Some(bench) = Bench::open("never-right").await else { return };
    let wrong = Cloud::new();
    for _ in 0..1000 {
        wrong.next(Verb::Create, Fault::Refuse(Failure::new(Reason::Transient, "no such host")));
    }
    let operator = pointing_to(&bench, "wrong", &wrong);
    bench.create("a", managed()).await;
    bench.until("a", "Retrying", |proxy| has_reason(proxy, "Retrying")).await;
    operator.stop().await;

    let operator = bench.operator();
    let message = said_out_of_scope(&bench, "a").await;
    let (_, command) = message.split_once("kubectl annotate px -n ").expect(&message);
    let mut words = command.split_whitespace();
    assert_eq!((words.next(), words.next()), (Some(bench.namespace.as_str()), Some("a")), "{message}");
    let removed = words.map(|word| (word.strip_suffix('-').expect(word).to_owned(), Value::Null));
    let annotations: serde_json::Map<String, Value> = removed.collect();
    assert_eq!(annotations.len(), 2, "{message}");
    assert_eq!(bench.cloud.count(Verb::Create), 0);
    bench.patch("a", json!({"metadata": {"annotations": annotations}})).await;
    bench.until_ready("a").await;
    assert_eq!((bench.cloud.born(), wrong.born()), (1, 0));
    operator.stop().await;
}

#[tokio::test]
async fn a_machine_is_deleted_through_the_provider_that_made_it_and_through_no_other() {
    let Some(bench) = Bench::open("two-accounts").await else { return };
    let (second, shelf) = (Cloud::new(), Shelf::of("second", |_| {}));
    let operator = configured(&bench, here(&bench).and("second", &shelf, &second));
    bench.create("a", managed()).await;
    bench.create("b", on("second")).await;
    let a = bench.until_ready("a").await;
    bench.until_ready("b").await;
    assert_eq!((bench.cloud.machines().len(), second.machines().len()), (1, 1));
    let edit = Patch::Merge(json!({"spec": {"provider": "fake"}}));
    let refused = bench.proxies().patch("b", &PatchParams::default(), &edit).await.unwrap_err().to_string();
    assert!(refused.contains("provider is immutable: delete the Proxy and create it anew"), "{refused}");
    operator.stop().await;

    // Its entry is gone, another one is there.
    let operator = bench.operator();
    let listed = bench.cloud.count(Verb::List);
    bench.delete("b").await;
    let waits = |proxy: &Proxy| {
        let told = provisioned(proxy).filter(|(reason, _)| reason == "ProviderUnavailable");
        told.is_some_and(|(_, message)| {
            message.contains("mode: deleteOnly is enough") && message.contains("\"second\"")
        })
    };
    bench.until("b", "waiting for its provider", waits).await;
    tokio::time::sleep(A_FEW_LOOKS).await;
    assert!(bench.get("b").await.is_some());
    assert_eq!((bench.cloud.count(Verb::Delete), bench.cloud.count(Verb::List)), (0, listed));
    assert_eq!(second.machines().len(), 1);
    operator.stop().await;

    let shelf = Shelf::of("second", |settings| settings.delete_only = true);
    let operator = configured(&bench, here(&bench).and("second", &shelf, &second));
    bench.until_gone("b").await;
    assert_eq!((second.machines(), second.count(Verb::Delete)), (Vec::new(), 1));
    assert_eq!((bench.cloud.machines().len(), bench.cloud.count(Verb::Delete)), (1, 0));
    assert_eq!(incarnation(&bench.until_ready("a").await), incarnation(&a));

    // The other provider has it made anew, under the same name.
    bench.create("b", managed()).await;
    bench.until_ready("b").await;
    assert_eq!((bench.cloud.machines().len(), second.born()), (2, 1));
    operator.stop().await;
}
