//! Whom a list is asked of, and when.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::facts::Auth;
use egress_proxies_core::ids::InstanceId;
use egress_proxies_core::lifecycle::{
    CloudInitView, LastSeen, Memory, ObjectFacts, Observed, ProviderView, Surroundings,
};
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Failure, Instance, InstanceRef, InstanceState, Listing,
    Observation, ProviderInfo, ProviderSettings, Reason, Tags,
};
use serde_json::json;

use super::*;
use crate::clock::SystemClock;

/// How the lists of a provider go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lists {
    Right,
    Denied,
    Hang,
    Panic,
}

/// A providers config in which each provider has this many machines.
struct World {
    entries: BTreeMap<ProviderName, (Lists, Duration)>,
    machines: usize,
    /// Of which provider a list was asked, and how long after the beginning.
    asked: Mutex<Vec<(String, Duration)>>,
    began: Instant,
}

struct Entry {
    info: ProviderInfo,
    lists: Lists,
    world: Arc<World>,
}

fn name(text: &str) -> ProviderName {
    ProviderName::parse(text).unwrap()
}

fn machine(provider: &str, number: usize) -> Instance {
    let id = InstanceId::parse(format!("{provider}/{number}")).unwrap();
    Instance::bare(id, "px", InstanceState::Running)
}

struct Configured(Arc<World>);

impl Providers for Configured {
    fn lookup(&self, of: &ProviderName) -> Lookup {
        let (lists, list_lag) = self.0.entries[of];
        let info = ProviderInfo { list_lag, ..ProviderInfo::bare(of.clone()) };
        Lookup::Ready(Arc::new(Entry { info, lists, world: Arc::clone(&self.0) }))
    }

    fn settings(&self, _: &ProviderName) -> Option<ProviderSettings> {
        None
    }
}

impl Provider for Entry {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }
    fn validate_create<'a>(&'a self, _: &'a CreateRequest) -> Call<'a, CreatePlan> {
        unreachable!()
    }
    fn create<'a>(&'a self, _: &'a CreateRequest) -> Call<'a, Instance> {
        unreachable!()
    }
    fn get<'a>(&'a self, _: &'a InstanceRef) -> Call<'a, Observation> {
        unreachable!()
    }
    fn delete<'a>(&'a self, _: &'a InstanceRef) -> Call<'a, Deletion> {
        unreachable!()
    }
    fn list_owned<'a>(&'a self, owner: &'a Tags) -> Call<'a, Listing> {
        let of = self.info.name.to_string();
        assert_eq!(*owner, provider_tags("cluster", &self.info.name), "the machines of this entry alone");
        self.world.asked.lock().unwrap().push((of.clone(), self.world.began.elapsed()));
        let items = (0..self.world.machines).map(|number| machine(&of, number)).collect();
        match self.lists {
            Lists::Right => Box::pin(async { Ok(Listing { items, unreachable: Vec::new() }) }),
            Lists::Denied => Box::pin(async { Err(Failure::new(Reason::Denied, "no")) }),
            Lists::Hang => Box::pin(pending()),
            Lists::Panic => panic!("as a bug would"),
        }
    }
}

/// A Ready Proxy with a machine that runs.
fn observed(provider: &str, number: usize, phase: &str, at: Moment) -> Observed {
    let proxy: Proxy = serde_json::from_value(json!({
        "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
        "metadata": {"name": format!("{provider}-{number}"), "namespace": "default", "uid": format!("{provider}-{number}")},
        "spec": {"mode": "Managed", "provider": provider}, "status": {"phase": phase}
    }))
    .unwrap();
    let seen = LastSeen {
        instance: machine(provider, number),
        at,
        asked: at,
        making_since: None,
        running_since: Some(at),
        ever_ran: true,
    };
    let memory = Memory { last_seen: Some(seen), ..Memory::new(0) };
    let surroundings = Surroundings {
        cluster: "cluster".to_owned(),
        provider: ProviderView::Loading,
        cloud_init: CloudInitView::NotUsed,
        auth: Auth::None,
        probe_configured: true,
        verdict: None,
        leases: 0,
    };
    Observed::begin(ObjectFacts::of(&proxy).unwrap(), surroundings, memory)
}

struct Running {
    world: Arc<World>,
    memories: Arc<Memories>,
    may_act: Arc<AtomicBool>,
    clock: SharedClock,
    _tasks: JoinSet<()>,
}

