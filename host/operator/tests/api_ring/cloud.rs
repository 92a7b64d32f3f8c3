//! A cloud in memory. It keeps real state that outlives the operator under test, and it can lose an answer,
//! answer late, refuse, hang for ever, and let machines vanish.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egress_proxies_core::ids::{Incarnation, InstanceId};
use egress_proxies_core::provider::{
    CreateRequest, Deletion, Endpoint, Failure, Instance, InstanceRef, InstanceState, Observation, Reason,
};
use tokio::time::Instant;

/// Which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Validate,
    Create,
    Get,
    Delete,
    List,
}

/// What goes wrong with a call.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Nothing happens upstream.
    Refuse(Failure),
    /// Nothing happens upstream, and that is said late.
    RefuseLate(Duration, Failure),
    /// It happens, and the answer is lost.
    LoseAnswer,
    /// It happens, and the answer comes late.
    Late(Duration),
    /// The caller panics before there is an answer; what it asked for happens later.
    PanicAndLand(Duration),
}

#[derive(Debug, Default)]
struct State {
    machines: BTreeMap<InstanceId, Instance>,
    born: u64,
    bootstraps: Vec<Option<String>>,
    most_at_once: usize,
    calls: Vec<Verb>,
    faults: VecDeque<(Verb, Fault)>,
    looks_until_running: u32,
    looks_until_gone: u32,
    looks: BTreeMap<InstanceId, u32>,
    landing: Vec<(Instant, CreateRequest)>,
    names_are_taken: bool,
    why_absent: Option<Failure>,
    sick: BTreeSet<Incarnation>,
    shown_as: Option<InstanceState>,
    taken: Vec<(Instant, String)>,
}

/// The cloud.
#[derive(Debug, Default)]
pub(crate) struct Cloud {
    state: Mutex<State>,
}

impl Cloud {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// As of now: creates under way that are due have landed.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut state.landing).into_iter().partition(|(at, _)| *at <= now);
        state.landing = later;
        let due: Vec<_> = due;
        for (_, request) in due {
            let _landed = state.create(&request);
        }
        state
    }

    /// The next call of this kind goes wrong.
    pub(crate) fn next(&self, verb: Verb, fault: Fault) {
        self.state().faults.push_back((verb, fault));
    }

    /// Nothing goes wrong any more.
    pub(crate) fn forgive(&self) {
        self.state().faults.clear();
    }

    /// Machines start to run, and are gone, only after being looked at this often.
    pub(crate) fn take_looks(&self, until_running: u32, until_gone: u32) {
        let mut state = self.state();
        state.looks_until_running = until_running;
        state.looks_until_gone = until_gone;
    }

    /// Whatever their state, all machines look like this to who asks for one, or for a list.
    pub(crate) fn show_all_as(&self, state: Option<InstanceState>) {
        self.state().shown_as = state;
    }

    /// True if the machine was started with a text that breaks it: no probe succeeds through it.
    pub(crate) fn is_sick(&self, incarnation: &Incarnation) -> bool {
        self.state().sick.contains(incarnation)
    }

    /// All machines go, as a cloud does without asking.
    pub(crate) fn lose_machines(&self) {
        self.state().machines.clear();
    }

    /// All machines go, and the cloud knows why.
    pub(crate) fn lose_machines_because(&self, why: Failure) {
        let mut state = self.state();
        state.machines.clear();
        state.why_absent = Some(why);
    }

    /// Whatever is asked for: somebody else's machine has its name already.
    pub(crate) fn take_names(&self) {
        self.state().names_are_taken = true;
    }

    /// All machines are in this state now, and can be reached at this address if at any.
    pub(crate) fn put_machines(&self, into: &InstanceState, address: Option<&str>) {
        for machine in self.state().machines.values_mut() {
            machine.state = into.clone();
            machine.endpoints = address.map(|address| endpoint(address, 3128)).into_iter().collect();
        }
    }

    /// Somebody else makes a machine, or changes one.
    pub(crate) fn put(&self, machine: Instance) {
        self.state().machines.insert(machine.id.clone(), machine);
    }

    pub(crate) fn machines(&self) -> Vec<Instance> {
        self.state().machines.values().cloned().collect()
    }

    /// The machines as they are shown.
    pub(crate) fn list(&self) -> Vec<Instance> {
        let state = self.state();
        state.machines.values().map(|machine| state.shown(machine.clone())).collect()
    }

    /// Creates that have not landed yet.
    pub(crate) fn landing(&self) -> usize {
        self.state().landing.len()
    }

    /// Machines ever made.
    pub(crate) fn born(&self) -> u64 {
        self.state().born
    }

    /// Most machines that existed at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.state().most_at_once
    }

    /// The start-up texts of the machines made, in order.
    pub(crate) fn bootstraps(&self) -> Vec<Option<String>> {
        self.state().bootstraps.clone()
    }

    /// The deletes that began to take a machine away, in order: when, and whose machine.
    pub(crate) fn taken(&self) -> Vec<(Instant, String)> {
        self.state().taken.clone()
    }

    pub(crate) fn count(&self, verb: Verb) -> usize {
        self.state().calls.iter().filter(|call| **call == verb).count()
    }

    pub(crate) fn fault(&self, verb: Verb) -> Option<Fault> {
        let mut state = self.state();
        state.calls.push(verb);
        let at = state.faults.iter().position(|(of, _)| *of == verb)?;
        state.faults.remove(at).map(|(_, fault)| fault)
    }

    /// The next create panics and lands this much later.
    pub(crate) fn lands_late(&self) -> Option<Duration> {
        let state = self.state();
        let (_, fault) = state.faults.iter().find(|(verb, _)| *verb == Verb::Create)?;
        match fault {
            Fault::PanicAndLand(after) => Some(*after),
            Fault::Refuse(_) | Fault::RefuseLate(..) | Fault::LoseAnswer | Fault::Late(_) => None,
        }
    }

    pub(crate) fn create(&self, request: &CreateRequest) -> Result<Instance, Failure> {
        self.state().create(request)
    }

    /// The create arrives, but takes a while.
    pub(crate) fn create_later(&self, request: &CreateRequest, after: Duration) {
        self.state().landing.push((Instant::now() + after, request.clone()));
    }

    pub(crate) fn get(&self, target: &InstanceRef, port: u16) -> Observation {
        let mut state = self.state();
        let state = &mut *state;
        let looks = state.looks.entry(target.id.clone()).or_default();
        *looks += 1;
        let Some(instance) = state.machines.get_mut(&target.id) else {
            return Observation::Absent(state.why_absent.take());
        };
        if instance.state == InstanceState::Deleting && *looks > state.looks_until_gone {
            state.machines.remove(&target.id);
            return Observation::Absent(None);
        }
        if instance.state == InstanceState::Provisioning && *looks > state.looks_until_running {
            instance.state = InstanceState::Running;
            instance.endpoints = vec![endpoint("198.51.100.7", port)];
        }
        let machine = instance.clone();
        Observation::Found(Box::new(state.shown(machine)))
    }

    pub(crate) fn delete(&self, target: &InstanceRef) -> Deletion {
        let mut state = self.state();
        let state = &mut *state;
        let Some(instance) = state.machines.get_mut(&target.id) else { return Deletion::Gone };
        if instance.state != InstanceState::Deleting {
            instance.state = InstanceState::Deleting;
            instance.endpoints.clear();
            let name = instance.tags.get("proxy-operator-name").cloned().unwrap_or_default();
            state.taken.push((Instant::now(), name));
            state.looks.insert(target.id.clone(), 0);
        }
        Deletion::InProgress(None)
    }
}

