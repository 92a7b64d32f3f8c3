//! Builds observations, as the loop would have made them.

use std::time::Duration;

use crate::crd::{EndpointSpec, FINALIZER, HealthCheckSpec, Mode, ProxySpec, ProxyStatus};
use crate::facts::{Auth, Machine, Verdict};
use crate::ids::{Incarnation, InstanceId, ProviderName, ProxyKey, ProxyUid};
use crate::lifecycle::memory::Unrecorded;
use crate::lifecycle::pass::{ApiState, Presence};
use crate::lifecycle::{
    Action, Admission, CloudInitView, Decision, HealthView, Memory, ObjectFacts, Observed, Outcome, Owner,
    Policy, ProviderFacts, ProviderView, Refusal, SpecHash, Stage, StatusIntent, Surroundings, Written,
    absorb, decide, latch_key, machine_tags, render, spec_hash,
};
use crate::provider::{
    CreatePlan, Deletion, Endpoint, Failure, Instance, InstanceRef, InstanceState, Listing, Observation,
    ProviderInfo, ProviderSettings, Reason,
};
use crate::time::{Moment, Now};

/// An observation and the time.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) observed: Observed,
    clock: Duration,
}

impl From<Case> for Vec<Case> {
    fn from(case: Case) -> Self {
        vec![case]
    }
}

fn spec(mode: Mode) -> ProxySpec {
    let managed = mode == Mode::Managed;
    let endpoint = EndpointSpec { host: "192.0.2.7".to_owned(), port: 8080, protocol: Default::default() };
    ProxySpec {
        mode,
        provider: managed.then(|| "fake".to_owned()),
        placement: None,
        parameters: None,
        cloud_init: None,
        port: None,
        endpoint: (!managed).then_some(endpoint),
        auth: None,
        attributes: Default::default(),
        max_leases: None,
        max_leases_per_target: None,
        suspend: false,
        health_check: HealthCheckSpec::default(),
    }
}

/// The provider.
pub(super) fn info() -> ProviderInfo {
    ProviderInfo {
        name: ProviderName::parse("fake").unwrap(),
        digest: "sha256:00".to_owned(),
        config_hash: "c0".to_owned(),
        scope: "projects/p".to_owned(),
        bootstrap_max_bytes: 8,
        list_lag: Duration::from_secs(10),
        takes_access: true,
        longest_call: Duration::from_mins(1),
        settings: ProviderSettings::default(),
    }
}

pub(super) fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).unwrap()
}

/// A failure of each kind that people see apart.
pub(super) const SEEN_APART: [Reason; 6] = [
    Reason::Transient,
    Reason::Quota,
    Reason::Denied,
    Reason::Missing,
    Reason::NameTaken,
    Reason::OutOfScope,
];

/// A failure without details.
pub(super) fn failure(reason: Reason) -> Failure {
    Failure::new(reason, "the cloud says no")
}

impl Case {
    fn of(mode: Mode) -> Self {
        let object = ObjectFacts {
            key: ProxyKey::new("crawl", "p"),
            uid: ProxyUid::parse("u1").unwrap(),
            generation: 1,
            resource_version: "1".to_owned(),
            deleting: false,
            finalizers: Vec::new(),
            spec_hash: None,
            planned_id: None,
            planned_scope: None,
            replace_nonce: None,
            abandon: false,
            spec: spec(mode),
            status: ProxyStatus::default(),
        };
        let surroundings = Surroundings {
            cluster: "c1".to_owned(),
            provider: ProviderView::Ready(ProviderFacts { info: info() }),
            cloud_init: CloudInitView::NotUsed,
            auth: Auth::None,
            probe_configured: true,
            verdict: None,
            leases: 0,
        };
        let clock = Duration::from_secs(1000);
        Self { observed: Observed::begin(object, surroundings, Memory::new(7)), clock }
    }

    /// A Managed Proxy, just applied.
    pub(super) fn managed() -> Self {
        Self::of(Mode::Managed)
    }

    /// An External Proxy, just applied.
    pub(super) fn external() -> Self {
        Self::of(Mode::External)
    }

    /// A Managed Proxy whose create was about to be sent, or was sent, by an earlier process.
    pub(super) fn claimed() -> Self {
        let mut case = Self::managed();
        case.observed.object.finalizers = vec![FINALIZER.to_owned()];
        case.observed.object.spec_hash = Some(case.hash().annotation());
        case.observed.object.planned_id = Some(id("m1"));
        case.observed.object.planned_scope = Some(info().scope);
        case
    }

    /// A Managed Proxy whose status names the machine `m1`, which is being made.
    pub(super) fn recorded() -> Self {
        Self::claimed().with_status(|case| {
            let instance = case.instance("m1", InstanceState::Provisioning);
            case.context_intent(Stage::Provisioning(None), &instance, false)
        })
    }

