//! Hand-over between two processes of the built binary while the first makes a fleet with the kubernetes provider as a
//! component: it is killed, stopped, or cut off from all but the cloud, with Proxies at every stage of the way. Nothing
//! is made twice, and nothing is left in the end. Needs `EPO_GUESTS_DIR` (kubernetes.wasm); without it a line says that
//! these tests are skipped.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::node::{Node, PROVIDER};
use super::processes::{HAND_OVER, LATE, PROMISED, SOON, with_lateness};
use super::replica::{Answering, Replica};
use super::wire::{Asked, Wire};
use crate::operator::Bench;

/// Proxies that are being made when the leader is struck, beside one that is Ready.
const FLEET: usize = 30;
/// Between two of them: faster than the provider's calls at once (8) can make them, so that some wait.
const PACE: Duration = Duration::from_millis(60);
/// What each request of the leader takes to the API server, and its answer back.
const SLOW: Duration = Duration::from_millis(500);
/// It is struck when so many of them have their Pod, or soon after.
const STRUCK_AT: usize = 6;
/// At least so many are at each stage then.
const AT_EACH: usize = 2;
/// A component that is not in the store yet has to be compiled.
const STARTS_IN: Duration = Duration::from_mins(3);
/// Nobody may act for longer than 10 s after the last renewal; as much again as a busy machine is late.
const ACTS_ON: Duration = Duration::from_secs(12);

static SKIPPED: Once = Once::new();

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment where the components are")]
fn component() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("EPO_GUESTS_DIR") else {
        // Not with `eprintln!`: what that says is shown only of tests that fail.
        let say = || {
            writeln!(
                std::io::stderr(),
                "SKIPPED: no provider component, so that hand-overs amid creates pass without having run. Run `make test`, or set EPO_GUESTS_DIR to a folder with kubernetes.wasm."
            )
        };
        SKIPPED.call_once(|| say().expect("standard error takes a line"));
        return None;
    };
    let path = Path::new(&folder).join("kubernetes.wasm");
    assert!(path.exists(), "{} is not built; providers/build builds it", path.display());
    Some(path)
}

/// The Pods are at the bench's own address, and in its own namespace.
fn providers_config(component: &Path, namespace: &str) -> String {
    let provider = json!({
        "source": {"file": component},
        "kubernetes": {"namespace": namespace, "serviceAccount": PROVIDER, "resources": ["pods", "secrets"]},
        "addressCidrs": ["127.0.0.0/8"],
    });
    let kind = json!({
        "apiVersion": "crawl.example.com/v1alpha1", "kind": "ProvidersConfig",
        "providers": {"kubernetes": provider},
    });
    kind.to_string()
}

/// Names of the fleet.
fn fleet() -> Vec<String> {
    (0..FLEET).map(|number| format!("p-{number}")).collect()
}

/// The one that was Ready before, and the fleet.
fn all() -> Vec<String> {
    [vec!["first".to_owned()], fleet()].concat()
}

/// A process that leads, with a Proxy that is Ready, and another one that stands by.
struct Scene {
    bench: Bench,
    node: Node,
    proxy: Answering,
    /// The ways of both.
    wires: [Wire; 2],
    leader: Replica,
    standby: Replica,
}

impl Scene {
    async fn open(purpose: &str) -> Option<Self> {
        let component = component()?;
        let bench = Bench::open(purpose).await?;
        let (node, proxy) = (Node::start(&bench).await, Answering::start().await);
        let config = providers_config(&component, &bench.namespace);
        let wires = [Wire::to(bench.config.clone()).await, Wire::to(bench.config.clone()).await];
        let leader = start(&bench, "leader", &wires[0], &config).await;
        let port = proxy.port;
        make(&bench, "first", port).await;
        bench.until_ready("first").await;
        let standby = start(&bench, "standby", &wires[1], &config).await;
        Some(Self { bench, node, proxy, wires, leader, standby })
    }

