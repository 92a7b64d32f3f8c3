//! The engine with a scripted prober, under paused time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_proxies_core::crd::{Mode, Phase};
use egress_proxies_core::facts::{
    Fleet, GoodProbe, Machine, ProbePlan, ProbeRequest, ProxyFacts, Suspicions, Verdicts,
};
use egress_proxies_core::health::{Outcome, ProbeReason};
use egress_proxies_core::ids::{Incarnation, ProxyKey, ProxyUid};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::SystemClock;
use crate::health::probe::ProbeTarget;

mod suspicion;

type Step = (Duration, Outcome);

/// Answers by the address of the machine; the last step repeats.
#[derive(Clone)]
struct Script {
    start: Instant,
    steps: Arc<Mutex<BTreeMap<String, VecDeque<Step>>>>,
    log: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Prober for Script {
    async fn probe(&self, target: ProbeTarget) -> Outcome {
        let address = target.machine.address.clone();
        let seconds = self.start.elapsed().as_secs();
        self.log.lock().unwrap().push((seconds, address.clone()));
        let (delay, outcome) = {
            let mut steps = self.steps.lock().unwrap();
            let steps = steps.get_mut(&address).expect("a script for every address");
            if steps.len() > 1 { steps.pop_front().unwrap() } else { steps[0].clone() }
        };
        tokio::time::sleep(delay).await;
        assert!(target.plan.url != "panic://", "a bug in the prober");
        outcome
    }
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl ProbeMetrics for Recorder {
    fn observe(&self, key: &ProxyKey, _duration: Duration, failure: Option<ProbeReason>) {
        self.0.lock().unwrap().push(format!("{} {}", key.name, failure.map_or("ok", ProbeReason::as_str)));
    }
    fn forget(&self, key: &ProxyKey) {
        self.0.lock().unwrap().push(format!("{} forgotten", key.name));
    }
    fn suspected_targets(&self, _count: usize) {}
}

/// A running engine and the other ends of its ports.
struct Rig {
    fleet: watch::Sender<Fleet>,
    requests: mpsc::Sender<ProbeRequest>,
    verdicts: watch::Receiver<Verdicts>,
    suspicions: watch::Receiver<Suspicions>,
    good: mpsc::Receiver<GoodProbe>,
    script: Script,
    recorder: Arc<Recorder>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Rig {
    fn start(proxies: &[ProxyFacts], max_in_flight: usize) -> Self {
        let (fleet, fleet_rx) = watch::channel(fleet_of(proxies));
        let (requests, requests_rx) = mpsc::channel(16);
        let (verdicts_tx, verdicts) = watch::channel(Verdicts::default());
        let (suspicions_tx, suspicions) = watch::channel(Suspicions::default());
        let (good_tx, good) = mpsc::channel(16);
        let script = Script { start: Instant::now(), steps: Arc::default(), log: Arc::default() };
        let recorder = Arc::new(Recorder::default());
        let seen: Arc<dyn ProbeMetrics> = Arc::<Recorder>::clone(&recorder);
        let ports = Ports {
            fleet: fleet_rx,
            requests: requests_rx,
            verdicts: verdicts_tx,
            suspicions: suspicions_tx,
            good: good_tx,
        };
        let engine =
            Engine::new(ports, script.clone(), SystemClock::start(), seen, EngineSettings { max_in_flight });
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(engine.run(stop.clone()));
        Self { fleet, requests, verdicts, suspicions, good, script, recorder, stop, tasks }
    }

    fn answer(&self, name: &str, steps: impl IntoIterator<Item = Step>) {
        self.script.steps.lock().unwrap().insert(name.to_owned(), steps.into_iter().collect());
    }

    fn answer_all(&self, names: &[String], step: &Step) {
        for name in names {
            self.answer(name, [step.clone()]);
        }
    }

    fn probes(&self, name: &str) -> Vec<u64> {
        let log = self.script.log.lock().unwrap();
        log.iter().filter(|(_, probed)| probed == name).map(|(seconds, _)| *seconds).collect()
    }

    fn verdict(&self, name: &str) -> Option<(bool, &'static str)> {
        let verdicts = self.verdicts.borrow();
        verdicts.get(&uid(name)).map(|verdict| (verdict.healthy, verdict.reason))
    }

    fn seen(&self) -> Vec<String> {
        self.recorder.0.lock().unwrap().clone()
    }

    async fn ask(&self, name: &str, incarnation: &str) {
        let incarnation = Incarnation::parse(incarnation).unwrap();
        self.requests.send(ProbeRequest { uid: uid(name), incarnation }).await.unwrap();
    }
}

async fn pass_seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn pass_millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn uid(name: &str) -> ProxyUid {
    ProxyUid::parse(format!("uid-{name}")).unwrap()
}

fn fleet_of(proxies: &[ProxyFacts]) -> Fleet {
    let by_uid = proxies.iter().map(|facts| (facts.uid.clone(), Arc::new(facts.clone()))).collect();
    Fleet { ready: true, proxies: Arc::new(by_uid) }
}

fn proxy(name: &str, healthy: Option<bool>) -> ProxyFacts {
    ProxyFacts {
        phase: Phase::Ready,
        machine: Some(Machine {
            incarnation: Incarnation::parse("m1").unwrap(),
            address: name.to_owned(),
            port: 3128,
        }),
        healthy,
        probe: Some(ProbePlan {
            url: "https://target.example/".to_owned(),
            expected_status: vec![200],
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            success_threshold: 1,
            failure_threshold: 3,
            networks: Arc::default(),
            ca_pem: None,
            insecure_skip_verify: false,
        }),
        ..ProxyFacts::new(ProxyKey::new("ns", name), uid(name), Mode::Managed)
    }
}

fn with_machine(mut facts: ProxyFacts, incarnation: &str) -> ProxyFacts {
    facts.machine.as_mut().unwrap().incarnation = Incarnation::parse(incarnation).unwrap();
    facts
}

fn ok() -> Step {
    (Duration::from_millis(50), Outcome::Passed { latency: Duration::from_millis(50) })
}

fn fails(reason: ProbeReason) -> Step {
    (Duration::from_millis(50), Outcome::Failed { reason, message: reason.to_string() })
}

#[tokio::test(start_paused = true)]
async fn a_new_proxy_with_a_long_interval_is_probed_at_once() {
    let mut slow = proxy("a", None);
    slow.probe.as_mut().unwrap().interval = Duration::from_mins(10);
    let rig = Rig::start(&[], 8);
    rig.answer("a", [ok()]);
    pass_seconds(100).await;
    rig.fleet.send_replace(fleet_of(&[slow]));
    pass_seconds(1).await;
    assert_eq!(rig.verdict("a"), Some((true, "ProbeSucceeded")));
    pass_seconds(1300).await;
    assert_eq!(rig.probes("a"), [100, 700, 1300]);
}

#[tokio::test(start_paused = true)]
async fn a_late_result_of_a_removed_proxy_is_dropped() {
    let mut rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [(Duration::from_secs(4), ok().1)]);
    pass_seconds(1).await;
    assert_eq!(rig.probes("a"), [0]);
    rig.fleet.send_replace(fleet_of(&[]));
    pass_seconds(60).await;
    assert_eq!(rig.verdict("a"), None);
    assert!(!rig.verdicts.has_changed().unwrap(), "nothing was ever published");
    assert_eq!(rig.seen(), ["a forgotten"], "its series are gone and stay gone");
    rig.stop.cancel();
    rig.tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_for_another_incarnation_is_dropped_and_the_new_machine_is_probed_at_once() {
    let rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [(Duration::from_secs(4), ok().1), fails(ProbeReason::Refused)]);
    pass_seconds(1).await;
    rig.fleet.send_replace(fleet_of(&[with_machine(proxy("a", None), "m2")]));
    pass_seconds(5).await;
    assert_eq!(rig.verdict("a"), None, "the late ok was of the old machine");
    assert_eq!(rig.probes("a")[..2], [0, 1]);
    assert!(!rig.seen().contains(&"a ok".to_owned()));
    pass_seconds(30).await;
    let verdicts = rig.verdicts.borrow().clone();
    let verdict = &verdicts[&uid("a")];
    assert_eq!((verdict.machine.incarnation.as_str(), verdict.reason), ("m2", "Refused"));
}

#[tokio::test(start_paused = true)]
async fn another_address_of_the_same_machine_starts_without_a_verdict() {
    let rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [ok()]);
    rig.answer("b", [(Duration::from_secs(4), ok().1)]);
    pass_seconds(1).await;
    assert_eq!(rig.verdict("a"), Some((true, "ProbeSucceeded")));
    let mut moved = proxy("a", None);
    moved.machine.as_mut().unwrap().address = "b".to_owned();
    rig.fleet.send_replace(fleet_of(&[moved]));
    pass_seconds(2).await;
    assert_eq!(rig.verdict("a"), None, "the good probe was of the old address");
    pass_seconds(4).await;
    assert_eq!(rig.verdict("a"), Some((true, "ProbeSucceeded")));
}

#[tokio::test(start_paused = true)]
async fn a_verdict_goes_with_its_machine() {
    let rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [ok(), (Duration::from_secs(5), ok().1)]);
    pass_seconds(1).await;
    assert!(rig.verdict("a").is_some());
    rig.fleet.send_replace(fleet_of(&[with_machine(proxy("a", Some(true)), "m2")]));
    pass_millis(10).await;
    assert_eq!(rig.verdict("a"), None);
    let mut deleting = proxy("a", Some(true));
    deleting.deleting = true;
    rig.fleet.send_replace(fleet_of(&[deleting]));
    pass_seconds(60).await;
    assert_eq!(rig.probes("a").len(), 1, "a Proxy that is being deleted is not probed");
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_published() {
    let mut rig = Rig::start(&[proxy("a", None), proxy("b", None)], 8);
    rig.answer("a", [ok()]);
    rig.answer("b", [fails(ProbeReason::Refused)]);
    pass_seconds(100).await;
    assert_eq!(rig.verdict("b"), Some((false, "Refused")));
    rig.verdicts.mark_unchanged();
    pass_seconds(3600).await;
    assert!(rig.probes("a").len() > 100);
    assert!(!rig.verdicts.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_fleet_taken_over_keeps_its_verdicts_and_is_not_probed_in_one_burst() {
    let names: Vec<String> = (0..40).map(|i| format!("p{i}")).collect();
    let fleet: Vec<_> = names.iter().map(|name| proxy(name, Some(true))).collect();
    let rig = Rig::start(&fleet, 256);
    rig.answer_all(&names, &ok());
    pass_millis(31_000).await;
    let first: Vec<u64> = names.iter().map(|name| rig.probes(name)[0]).collect();
    assert!(first.iter().all(|second| *second <= 30));
    for third in 0..3 {
        let count = first.iter().filter(|second| (third * 10..third * 10 + 10).contains(*second)).count();
        assert!(count >= 4, "{count} of 40 in third {third}: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn probes_at_the_same_time_are_limited_and_all_come_to_their_turn() {
    let names: Vec<String> = (0..20).map(|i| format!("p{i}")).collect();
    let fleet: Vec<_> = names.iter().map(|name| proxy(name, None)).collect();
    let rig = Rig::start(&fleet, 4);
    rig.answer_all(&names, &(Duration::from_secs(1), ok().1));
    pass_millis(500).await;
    assert_eq!(rig.script.log.lock().unwrap().len(), 4);
    pass_seconds(5).await;
    assert_eq!(rig.verdicts.borrow().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_report_of_a_client_is_answered_by_a_probe_that_starts_after_it() {
    let mut rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [ok()]);
    pass_seconds(5).await;
    assert!(rig.good.try_recv().is_err(), "nobody asked");
    rig.ask("a", "m1").await;
    pass_seconds(1).await;
    let good = rig.good.try_recv().unwrap();
    assert_eq!((good.uid, good.started.since_start().as_secs()), (uid("a"), 5));
    rig.ask("a", "m1").await;
    rig.ask("a", "m1").await;
    rig.ask("a", "another-machine").await;
    rig.ask("unknown", "m1").await;
    pass_seconds(19).await;
    assert_eq!(rig.probes("a"), [0, 5, 15], "ten seconds lie between probes out of turn");
    assert_eq!(rig.good.try_recv().unwrap().started.since_start().as_secs(), 15);
    assert!(rig.good.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_probe_under_way_does_not_answer_a_later_report() {
    let mut rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [(Duration::from_secs(4), ok().1), ok()]);
    pass_seconds(2).await;
    rig.ask("a", "m1").await;
    pass_seconds(3).await;
    assert_eq!(rig.probes("a"), [0, 4]);
    assert_eq!(rig.good.try_recv().unwrap().started.since_start().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_edited_plan_is_tried_at_once() {
    let rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [ok()]);
    pass_seconds(12).await;
    let mut edited = proxy("a", Some(true));
    edited.probe.as_mut().unwrap().url = "https://other.example/".to_owned();
    rig.fleet.send_replace(fleet_of(&[edited.clone()]));
    pass_seconds(1).await;
    edited.latency = Some(Duration::from_millis(50));
    rig.fleet.send_replace(fleet_of(&[edited]));
    pass_seconds(1).await;
    assert_eq!(rig.probes("a"), [0, 12], "our own status write is no edit");
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_panics_stops_neither_the_engine_nor_the_machine() {
    let mut broken = proxy("a", None);
    broken.probe.as_mut().unwrap().url = "panic://".to_owned();
    let rig = Rig::start(&[broken, proxy("b", None)], 1);
    rig.answer("a", [ok()]);
    rig.answer("b", [ok()]);
    pass_seconds(65).await;
    assert_eq!(rig.verdict("b"), Some((true, "ProbeSucceeded")));
    assert_eq!(rig.verdict("a"), None);
    assert!(rig.probes("a").len() >= 3, "tried again: {:?}", rig.probes("a"));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_never_ends_is_broken_off_and_makes_room() {
    let rig = Rig::start(&[proxy("a", None), proxy("b", None)], 1);
    rig.answer("a", [(Duration::from_hours(9), ok().1)]);
    rig.answer("b", [ok()]);
    pass_seconds(16).await;
    assert_eq!(rig.probes("b"), [15], "after the timeout of 10 s and some grace");
    assert_eq!(rig.seen()[0], "a Timeout");
    assert_eq!(rig.verdict("b"), Some((true, "ProbeSucceeded")));
}

#[tokio::test(start_paused = true)]
async fn the_verdict_of_a_fleet_taken_over_is_confirmed_once() {
    let mut rig = Rig::start(&[proxy("a", Some(true))], 8);
    rig.answer("a", [ok()]);
    pass_seconds(31).await;
    assert_eq!(rig.verdict("a"), Some((true, "ProbeSucceeded")));
    rig.verdicts.mark_unchanged();
    pass_seconds(600).await;
    assert!(!rig.verdicts.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_concluded_from_a_fleet_that_is_not_ready() {
    let rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [ok()]);
    pass_seconds(1).await;
    rig.fleet.send_replace(Fleet::default());
    pass_seconds(40).await;
    assert_eq!(rig.verdict("a"), Some((true, "ProbeSucceeded")));
    assert_eq!(rig.probes("a"), [0, 30]);
}

#[tokio::test(start_paused = true)]
async fn the_engine_ends_when_it_is_told_to() {
    let mut rig = Rig::start(&[proxy("a", None)], 8);
    rig.answer("a", [(Duration::from_secs(9), ok().1)]);
    pass_seconds(1).await;
    rig.stop.cancel();
    tokio::time::timeout(Duration::from_secs(1), rig.tasks.join_next()).await.unwrap().unwrap().unwrap();
}
