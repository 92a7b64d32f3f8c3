//! Garbage collection against a real API server: what a crash or a forced deletion leaves behind goes, and
//! nothing else does, whatever happens at the same time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_proxies_core::gc::{Policy, Seen, View};
use egress_proxies_core::ids::{InstanceId, ProviderName, ProxyKey};
use egress_proxies_core::provider::{Instance, InstanceState};
use egress_proxies_operator::clock::SystemClock;
use egress_proxies_operator::gc::{self, GcMetrics, GcSetup, PassOutcome, ProxyApi, ProxySource, Removed};
use egress_proxies_operator::kubernetes_client;
use egress_proxies_operator::leadership::Leadership;
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequestLayer;

use crate::cloud::Verb;
use crate::operator::{Bench, Crash, managed, quick};
use crate::provider::Configured;

const PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(300);

/// A running loop, and what it told of itself.
struct Collector {
    told: Arc<Told>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

struct Told {
    passes: watch::Sender<usize>,
    outcomes: Mutex<BTreeSet<&'static str>>,
    removed: Mutex<Vec<Removed>>,
}

impl GcMetrics for Told {
    fn pass(&self, outcome: PassOutcome) {
        self.outcomes.lock().unwrap().insert(outcome.as_str());
        self.passes.send_modify(|passes| *passes += 1);
    }
    fn seen(&self, _provider: &ProviderName, _seen: Option<(&Seen, Option<usize>)>) {}
    fn removed(&self, _provider: &ProviderName, removed: Removed) {
        self.removed.lock().unwrap().push(removed);
    }
}

fn view(names: &[&str]) -> View {
    match names {
        [] => View::All,
        names => View::Namespaces(names.iter().map(ToString::to_string).collect()),
    }
}

impl Collector {
    fn start(bench: &Bench, view: View, change: impl FnOnce(&mut GcSetup)) -> Self {
        let client = kubernetes_client::client(bench.config.clone()).unwrap();
        let told = Arc::new(Told {
            passes: watch::channel(0).0,
            outcomes: Mutex::default(),
            removed: Mutex::default(),
        });
        let fake = ProviderName::parse("fake").unwrap();
        let providers = Configured::new(Arc::clone(&bench.shelf), Arc::clone(&bench.cloud), Crash::never());
        let mut setup = GcSetup {
            proxies: Arc::new(ProxyApi::new(client, view.clone())),
            view,
            providers: Arc::new(providers),
            names: Arc::new(move || vec![fake.clone()]),
            cluster: "test-cluster".to_owned(),
            policy: Policy { min_age: Duration::ZERO, ..Policy::default() },
            interval: INTERVAL,
            dry_run: false,
            leadership: Leadership::alone(),
            clock: SystemClock::start(),
            metrics: Arc::<Told>::clone(&told),
        };
        change(&mut setup);
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let running = gc::run(setup, cancel.clone());
        tasks.spawn(async move { running.await.unwrap() });
        Self { told, cancel, tasks }
    }

    /// Waits until so many more passes have ended.
    async fn passes(&self, more: usize) {
        let mut passes = self.told.passes.subscribe();
        let until = *passes.borrow() + more;
        let reached = passes.wait_for(|passes| *passes >= until);
        drop(tokio::time::timeout(PATIENCE, reached).await.expect("passes go on").unwrap());
    }

    fn removed(&self) -> Vec<Removed> {
        self.told.removed.lock().unwrap().clone()
    }

