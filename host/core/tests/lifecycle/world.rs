//! The simulated world and its clock, what must hold at all times, and what must hold in calm.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::Phase;
use egress_proxies_core::facts::{Auth, Fleet, ProxyFacts, Verdict};
use egress_proxies_core::ids::{InstanceId, ProxyUid};
use egress_proxies_core::lifecycle::{
    Admission, Ask, Caps, Census, FactsInput, Ledger, Memory, ObjectFacts, Requeue, facts_of,
};
use egress_proxies_core::provider::{Failure, Instance, InstanceState};
use egress_proxies_core::time::{Moment, Now};

use super::cloud::Cloud;
use super::cluster::Cluster;
use super::operator::{End, Registry, Script, pass};

/// Whose probes fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sick {
    Nobody,
    /// Machines of this size.
    OfSize(u64),
    All,
}

/// What the provider says of machines.
#[derive(Debug, Clone)]
pub(crate) enum Sight {
    Right,
    /// All are in this state, wrongly.
    AllAre(InstanceState),
    /// None is ours, wrongly: they carry the tags of another cluster.
    AllAreForeign,
    /// There is none, wrongly, and perhaps a cause.
    NoneIsThere(Option<Failure>),
}

/// Everything outside the decision.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) cloud: Cloud,
    /// The account that the provider does not reach now, and its name; see [`World::switch_scope`].
    elsewhere: Cloud,
    pub(crate) scope: &'static str,
    /// Lost when the operator dies.
    pub(crate) memory: Option<Memory>,
    pub(crate) registry: Registry,
    pub(crate) verdict: Option<Verdict>,
    /// A list of the fleet that has no answer yet: when it was begun, and what it will show.
    pub(crate) survey: Option<(Moment, Vec<Instance>)>,
    /// The ledger and the fleet that it is asked about.
    shared: Rc<RefCell<Shared>>,
    in_fleet: bool,
    /// Whose probes fail.
    pub(crate) sick: Sick,
    /// What the provider says of machines, rightly or wrongly.
    pub(crate) sight: Sight,
    /// Live leases on the machine.
    pub(crate) leases: u32,
    /// The object was let go without its machine, because a person said so.
    pub(crate) abandoned: bool,
    /// Machines that are not ours, which were told to stay where they are.
    pub(crate) told: Vec<InstanceId>,
    /// The Secrets that the Proxy refers to can't be read.
    pub(crate) unreadable: bool,
    /// Rows of all decisions so far, for the message of a failure.
    pub(crate) rows: Vec<&'static str>,
    clock: Duration,
    seeds: u64,
}

/// What the Proxies of one operator share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Lost when the operator dies.
    pub(crate) ledger: Option<Ledger>,
    fleet: BTreeMap<ProxyUid, Arc<ProxyFacts>>,
}

const UID: &str = "11111111-2222-3333-4444-555555555555";

/// The two accounts.
const SCOPES: [&str; 2] = ["projects/p", "projects/q"];

impl World {
    /// One Proxy, just applied, and an empty cloud.
    pub(crate) fn new(plans_ids: bool) -> Self {
        let mut cloud = Cloud::new(plans_ids);
        cloud.plant("zones/z0/px-another");
        Self {
            cluster: Cluster::new(UID),
            elsewhere: cloud.clone(),
            cloud,
            scope: SCOPES[0],
            memory: None,
            registry: Registry::Ready,
            verdict: None,
            survey: None,
            shared: Rc::default(),
            in_fleet: false,
            sick: Sick::Nobody,
            sight: Sight::Right,
            leases: 0,
            abandoned: false,
            told: Vec::new(),
            unreadable: false,
            rows: Vec::new(),
            clock: Duration::from_secs(1000),
            seeds: 0,
        }
    }

    /// The Proxy as health and pool see it.
    pub(crate) fn facts(&self) -> Option<ProxyFacts> {
        let input = FactsInput {
            auth: Auth::None,
            provider: None,
            default_probe_url: Some("http://probe/"),
            ca_pem: None,
            running: self.memory.as_ref().and_then(Memory::running_machine),
        };
        self.cluster.live().map(|proxy| facts_of(proxy, input).unwrap())
    }

    /// One of many Proxies, each with a cloud of its own.
    pub(crate) fn of_fleet(number: usize, shared: &Rc<RefCell<Shared>>) -> Self {
        let mut world = Self::new(true);
        world.cluster = Cluster::new(&format!("11111111-2222-3333-4444-{number:012}"));
        world.shared = Rc::clone(shared);
        world.in_fleet = true;
        world.seeds = u64::try_from(number).unwrap() * 1000;
        world
    }

