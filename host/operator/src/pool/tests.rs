//! The store and its loop over a real pool, with the time standing still unless a test moves it.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::{Mode, Phase};
use egress_proxies_core::facts::{Fleet, GoodProbe, LeaseCounts, Machine, ProbeRequest, ProxyFacts};
use egress_proxies_core::ids::{Incarnation, LeaseId, ProxyKey, ProxyUid};
use egress_proxies_core::pool::{
    DEFAULT_COOLDOWN, DEFAULT_TTL, Granted, LeasePort, Order, Outcome, Refusal, Report,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{MemoryStore, Sweeper, SweeperChannels};
use crate::clock::{Clock, SystemClock};

fn proxy(name: &str, max_leases: Option<u32>) -> ProxyFacts {
    ProxyFacts {
        max_leases,
        phase: Phase::Ready,
        machine: Some(Machine {
            incarnation: Incarnation::parse(format!("{name}-1")).unwrap(),
            address: "192.0.2.1".to_owned(),
            port: 3128,
        }),
        healthy: Some(true),
        ..ProxyFacts::new(ProxyKey::new("default", name), ProxyUid::parse(name).unwrap(), Mode::Managed)
    }
}

fn fleet(proxies: impl IntoIterator<Item = ProxyFacts>) -> Fleet {
    let proxies = proxies.into_iter().map(|facts| (facts.uid.clone(), Arc::new(facts))).collect();
    Fleet { ready: true, proxies: Arc::new(proxies) }
}

struct World {
    store: Arc<MemoryStore>,
    fleet: watch::Sender<Fleet>,
    good_probes: mpsc::Sender<GoodProbe>,
    probe_requests: mpsc::Receiver<ProbeRequest>,
    counts: watch::Receiver<LeaseCounts>,
    clock: Arc<SystemClock>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// A store with its loop running.
fn world(start: Fleet, probe_room: usize) -> World {
    let clock = SystemClock::start();
    let (fleet, watched) = watch::channel(start);
    let (good_probes, good_rx) = mpsc::channel(8);
    let (probe_tx, probe_requests) = mpsc::channel(probe_room);
    let (counts_tx, counts) = watch::channel(LeaseCounts::default());
    let store =
        Arc::new(MemoryStore::new(watched.clone(), Arc::<SystemClock>::clone(&clock), DEFAULT_COOLDOWN));
    let channels =
        SweeperChannels { fleet: watched, good_probes: good_rx, probe_requests: probe_tx, counts: counts_tx };
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(Sweeper::new(Arc::<MemoryStore>::clone(&store), channels).run(stop.clone()));
    World { store, fleet, good_probes, probe_requests, counts, clock, stop, tasks }
}

impl World {
    async fn lease(&self) -> Result<Granted, Refusal> {
        self.store.acquire(Order { ttl: DEFAULT_TTL, ..Order::default() }).await
    }

    async fn unreachable(&self, lease: LeaseId) {
        let report = Report { outcome: Outcome::Unreachable, target: None, cooldown: None, release: true };
        self.store.report(lease, report).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn counts_are_published_on_change_and_when_a_lease_ends_by_itself() {
    let mut world = world(fleet([proxy("p", None)]), 8);
    world.lease().await.unwrap();
    world.counts.changed().await.unwrap();
    assert_eq!(world.counts.borrow_and_update().values().copied().collect::<Vec<_>>(), [1]);
    assert!(timeout(Duration::from_secs(290), world.counts.changed()).await.is_err(), "no news, no message");
    timeout(Duration::from_secs(12), world.counts.changed()).await.unwrap().unwrap();
    assert!(world.counts.borrow_and_update().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_replaced_machine_end_with_it() {
    let mut world = world(fleet([proxy("p", None)]), 8);
    let granted = world.lease().await.unwrap();
    world.counts.changed().await.unwrap();
    world.counts.mark_unchanged();
    let mut replaced = proxy("p", None);
    replaced.machine.as_mut().unwrap().incarnation = Incarnation::parse("p-2").unwrap();
    world.fleet.send_replace(fleet([replaced]));
    timeout(Duration::from_millis(200), world.counts.changed()).await.unwrap().unwrap();
    assert!(world.counts.borrow().is_empty());
    assert_eq!(world.store.renew(granted.id, None).await, Err(Refusal::MachineGone));
}

#[tokio::test(start_paused = true)]
async fn a_report_of_unreachable_forces_a_probe_at_once_and_its_success_brings_the_proxy_back() {
    let mut world = world(fleet([proxy("p", None)]), 8);
    let granted = world.lease().await.unwrap();
    sleep(Duration::from_secs(5)).await;
    world.unreachable(granted.id).await;
    let request = timeout(Duration::from_millis(100), world.probe_requests.recv()).await.unwrap().unwrap();
    assert_eq!(request.incarnation.as_str(), "p-1");
    assert!(world.lease().await.is_err());
    let answer =
        GoodProbe { uid: request.uid, incarnation: request.incarnation, started: world.clock.now().mono };
    world.good_probes.send(answer).await.unwrap();
    sleep(Duration::from_millis(200)).await;
    assert!(world.lease().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn probe_requests_without_an_answer_are_repeated_and_each_gets_its_turn_where_there_is_room_for_one() {
    let mut world = world(fleet([proxy("a", None), proxy("b", None)]), 1);
    for _ in 0..2 {
        let granted = world.lease().await.unwrap();
        world.unreachable(granted.id).await;
    }
    sleep(Duration::from_secs(1)).await;
    let mut asked = Vec::new();
    for wait in [2, 10, 2] {
        let request = world.probe_requests.recv().await.unwrap();
        assert!(world.probe_requests.try_recv().is_err(), "there was room for one");
        asked.push(request.uid.to_string());
        sleep(Duration::from_secs(wait)).await;
    }
    assert_eq!(asked, ["a", "b", "a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_get_one_lease_where_one_is_allowed() {
    let world = world(fleet([proxy("p", Some(1))]), 8);
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let store = Arc::clone(&world.store);
        calls.spawn(async move { store.acquire(Order { ttl: DEFAULT_TTL, ..Order::default() }).await });
    }
    let answers = calls.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_loop_ends_when_told_to_and_lives_without_its_channels() {
    let World { store, fleet, good_probes, probe_requests, stop, mut tasks, .. } = world(Fleet::default(), 1);
    drop((fleet, good_probes, probe_requests));
    sleep(Duration::from_secs(5)).await;
    assert!(tasks.try_join_next().is_none(), "the loop ended by itself");
    assert_eq!(store.acquire(Order::default()).await, Err(Refusal::NotReady));
    stop.cancel();
    timeout(Duration::from_secs(1), tasks.join_next()).await.unwrap().unwrap().unwrap();
}