    async fn stop(mut self) {
        self.cancel.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
        assert_eq!(*self.told.outcomes.lock().unwrap(), BTreeSet::from(["complete"]));
    }
}

/// The Proxy goes as if nobody had to clean up after it.
async fn force_away(bench: &Bench, name: &str) {
    bench.patch(name, json!({"metadata": {"finalizers": null}})).await;
    bench.delete(name).await;
    bench.until_gone(name).await;
}

/// Both Proxies are ready, then the operator ends and the first Proxy is forced away.
async fn one_orphan(bench: &Bench) {
    let operator = bench.operator();
    for name in ["forced", "living"] {
        bench.create(name, managed()).await;
        bench.until_ready(name).await;
    }
    operator.stop().await;
    force_away(bench, "forced").await;
}

/// Machines of this Proxy that nobody deletes.
fn machines_of(bench: &Bench, name: &str) -> Vec<Instance> {
    let mut all = bench.cloud.machines();
    all.retain(|it| it.tags["proxy-operator-name"] == name && it.state != InstanceState::Deleting);
    all
}

#[tokio::test]
async fn a_machine_whose_proxy_is_gone_is_deleted_after_two_passes_and_no_other() {
    let Some(bench) = Bench::open("gc-orphan").await else { return };
    one_orphan(&bench).await;
    let collector = Collector::start(&bench, view(&[]), |_| {});
    collector.passes(1).await;
    assert_eq!(machines_of(&bench, "forced").len(), 1, "once is never enough");
    collector.passes(1).await;
    assert_eq!(machines_of(&bench, "forced").len(), 0);
    collector.passes(3).await;
    assert_eq!(machines_of(&bench, "living").len(), 1);
    // While it goes it may be looked at again, in case its delete hangs; by then it is gone.
    let mut removed = collector.removed();
    removed.retain(|it| *it != Removed::Spared);
    assert_eq!((removed, bench.cloud.count(Verb::Delete)), (vec![Removed::Deleted], 1));
    collector.stop().await;
}

#[tokio::test]
async fn a_proxy_made_again_under_its_name_does_not_keep_the_old_machine() {
    let Some(bench) = Bench::open("gc-same-name").await else { return };
    one_orphan(&bench).await;
    bench
        .create("forced", json!({"mode": "External", "endpoint": {"host": "192.0.2.1", "port": 3128}}))
        .await;
    let collector = Collector::start(&bench, view(&[]), |_| {});
    collector.passes(2).await;
    assert_eq!(machines_of(&bench, "forced").len(), 0);
    assert_eq!(machines_of(&bench, "living").len(), 1);
    collector.stop().await;
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let Some(bench) = Bench::open("gc-dry-run").await else { return };
    one_orphan(&bench).await;
    let collector = Collector::start(&bench, view(&[]), |setup| setup.dry_run = true);
    collector.passes(3).await;
    assert_eq!(machines_of(&bench, "forced").len(), 1);
    assert_eq!(bench.cloud.count(Verb::Delete), 0);
    assert_eq!(collector.removed()[..2], [Removed::DryRun; 2]);
    collector.stop().await;
}

#[tokio::test]
async fn the_machine_of_another_cluster_is_left() {
    let Some(bench) = Bench::open("gc-two-clusters").await else { return };
    one_orphan(&bench).await;
    let mut theirs = machines_of(&bench, "forced").remove(0);
    theirs.id = InstanceId::parse("fake/theirs").unwrap();
    theirs.tags.insert("proxy-operator-cluster".to_owned(), "another-cluster".to_owned());
    bench.cloud.put(theirs.clone());
    let collector = Collector::start(&bench, view(&[]), |_| {});
    collector.passes(4).await;
    assert_eq!(machines_of(&bench, "forced"), [theirs]);
    collector.stop().await;
}

#[tokio::test]
async fn a_view_of_some_namespaces_judges_machines_of_these_alone() {
    let Some(bench) = Bench::open("gc-namespaces").await else { return };
    one_orphan(&bench).await;
    let elsewhere = Collector::start(&bench, view(&["default"]), |_| {});
    elsewhere.passes(4).await;
    assert_eq!(machines_of(&bench, "forced").len(), 1, "its Proxy would not be seen");
    elsewhere.stop().await;
    let here = Collector::start(&bench, view(&["default", &bench.namespace]), |_| {});
    here.passes(2).await;
    assert_eq!(machines_of(&bench, "forced").len(), 0);
    assert_eq!(machines_of(&bench, "living").len(), 1);
    here.stop().await;
}

#[tokio::test]
async fn a_machine_whose_id_was_never_written_down_stays_while_its_proxy_lives() {
    let Some(bench) = Bench::open("gc-unrecorded").await else { return };
    // Effects: the metadata patch, then the create; its answer never arrives.
    let crash = Crash::after(2);
    let operator = bench.operator_with(quick(), Arc::clone(&crash));
    bench.create("a", managed()).await;
    crash.happened().await;
    drop(operator);
    assert!(bench.get("a").await.unwrap().status.is_none_or(|status| status.provider_id.is_none()));
    let collector = Collector::start(&bench, view(&[]), |_| {});
    collector.passes(4).await;
    assert_eq!(machines_of(&bench, "a").len(), 1);
    // A deletion that waits for its finalizer is the finalizer's.
    bench.delete("a").await;
    collector.passes(4).await;
    assert_eq!((machines_of(&bench, "a").len(), collector.removed()), (1, Vec::new()));
    let second = bench.operator();
    bench.until_gone("a").await;
    assert_eq!((bench.cloud.born(), bench.cloud.machines()), (1, Vec::new()));
    second.stop().await;
    collector.stop().await;
}

#[tokio::test]
async fn a_surplus_machine_goes_and_the_recorded_one_stays() {
    let Some(bench) = Bench::open("gc-surplus").await else { return };
    one_orphan(&bench).await;
    let recorded = machines_of(&bench, "living").remove(0);
    let id = InstanceId::parse("fake/second").unwrap();
    bench.cloud.put(Instance { id, ..recorded.clone() });
    let collector = Collector::start(&bench, view(&[]), |_| {});
    collector.passes(3).await;
    assert_eq!(machines_of(&bench, "living"), [recorded]);
    collector.stop().await;
}

#[tokio::test]
async fn proxies_made_and_deleted_while_passes_run_lose_no_machine_to_them() {
    let Some(bench) = Bench::open("gc-racing").await else { return };
    let operator = bench.operator();
    let collector = Collector::start(&bench, view(&[]), |setup| setup.interval = Duration::from_millis(20));
    for round in 0..5 {
        let names: Vec<String> = (0..6).map(|number| format!("p{round}-{number}")).collect();
        for name in &names {
            bench.create(name, managed()).await;
        }
        for name in &names {
            bench.until_ready(name).await;
        }
        for name in &names[1..] {
            bench.delete(name).await;
        }
    }
    for round in 0..5 {
        bench.until_gone(&format!("p{round}-5")).await;
        assert_eq!(machines_of(&bench, &format!("p{round}-0")).len(), 1);
    }
    assert_eq!(collector.removed(), [], "the lifecycle alone deleted");
    assert_eq!(bench.cloud.born(), 30, "no machine had to be made anew");
    collector.stop().await;
    operator.stop().await;
}

#[tokio::test]
async fn all_pages_are_read_and_a_list_that_breaks_off_is_an_error() {
    let Some(bench) = Bench::open("gc-pages").await else { return };
    for number in 0..5 {
        let spec = json!({"mode": "External", "endpoint": {"host": "192.0.2.1", "port": 3128}});
        bench.create(&format!("p{number}"), spec).await;
    }
    let here = view(&[&bench.namespace]);
    let list = |client: Client| {
        let api = ProxyApi::new(client, here.clone()).pages_of(2);
        async move { api.list().await }
    };
    let whole = list(kubernetes_client::client(bench.config.clone()).unwrap()).await.unwrap();
    let names: BTreeSet<&str> = whole.values().map(|proxy| proxy.key.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["p0", "p1", "p2", "p3", "p4"]));

    // The second page is asked for with a token that the API server does not know.
    let cut = MapRequestLayer::new(|mut request: Request<Body>| {
        let uri = request.uri().to_string();
        if let Some((before, _)) = uri.split_once("continue=") {
            *request.uri_mut() = format!("{before}continue=cut").parse().unwrap();
        }
        request
    });
    let cut = kubernetes_client::builder(bench.config.clone()).unwrap().with_layer(&cut).build();
    assert!(list(cut).await.is_err(), "a part is not all");

    let api = ProxyApi::new(bench.client.clone(), View::All);
    let key = |name: &str| ProxyKey::new(bench.namespace.clone(), name);
    let (uid, _) = api.get(&key("p3")).await.unwrap().unwrap();
    assert!(whole.contains_key(&uid));
    assert_eq!(api.get(&key("p9")).await.unwrap(), None);
}