    /// Asks the ledger. It sees the others as they were published last.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Admission {
        if !self.in_fleet {
            self.publish();
        }
        let now = self.now().mono;
        let Shared { ledger, fleet } = &mut *self.shared.borrow_mut();
        let fleet = Fleet { ready: true, proxies: Arc::new(fleet.clone()) };
        let census = Census::of(&fleet).remove(&ask.provider).unwrap_or_default();
        ledger.get_or_insert_with(|| Ledger::new(Caps::default(), now)).ask(ask, &census, now)
    }

    fn publish(&self) {
        let mut shared = self.shared.borrow_mut();
        if let Some(facts) = self.facts() {
            shared.fleet.insert(facts.uid.clone(), Arc::new(facts));
        } else if !self.in_fleet {
            shared.fleet.clear();
        }
    }

    /// The operator died.
    pub(crate) fn lose_ledger(&mut self) {
        self.shared.borrow_mut().ledger = None;
    }

    /// Time since the start of the operator's clock.
    pub(crate) fn clock(&self) -> Duration {
        self.clock
    }

    /// What happens at this time: a pass if one is due, and a probe. Says when the next pass is due.
    pub(crate) fn step(&mut self, due: &mut Duration) {
        if self.clock >= *due {
            *due = match pass(self, &Script::default()) {
                End::Waits(Requeue::After(wait), _) => self.clock + wait,
                End::Waits(Requeue::OnChange | Requeue::Done, _) | End::NoObject => Duration::MAX,
                End::Died => unreachable!(),
            };
        }
        let verdict = self.verdict.clone();
        self.probe();
        if self.verdict != verdict {
            *due = self.clock;
        }
        self.publish();
    }

    /// Each memory has a seed of its own.
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.seeds += 1;
        self.seeds
    }

    /// The time.
    pub(crate) fn now(&self) -> Now {
        let wall = jiff::Timestamp::from_second(1_800_000_000).unwrap() + self.clock;
        Now { wall, mono: Moment::after_start(self.clock) }
    }

    /// The providers config now points to the other account.
    pub(crate) fn switch_scope(&mut self) {
        std::mem::swap(&mut self.cloud, &mut self.elsewhere);
        self.scope = if self.scope == SCOPES[0] { SCOPES[1] } else { SCOPES[0] };
    }

    /// The providers config points to where the object says that its machine is, or may be.
    pub(crate) fn return_to_scope(&mut self) {
        let Some(proxy) = self.cluster.live() else { return };
        let object = ObjectFacts::of(proxy).unwrap();
        let recorded = object.status.provider_id.and(object.status.provider_scope);
        if recorded.or(object.planned_scope).is_some_and(|scope| scope != self.scope) {
            self.switch_scope();
        }
    }

    /// Creates that made a machine, in both accounts.
    pub(crate) fn creates(&self) -> u32 {
        self.cloud.creates + self.elsewhere.creates
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, span: Duration) {
        let end = self.clock + span;
        while self.clock < end {
            let next = |cloud: &Cloud| cloud.next_event(self.clock);
            let at = next(&self.cloud).into_iter().chain(next(&self.elsewhere)).min();
            self.clock = at.map_or(end, |at| at.min(end));
            self.cloud.advance(self.clock);
            self.elsewhere.advance(self.clock);
            self.check();
        }
    }

    /// Never two live machines.
    pub(crate) fn check(&self) {
        let live = (self.cloud.live(), self.elsewhere.live());
        assert!(live.0.len() + live.1.len() <= 1, "two machines: {live:?}\n{}", self.story());
    }

    /// The finalizer went: no machine may be left, nor come.
    pub(crate) fn check_nothing_left(&self) {
        assert_eq!(self.cloud.left() + self.elsewhere.left(), 0, "a forgotten machine\n{}", self.story());
    }

    /// The decisions of late.
    pub(crate) fn story(&self) -> String {
        let from = self.rows.len().saturating_sub(60);
        format!("{:#?}", &self.rows[from..])
    }

    /// Health probes what the facts name, and finds it well.
    pub(crate) fn probe(&mut self) {
        let Some(facts) = self.facts() else { return };
        let known = self.verdict.as_ref().map(|verdict| &verdict.machine);
        let Some(machine) = facts.machine else { return };
        let size = self.cloud.size_of(machine.incarnation.as_str());
        let healthy = match self.sick {
            Sick::Nobody => !self.in_fleet || size.is_some(),
            Sick::OfSize(sick) => size.is_some_and(|size| size != sick),
            Sick::All => false,
        };
        let is_news = self.verdict.as_ref().is_none_or(|verdict| verdict.healthy != healthy);
        if known != Some(&machine) || is_news {
            self.verdict = Some(Verdict {
                machine,
                healthy,
                reason: if healthy { "ProbeSucceeded" } else { "Refused" },
                message: "as the probe said".to_owned(),
                latency: healthy.then(|| Duration::from_millis(30)),
                probed_at: self.now().wall,
            });
        }
    }

    /// Runs as the real loop does, without any fault, for this long: a pass at once, after each verdict, and
    /// when the last one asked for it. The operator's own writes start none.
    pub(crate) fn calm(&mut self, span: Duration) {
        self.registry = Registry::Ready;
        self.unreadable = false;
        let end = self.clock + span;
        let mut due = self.clock;
        while self.clock < end {
            let verdict = self.verdict.clone();
            if self.clock >= due {
                due = match pass(self, &Script::default()) {
                    End::Waits(Requeue::After(wait), _) => self.clock + wait,
                    End::Waits(Requeue::OnChange | Requeue::Done, _) | End::NoObject => end,
                    End::Died => unreachable!(),
                };
            }
            self.probe();
            if self.verdict != verdict {
                due = self.clock + Duration::from_millis(100);
            }
            let next = due.max(self.clock + Duration::from_millis(100));
            self.advance(next.min(end).saturating_sub(self.clock));
        }
    }

    /// Runs for this long, with the faults that there are.
    pub(crate) fn run(&mut self, span: Duration) {
        let (end, mut due) = (self.clock + span, self.clock);
        while self.clock < end {
            self.step(&mut due);
            self.advance(Duration::from_secs(1));
        }
    }

    /// In calm each machine is one that the status names, whether any can be made or not, and none is to come.
    pub(crate) fn assert_accounted(&mut self) {
        self.calm(Duration::from_hours(1));
        self.check_accounted();
    }

    /// No machine is there, or to come, but one that the status names.
    pub(crate) fn check_accounted(&self) {
        if self.abandoned {
            return;
        }
        let status = self.cluster.live().and_then(|proxy| proxy.status.clone()).unwrap_or_default();
        let live = [self.cloud.live(), self.elsewhere.live()].concat();
        let named: Vec<&str> = status.provider_id.as_deref().into_iter().collect();
        let unnamed = live.iter().find(|id| !named.contains(&id.as_str()));
        assert_eq!(unnamed, None, "a machine that nobody knows of, {status:?}\n{}", self.story());
        assert_eq!(self.cloud.left() + self.elsewhere.left(), live.len(), "{status:?}\n{}", self.story());
    }

    /// In calm: one healthy machine that status names, and then no more writes; or nothing at all.
    pub(crate) fn assert_settled(&mut self) {
        self.calm(Duration::from_hours(1));
        let Some(proxy) = self.cluster.live() else {
            if !self.abandoned {
                self.check_nothing_left();
            }
            return;
        };
        let status = proxy.status.clone().unwrap_or_default();
        let live = self.cloud.live();
        assert!(proxy.metadata.deletion_timestamp.is_none(), "it never goes\n{}", self.story());
        assert_eq!(live.len(), 1, "machines {live:?}, status {status:?}\n{}", self.story());
        assert_eq!(status.provider_id.as_deref(), Some(live[0].as_str()), "{}", self.story());
        assert_eq!(status.phase, Phase::Ready, "{status:?}\n{}", self.story());
        assert_eq!(status.observed_generation, proxy.metadata.generation);
        let zone = proxy.spec.placement.as_ref().and_then(|placement| placement.zone.clone()).unwrap();
        assert!(live[0].as_str().contains(&zone), "machine {live:?} is not in zone {zone}");
        let (writes, creates, calls) = (self.cluster.writes, self.cloud.creates, self.cloud.calls);
        self.calm(Duration::from_mins(10));
        assert_eq!(self.cluster.writes, writes, "writes at rest\n{}", self.story());
        assert_eq!(self.cloud.creates, creates, "creates at rest");
        assert!(self.cloud.calls - calls <= 13, "{} calls in 10 minutes of rest", self.cloud.calls - calls);
    }
}