fn run(entries: &[(&str, Lists, u64)], machines: usize, phase: &str) -> Running {
    let entry = |(of, lists, lag): &(&str, Lists, u64)| (name(of), (*lists, Duration::from_secs(*lag)));
    let world = Arc::new(World {
        entries: entries.iter().map(entry).collect(),
        machines,
        asked: Mutex::default(),
        began: Instant::now(),
    });
    let (memories, may_act) = (Arc::<Memories>::default(), Arc::new(AtomicBool::new(true)));
    let clock: SharedClock = SystemClock::start();
    for (of, ..) in entries {
        for number in 0..machines {
            memories.keep(&observed(of, number, phase, clock.now().mono));
        }
    }
    let asked = Arc::clone(&may_act);
    let survey = Survey {
        providers: Arc::new(Configured(Arc::clone(&world))),
        memories: Arc::clone(&memories),
        leadership: Leadership {
            may_act: Arc::new(move || asked.load(Ordering::SeqCst)),
            ..Leadership::alone()
        },
        clock: Arc::clone(&clock),
        policy: Policy { list_from: 3, ..Policy::default() },
        cluster: "cluster".to_owned(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(survey.run());
    Running { world, memories, may_act, clock, _tasks: tasks }
}

impl Running {
    /// How often a list was asked of each in this time.
    async fn asked(&self, minutes: u64) -> BTreeMap<String, usize> {
        self.world.asked.lock().unwrap().clear();
        // Some more, since each provider is asked a little after its turn.
        tokio::time::sleep(Duration::from_mins(minutes) + Duration::from_secs(20)).await;
        let mut counts = BTreeMap::new();
        for (of, _) in self.world.asked.lock().unwrap().iter() {
            *counts.entry(of.clone()).or_default() += 1;
        }
        counts
    }

    /// How long ago the machine was looked at.
    fn age(&self, provider: &str) -> Duration {
        let object = observed(provider, 0, "Ready", Moment::default()).object;
        self.clock.now().mono.since(self.memories.of(&object).last_seen.unwrap().at)
    }
}

fn counts(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_list_is_a_look_at_what_it_shows_and_none_waits_for_another_provider() {
    let running = run(&[("good", Lists::Right, 0), ("hangs", Lists::Hang, 0)], 3, "Ready");
    assert_eq!(running.asked(20).await, counts(&[("good", 30), ("hangs", 1)]));
    assert!(running.age("good") <= Duration::from_secs(40), "{:?}", running.age("good"));
    assert_eq!(running.age("hangs"), Duration::from_secs(1220));
    let first = running.world.asked.lock().unwrap().clone();
    assert_ne!(first[0].1, first[1].1, "not at the same time");
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_what_was_there_before_its_lag_and_one_that_lags_too_far_is_not_asked_for() {
    let running = run(&[("lags", Lists::Right, 5), ("lags-far", Lists::Right, 9)], 3, "Ready");
    assert_eq!(running.asked(20).await, counts(&[("lags", 30)]));
    let age = running.age("lags");
    assert!((Duration::from_secs(5)..=Duration::from_secs(45)).contains(&age), "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn lists_that_save_nothing_are_tried_ever_more_rarely() {
    let entries = [("broken", Lists::Panic, 0), ("denied", Lists::Denied, 0)];
    // After 1, 3, 7, 15, 30, 45, 60, 75 and 90 turns.
    assert_eq!(run(&entries[1..], 3, "Ready").asked(60).await, counts(&[("denied", 9)]));
    let unlike = run(&[("good", Lists::Right, 0)], 3, "Ready");
    for number in 0..2 {
        let mut other = observed("good", number, "Ready", Moment::default());
        other.memory.last_seen.as_mut().unwrap().instance.name.push('x');
        unlike.memories.keep(&other);
    }
    assert_eq!(unlike.asked(60).await, counts(&[("good", 9)]), "one of three is not enough");
    assert_eq!(run(&entries[..1], 3, "Ready").asked(2).await, counts(&[("broken", 3)]), "it goes on");
}

#[tokio::test(start_paused = true)]
async fn few_machines_and_those_that_are_not_ready_are_asked_for_one_by_one() {
    for (machines, phase) in [(2, "Ready"), (9, "Unhealthy"), (9, "Replacing"), (9, "Pending")] {
        assert_eq!(
            run(&[("good", Lists::Right, 0)], machines, phase).asked(10).await,
            counts(&[]),
            "{phase}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_pause_nothing_is_listed() {
    let running = run(&[("good", Lists::Right, 0)], 3, "Ready");
    running.may_act.store(false, Ordering::SeqCst);
    assert_eq!(running.asked(10).await, counts(&[]));
    running.may_act.store(true, Ordering::SeqCst);
    assert_eq!(running.asked(2).await, counts(&[("good", 3)]));
}

#[test]
fn a_list_counts_for_the_machines_of_its_provider_alone() {
    let (memories, at) = (Memories::default(), Moment::after_start(Duration::from_secs(5)));
    for provider in ["one", "two"] {
        memories.keep(&observed(provider, 0, "Ready", Moment::default()));
    }
    assert_eq!(memories.surveyed(), BTreeMap::from([(name("one"), 1), (name("two"), 1)]));
    let both = [machine("one", 0), machine("two", 0)];
    assert_eq!(memories.listed(&name("one"), &both, at, &Policy::default()), (1, 1));
    let look = |provider| memories.of(&observed(provider, 0, "Ready", at).object).last_seen.unwrap().at;
    assert_eq!((look("one"), look("two")), (at, Moment::default()));
}