    /// Makes the fleet, and strikes the leader when some of it have their Pod, others are being made, and the answer
    /// about one is on its way, as is what is written down about another. When that was.
    async fn struck(&self, strike: impl FnOnce()) -> Instant {
        self.wires[0].slow(SLOW);
        let making = async {
            for name in fleet() {
                make(&self.bench, &name, self.proxy.port).await;
                sleep(PACE).await;
            }
        };
        let striking = async {
            self.node.until("some have their Pod", SOON, |pods| pods.made() > STRUCK_AT).await;
            let amid = async || self.is_amid().then_some(());
            self.leader.until("it is amid all that", SOON, amid).await;
            strike();
            Instant::now()
        };
        tokio::join!(making, striking).1
    }

    fn is_amid(&self) -> bool {
        let asked = self.wires[0].asked();
        let on_its_way = |which: fn(&Asked) -> bool| {
            asked.iter().filter(|it| which(it) && it.arrived.is_none()).count() >= AT_EACH
        };
        on_its_way(Asked::creates)
            && on_its_way(Asked::records)
            && self.made_unheard(Instant::now()) >= AT_EACH
    }

    /// How many of these requests of the leader were on their way then.
    fn on_their_way(&self, then: Instant, which: impl Fn(&Asked) -> bool) -> usize {
        let arrived_later = |it: &Asked| it.sent < then && it.arrived.is_some_and(|arrived| arrived > then);
        self.wires[0].asked().iter().filter(|it| which(it) && arrived_later(it)).count()
    }

    /// How many Pods were made of which the leader had not heard then.
    fn made_unheard(&self, then: Instant) -> usize {
        let unheard = |arrived: Instant| arrived < then && arrived + SLOW > then;
        let asked = self.wires[0].asked();
        asked.iter().filter(|it| it.has_made() && it.arrived.is_some_and(unheard)).count()
    }

    /// It leads, and gives leases, in time.
    async fn the_other_works(&self, struck: Instant) {
        let (_, late) = with_lateness(self.standby.leases(HAND_OVER)).await;
        let took = struck.elapsed();
        assert!(late > LATE || took <= PROMISED, "it works after {took:?}, timers were up to {late:?} late");
        let leases = Api::<Lease>::namespaced(self.bench.client.clone(), &self.bench.namespace);
        let lease = leases.get("egress-proxies-operator").await.unwrap().spec.unwrap();
        assert!(lease.holder_identity.is_some_and(|holder| holder.starts_with("standby_")));
    }

    /// All of these are Ready, each with the one Pod that it ever had, and no other Pod was ever made.
    async fn are_whole(&self, names: &[String]) {
        for name in names {
            let proxy = self.bench.until_ready(name).await;
            let uid = proxy.metadata.uid.unwrap();
            let machine = proxy.status.and_then(|status| status.incarnation).unwrap();
            assert_eq!(self.node.pods.borrow().of.get(&uid), Some(&vec![machine]), "{name} {uid}");
        }
        let made = self.wires.iter().flat_map(Wire::asked).filter(Asked::has_made).count();
        let pods = self.node.pods.borrow();
        assert_eq!((pods.made(), made, pods.doubles.as_slice()), (FLEET + 1, FLEET + 1, [].as_slice()));
    }

    /// Deletes these, until they have no Pods.
    async fn let_go(&self, names: &[String]) {
        let mut uids = BTreeSet::new();
        for name in names {
            uids.extend(self.bench.get(name).await.unwrap().metadata.uid);
            self.bench.delete(name).await;
        }
        let gone = format!("{names:?} have no Pods");
        self.node.until(&gone, SOON, |pods| pods.there.values().all(|owner| !uids.contains(owner))).await;
    }

