//! A provider with `mode: deleteOnly` in the providers config: nothing is made, what runs goes on, whoever waits for a
//! machine is told why, and everything can be deleted. Without that line all goes on where it was.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use egress_proxies_core::provider::{Instance, InstanceState};
use serde_json::json;

use crate::cloud::Verb;
use crate::operator::{Bench, Crash, Operator, has_reason, is_ready, managed, provisioned, quick};
use crate::provider::{Configured, Shelf};

const NAMES: [&str; 4] = ["kept", "edited", "asked", "ended"];

/// Four Proxies that are Ready, then the line is there. The second value is what was asked for until then.
async fn only_deleting(bench: &Bench) -> (Operator, [usize; 2]) {
    let operator = bench.operator();
    for name in NAMES {
        bench.create(name, managed()).await;
    }
    for name in NAMES {
        bench.until_ready(name).await;
    }
    operator.stop().await;
    let shelf = Shelf::of("fake", |settings| settings.delete_only = true);
    let providers = Configured::new(shelf, Arc::clone(&bench.cloud), Crash::never());
    let operator = bench.operator_of(Arc::new(providers), bench.shelf.changes(), quick(), Crash::never());
    (operator, makings(bench))
}

/// Calls that make a machine, or prepare that.
fn makings(bench: &Bench) -> [usize; 2] {
    [Verb::Validate, Verb::Create].map(|verb| bench.cloud.count(verb))
}

/// The machine of this Proxy comes to an end by itself.
fn ends(bench: &Bench, name: &str) {
    let mut machines = bench.cloud.machines().into_iter();
    let machine = machines.find(|machine| machine.tags["proxy-operator-name"] == name).unwrap();
    bench.cloud.put(Instance { state: InstanceState::Failed, endpoints: Vec::new(), ..machine });
}

fn incarnation(proxy: &Proxy) -> Option<String> {
    proxy.status.as_ref()?.incarnation.clone()
}

/// Waits until it says that its provider only deletes; answers with the Proxy.
async fn says_why(bench: &Bench, name: &str) -> Proxy {
    let told =
        bench.until(name, "ProviderUnavailable", |proxy| has_reason(proxy, "ProviderUnavailable")).await;
    let (_, message) = provisioned(&told).unwrap();
    for part in ["provider fake", "mode: deleteOnly", "remove that line from the providers config"] {
        assert!(message.contains(part), "{name}: {message}");
    }
    let (kind, _, note) = bench.until_told(name, "ProviderUnavailable").await.pop().unwrap();
    assert_eq!((kind.as_str(), note), ("Warning", message), "{name}");
    told
}

#[tokio::test]
async fn a_provider_that_only_deletes_makes_nothing_and_what_runs_goes_on_until_that_line_is_gone() {
    let Some(bench) = Bench::open("only-deletes").await else { return };
    let (operator, before) = only_deleting(&bench).await;
    bench.create("new", managed()).await;
    bench.patch("edited", json!({"spec": {"port": 8888}})).await;
    let asks = json!({"metadata": {"annotations": {"crawl.example.com/replace": "1"}}});
    bench.patch("asked", asks).await;
    ends(&bench, "ended");
    let new = says_why(&bench, "new").await;
    assert_eq!(
        (new.metadata.finalizers, new.status.unwrap().phase),
        (None, Phase::Pending),
        "nothing to clean up"
    );
    let edited = says_why(&bench, "edited").await;
    assert!(is_ready(&edited), "{:?}", edited.status);
    assert_eq!(edited.status.unwrap().observed_generation, Some(1), "it is about the spec before the edit");
    assert!(is_ready(&says_why(&bench, "asked").await));
    let ended = says_why(&bench, "ended").await.status.unwrap();
    assert_eq!((ended.phase, ended.ip, ended.provider_id), (Phase::Pending, None, None));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let first = ["kept", "edited", "asked"].map(|name| bench.get(name));
    let first = futures::future::join_all(first).await.into_iter().map(Option::unwrap).collect::<Vec<_>>();
    assert!(first.iter().all(is_ready), "{first:#?}");
    assert!(has_reason(&first[0], "Created"), "nothing is wanted of it");
    assert_eq!((makings(&bench), bench.cloud.machines().len()), (before, 3));
    assert_eq!(bench.cloud.count(Verb::Delete), 1, "only the machine that had come to its end");
    operator.stop().await;

    let operator = bench.operator();
    for name in ["new", "ended"] {
        bench.until_ready(name).await;
    }
    for (name, first) in ["edited", "asked"].into_iter().zip(&first[1..]) {
        let other = |proxy: &Proxy| is_ready(proxy) && incarnation(proxy) != incarnation(first);
        bench.until(name, "Ready with another machine", other).await;
    }
    let kept = bench.get("kept").await.unwrap();
    assert_eq!(incarnation(&kept), incarnation(&first[0]));
    assert_eq!((bench.cloud.born(), bench.cloud.machines().len()), (8, 5));
    operator.stop().await;
}

#[tokio::test]
async fn a_provider_that_only_deletes_deletes_every_machine_and_lets_its_proxies_go() {
    let Some(bench) = Bench::open("deletes-all").await else { return };
    let (operator, before) = only_deleting(&bench).await;
    bench.create("new", managed()).await;
    says_why(&bench, "new").await;
    for name in NAMES.into_iter().chain(["new"]) {
        bench.delete(name).await;
    }
    for name in NAMES.into_iter().chain(["new"]) {
        bench.until_gone(name).await;
    }
    assert_eq!((makings(&bench), bench.cloud.machines()), (before, Vec::new()));
    assert_eq!(bench.cloud.count(Verb::Delete), NAMES.len());
    operator.stop().await;
}