    /// A Managed Proxy whose status says that `m1` runs.
    pub(super) fn published() -> Self {
        Self::recorded().with_status(|case| {
            let instance = case.instance("m1", InstanceState::Running);
            case.context_intent(Stage::Running, &instance, true)
        })
    }

    fn context_intent(&self, stage: Stage, instance: &Instance, running: bool) -> StatusIntent {
        let policy = Policy::default();
        let cx =
            super::super::context::Context { observed: &self.observed, policy: &policy, now: self.now() };
        cx.intent_with(stage, instance, running)
    }

    fn with_status(mut self, intent: impl Fn(&Self) -> StatusIntent) -> Self {
        let intent = intent(&self);
        let health = HealthView { configured: true, verdict: None };
        self.observed.object.status = render(&self.observed.object, &intent, health, self.now());
        self
    }

    pub(super) fn edit(mut self, change: impl FnOnce(&mut Observed)) -> Self {
        change(&mut self.observed);
        self
    }

    /// The user asks for something else now.
    pub(super) fn edited(self) -> Self {
        self.edit(|observed| {
            observed.object.spec.port = Some(8080);
            observed.object.generation = 2;
        })
    }

    /// The object is being deleted.
    pub(super) fn deleted(self) -> Self {
        self.edit(|observed| {
            observed.object.deleting = true;
            observed.object.generation += 1;
        })
    }

    /// The API server no longer has the object.
    pub(super) fn gone(self) -> Self {
        self.edit(|observed| observed.pass.presence = Presence::Gone)
    }

    pub(super) fn api(self, state: ApiState) -> Self {
        self.edit(|observed| observed.pass.api = state)
    }

    /// The object was looked at just now.
    pub(super) fn fresh(self) -> Self {
        let now = self.now().mono;
        self.edit(|observed| {
            observed.pass.presence = Presence::Live;
            observed.pass.looked_at = Some(now);
        })
    }

    /// This process made `m1` and could not write that down.
    pub(super) fn unrecorded(self) -> Self {
        self.edit(|observed| {
            observed.memory.unrecorded =
                Some(Unrecorded { id: id("m1"), incarnation: None, scope: Some(info().scope) });
        })
    }

    pub(super) fn provider(self, view: ProviderView) -> Self {
        self.edit(|observed| observed.surroundings.provider = view)
    }

    pub(super) fn delete_only(self) -> Self {
        let settings = ProviderSettings { delete_only: true, ..ProviderSettings::default() };
        self.provider(ProviderView::Ready(ProviderFacts { info: ProviderInfo { settings, ..info() } }))
    }

    /// Health found this incarnation of the machine well.
    pub(super) fn healthy(self, incarnation: &str) -> Self {
        let verdict = Verdict {
            machine: Machine {
                incarnation: Incarnation::parse(incarnation).unwrap(),
                address: "10.0.0.1".to_owned(),
                port: 3128,
            },
            healthy: true,
            reason: "ProbeSucceeded",
            message: "status 200".to_owned(),
            latency: Some(Duration::from_millis(30)),
            probed_at: self.now().wall,
        };
        self.edit(|observed| observed.surroundings.verdict = Some(verdict))
    }

    /// A machine of ours, made from the current spec.
    pub(super) fn instance(&self, name: &str, state: InstanceState) -> Instance {
        let object = &self.observed.object;
        let runs = state == InstanceState::Running;
        let owner = Owner::new(&object.uid, &self.observed.surroundings.cluster);
        let endpoint = Endpoint {
            address: "10.0.0.1".to_owned(),
            port: 3128,
            scope: "private".to_owned(),
            credentials: None,
        };
        Instance {
            incarnation: Some(Incarnation::parse("i1").unwrap()),
            endpoints: if runs { vec![endpoint] } else { Vec::new() },
            tags: machine_tags(&owner, &object.key, &info().name, &self.hash()),
            ..Instance::bare(id(name), "px-u1", state)
        }
    }

    /// A machine that carries somebody else's tags.
    pub(super) fn foreign(&self, name: &str) -> Instance {
        Instance { tags: Default::default(), ..self.instance(name, InstanceState::Running) }
    }

    pub(super) fn hash(&self) -> SpecHash {
        spec_hash(&self.observed.object.spec, None)
    }

    pub(super) fn key(&self) -> String {
        latch_key(&self.hash(), &info())
    }

    pub(super) fn absorb(mut self, outcome: Outcome) -> Self {
        let now = self.now();
        absorb(&mut self.observed, outcome, &Policy::default(), now);
        self
    }

    fn target(name: &str) -> InstanceRef {
        InstanceRef { id: id(name), incarnation: None, owner: Default::default() }
    }

    /// `get` found this machine.
    pub(super) fn found(self, instance: Instance) -> Self {
        let target = Self::target(instance.id.as_str());
        self.absorb(Outcome::Got { target, result: Ok(Observation::Found(Box::new(instance))) })
    }