    /// The first one comes back to a fleet that it knows wrongly, and ends. Since then nothing that changes anything
    /// was sent by it.
    async fn comes_back_and_ends(&self, back: impl FnOnce(), since: Instant) {
        // Some that it was about to make, and some that it has made.
        let (gone, stay): (Vec<_>, Vec<_>) = all().into_iter().enumerate().partition(|(at, _)| at % 3 == 1);
        let [gone, stay] =
            [gone, stay].map(|part| part.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
        self.let_go(&gone).await;
        back();
        assert_eq!(self.leader.exit_code(SOON).await, 1, "{}", self.leader.log());
        let log = self.leader.log();
        assert!(log.contains("no longer leads and must not act"), "{log}");
        // What it may have sent arrives.
        sleep(SLOW * 4).await;
        let asked = self.wires[0].asked();
        let late: Vec<_> = asked.iter().filter(|it| it.changes() && it.sent > since).collect();
        assert!(late.is_empty(), "sent by one that may not act: {late:#?}\n{log}");
        self.are_whole(&stay).await;
        assert_eq!(self.node.left().await, stay.len());
        self.ends_with(&stay).await;
    }

    /// Deletes these, which are all that there are: no Pod is left, and none was made meanwhile.
    async fn ends_with(&self, names: &[String]) {
        self.let_go(names).await;
        assert_eq!((self.node.left().await, self.node.pods.borrow().made()), (0, FLEET + 1));
    }
}

async fn start(bench: &Bench, name: &str, wire: &Wire, config: &str) -> Replica {
    let replica = Replica::start_with(wire, bench, name, config).await;
    let ready = async || (replica.probe("/readyz").await?.0 == 200).then_some(());
    replica.until("it is ready", STARTS_IN, ready).await;
    replica
}

async fn make(bench: &Bench, name: &str, port: u16) {
    bench.create(name, json!({"mode": "Managed", "provider": "kubernetes", "port": port})).await;
}

#[tokio::test]
async fn a_leader_killed_while_it_makes_a_fleet_leaves_one_pod_for_each_proxy_and_none_too_many() {
    let Some(scene) = Scene::open("fleet-killed").await else { return };
    let struck = scene.struck(|| scene.leader.signal("KILL")).await;
    scene.the_other_works(struck).await;
    let landed = scene.on_their_way(struck, Asked::creates);
    let lost = scene.on_their_way(struck, Asked::records);
    let unheard = scene.made_unheard(struck);
    assert!(landed.min(lost).min(unheard) >= AT_EACH, "it died between: {landed}, {lost}, {unheard}");
    scene.are_whole(&all()).await;
    scene.ends_with(&all()).await;
}

#[tokio::test]
async fn a_leader_stopped_while_it_makes_a_fleet_makes_nothing_when_it_wakes_up() {
    let Some(scene) = Scene::open("fleet-stopped").await else { return };
    let struck = scene.struck(|| scene.leader.signal("STOP")).await;
    scene.the_other_works(struck).await;
    let (landed, unheard) = (scene.on_their_way(struck, Asked::creates), scene.made_unheard(struck));
    assert!(landed.min(unheard) >= AT_EACH, "it was stopped between: {landed}, {unheard}");
    scene.are_whole(&all()).await;
    scene.comes_back_and_ends(|| scene.leader.signal("CONT"), struck + SLOW).await;
}

#[tokio::test]
async fn a_leader_cut_off_from_all_but_the_cloud_while_it_makes_a_fleet_leaves_the_cloud_alone_in_time() {
    let Some(scene) = Scene::open("fleet-cut").await else { return };
    let struck = scene.struck(|| scene.wires[0].cut_off_but_from_the_cloud()).await;
    scene.the_other_works(struck).await;
    let reached = |it: &Asked| it.is_of_cloud && it.sent > struck && it.arrived.is_some();
    assert!(scene.wires[0].asked().iter().any(reached), "the cloud is open to it");
    scene.are_whole(&all()).await;
    scene.comes_back_and_ends(|| scene.wires[0].heal(), struck + ACTS_ON).await;
    let arrived = scene.on_their_way(struck, Asked::records);
    assert!(arrived >= AT_EACH, "what it had written down arrived in the end: {arrived}");
}