impl State {
    fn shown(&self, machine: Instance) -> Instance {
        match &self.shown_as {
            Some(state) => Instance { state: state.clone(), endpoints: Vec::new(), ..machine },
            None => machine,
        }
    }

    fn create(&mut self, request: &CreateRequest) -> Result<Instance, Failure> {
        let id = id_of(request);
        if request.placement.get("zone").is_some_and(|zone| zone == "dry") {
            return Err(Failure::new(Reason::Capacity, "zone dry has none left"));
        }
        if self.names_are_taken && !self.machines.contains_key(&id) {
            self.machines.insert(id.clone(), somebody_elses(&id, &request.name));
        }
        if let Some(instance) = self.machines.get(&id) {
            if !request.tags.iter().all(|(key, value)| instance.tags.get(key) == Some(value)) {
                return Err(Failure::new(Reason::NameTaken, "another machine has this name"));
            }
            if instance.state == InstanceState::Deleting {
                return Err(Failure::new(Reason::Busy, "it is being deleted"));
            }
            return Ok(instance.clone());
        }
        self.born += 1;
        let incarnation = format!("m{}", self.born);
        let instance = Instance {
            incarnation: Incarnation::parse(incarnation).ok(),
            tags: request.tags.clone(),
            ..Instance::bare(id.clone(), request.name.clone(), InstanceState::Provisioning)
        };
        let bootstrap = request.bootstrap.as_ref().map(|text| text.expose().clone());
        let is_sick = bootstrap.as_ref().is_some_and(|text| text.contains("broken"));
        self.sick.extend(instance.incarnation.clone().filter(|_| is_sick));
        self.bootstraps.push(bootstrap);
        self.looks.insert(id.clone(), 0);
        self.machines.insert(id, instance.clone());
        self.most_at_once = self.most_at_once.max(self.machines.len());
        Ok(instance)
    }
}

fn endpoint(address: &str, port: u16) -> Endpoint {
    Endpoint { address: address.to_owned(), port, scope: "public".to_owned(), credentials: None }
}

fn somebody_elses(id: &InstanceId, name: &str) -> Instance {
    Instance {
        incarnation: Incarnation::parse("theirs").ok(),
        endpoints: vec![endpoint("198.51.100.99", 3128)],
        tags: BTreeMap::from([("owner".to_owned(), "somebody-else".to_owned())]),
        ..Instance::bare(id.clone(), name, InstanceState::Running)
    }
}

/// Machines of one Proxy that are made from different specs are different machines: the cloud would hold
/// both at once if it were asked to.
pub(crate) fn id_of(request: &CreateRequest) -> InstanceId {
    let spec = &request.tags["proxy-operator-spec"];
    InstanceId::parse(format!("fake/{}-{spec}", request.name)).unwrap()
}