    /// `get` found `m1` in this state.
    pub(super) fn in_state(self, state: InstanceState) -> Self {
        let instance = self.instance("m1", state);
        self.found(instance)
    }

    /// `get` found `m1` without our tags; the list shows nothing.
    pub(super) fn foreign_found(self) -> Self {
        let foreign = self.foreign("m1");
        self.found(foreign).listed(Vec::new())
    }

    pub(super) fn absent(self, name: &str) -> Self {
        self.absorb(Outcome::Got { target: Self::target(name), result: Ok(Observation::Absent(None)) })
    }

    pub(super) fn get_fails(self, reason: Reason) -> Self {
        self.absorb(Outcome::Got { target: Self::target("m1"), result: Err(failure(reason)) })
    }

    pub(super) fn listed(self, items: Vec<Instance>) -> Self {
        self.absorb(Outcome::Listed(Ok(Listing { items, unreachable: Vec::new() })))
    }

    pub(super) fn validated(self, result: Result<(), Failure>) -> Self {
        let key = self.key();
        let plan = || CreatePlan { id: Some(id("m1")), ..CreatePlan::default() };
        self.absorb(Outcome::Validated { key, result: result.map(|()| plan()) })
    }

    pub(super) fn created(self, result: Result<Instance, Failure>) -> Self {
        let key = self.key();
        self.absorb(Outcome::Created { key, result })
    }

    /// A delete of `m1` was accepted.
    pub(super) fn delete_sent(self) -> Self {
        let target =
            InstanceRef { incarnation: Some(Incarnation::parse("i1").unwrap()), ..Self::target("m1") };
        self.absorb(Outcome::Deleted { target, result: Ok(Deletion::InProgress(None)) })
    }

    /// The ledger answers what the decision asks it.
    fn answered(self, admission: Admission) -> Self {
        let decision = self.decide();
        let Action::AskLeave(ask) = decision.action else { panic!("nothing asked: {decision:#?}") };
        self.absorb(Outcome::Asked { ask, admission })
    }

    pub(super) fn granted(self) -> Self {
        self.answered(Admission::Granted)
    }

    pub(super) fn refused(self, why: Refusal) -> Self {
        self.answered(Admission::Refused { why, retry: Duration::from_secs(7) })
    }

    /// A machine that is known from the pass before goes, step by step: it is seen and may go, it is hidden, the
    /// object is looked at, its delete is under way.
    pub(super) fn goes(self, instance: &Instance) -> [Self; 5] {
        let seen = self.clone().found(instance.clone());
        let asks = matches!(seen.decide().action, Action::AskLeave(_));
        let seen = if asks { seen.granted() } else { seen };
        let hidden = seen.clone().written();
        let looked = hidden.clone().fresh();
        let sent = looked.clone().delete_sent();
        [self, seen, hidden, looked, sent]
    }

    /// So many clients have a lease on the machine.
    pub(super) fn leased(self, leases: u32) -> Self {
        self.edit(|observed| observed.surroundings.leases = leases)
    }

    /// The status that the decision asks for is written.
    pub(super) fn written(mut self) -> Self {
        let decision = self.decide();
        let Action::WriteStatus(status) = decision.action else { panic!("nothing to write: {decision:#?}") };
        let mut object = self.observed.object.clone();
        object.status = (*status).clone();
        let was =
            (self.observed.pass.presence, self.observed.pass.looked_at, self.observed.pass.written.clone());
        let result = Written::Done(Box::new(object));
        self = self.absorb(Outcome::StatusWritten { asked: status, result });
        (self.observed.pass.presence, self.observed.pass.looked_at, self.observed.pass.written) = was;
        self
    }

    /// Time goes on within the pass.
    pub(super) fn later(mut self, seconds: u64) -> Self {
        self.clock += Duration::from_secs(seconds);
        self
    }

    /// Another pass, with what is remembered.
    pub(super) fn next_pass(mut self) -> Self {
        let Observed { object, surroundings, memory, .. } = self.observed;
        self.observed = Observed::begin(object, surroundings, memory);
        self
    }

    pub(super) fn now(&self) -> Now {
        let wall = jiff::Timestamp::from_second(1_800_000_000).unwrap() + self.clock;
        Now { wall, mono: Moment::after_start(self.clock) }
    }

    pub(super) fn decide(&self) -> Decision {
        let decision = decide(&self.observed, &Policy::default(), self.now());
        if self.observed.pass.presence == Presence::Gone {
            let remembered = self.clone().edit(|observed| observed.object = observed.object.remains());
            let same = decide(&remembered.observed, &Policy::default(), self.now());
            let [same, known] = [&same, &decision].map(|it| (it.row, it.requeue, &it.action));
            assert_eq!(same, known, "what is remembered of an object that is gone is enough");
        }
        decision
    }
}
