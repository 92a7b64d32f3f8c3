//! A cloud in memory for the crash tests: machines boot and go by the clock, new ones are missing from lists
//! for a while, and an effect may land after its answer was given up. It writes down each time that a second
//! living machine of one Proxy comes to be.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egress_proxies_core::ids::{Incarnation, InstanceId};
use egress_proxies_core::provider::{
    CreateRequest, Deletion, Endpoint, Failure, Instance, InstanceRef, InstanceState, Observation, Reason,
    Tags,
};
use tokio::time::Instant;

use crate::record::{Birth, Record, Taken};

/// How long a new machine is missing from lists.
pub(crate) const LIST_LAG: Duration = Duration::from_millis(150);
const BOOTS_IN: Duration = Duration::from_millis(60);
const GOES_IN: Duration = Duration::from_millis(120);

#[derive(Debug, Clone)]
struct Machine {
    instance: Instance,
    born: Instant,
    gone_at: Option<Instant>,
}

#[derive(Debug, Clone)]
enum Effect {
    Create(Box<CreateRequest>),
    Delete(InstanceRef),
}

#[derive(Debug, Default)]
struct State {
    machines: BTreeMap<InstanceId, Machine>,
    landing: Vec<(Instant, Effect)>,
    born: u64,
    doubles: Vec<String>,
    story: Vec<String>,
    record: Record,
}

/// The cloud.
#[derive(Debug)]
pub(crate) struct Cloud {
    state: Mutex<State>,
    opened: Instant,
}

impl Cloud {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), opened: Instant::now() })
    }

    /// As of now: what is due has happened, in its order.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let now = Instant::now();
        while let Some(at) = state.landing.iter().map(|(at, _)| *at).min().filter(|at| *at <= now) {
            state.age(at);
            let index = state.landing.iter().position(|(due, _)| *due == at).unwrap();
            let (_, effect) = state.landing.remove(index);
            self.land(&mut state, effect, at);
        }
        state.age(now);
        state
    }

    fn land(&self, state: &mut State, effect: Effect, at: Instant) {
        let since = at.duration_since(self.opened);
        match effect {
            Effect::Create(request) => {
                let answer = state.create(&request, at, since).map(|instance| instance.incarnation);
                state.story.push(format!("{since:?} a late create landed: {answer:?}"));
            }
            Effect::Delete(target) => {
                state.delete(&target, at);
                state.story.push(format!("{since:?} a late delete of {} landed", target.id));
            }
        }
    }

    pub(crate) fn create(&self, request: &CreateRequest) -> Result<Instance, Failure> {
        let now = Instant::now();
        let mut state = self.state();
        let answer = state.create(request, now, now.duration_since(self.opened));
        state.story.push(format!(
            "{:?} create {}: {:?}",
            self.opened.elapsed(),
            request.name,
            answer.is_ok()
        ));
        answer
    }

    pub(crate) fn create_later(&self, request: &CreateRequest, after: Duration) {
        let mut state = self.state();
        state.landing.push((Instant::now() + after, Effect::Create(Box::new(request.clone()))));
        state.story.push(format!("{:?} a create is under way", self.opened.elapsed()));
    }

    pub(crate) fn delete(&self, target: &InstanceRef) -> Deletion {
        let mut state = self.state();
        state.story.push(format!("{:?} delete {}", self.opened.elapsed(), target.id));
        state.delete(target, Instant::now())
    }

    pub(crate) fn delete_later(&self, target: &InstanceRef, after: Duration) {
        self.state().landing.push((Instant::now() + after, Effect::Delete(target.clone())));
    }

    pub(crate) fn get(&self, target: &InstanceRef) -> Observation {
        let state = self.state();
        let machine = state.machines.get(&target.id);
        machine.map_or(Observation::Absent(None), |it| Observation::Found(Box::new(it.instance.clone())))
    }

    /// What a list shows: not the newest ones.
    pub(crate) fn list(&self, owner: &Tags) -> Vec<Instance> {
        let state = self.state();
        let shown = state.machines.values().filter(|it| it.born.elapsed() >= LIST_LAG);
        let owned = |tags: &Tags| owner.iter().all(|(key, value)| tags.get(key) == Some(value));
        shown.map(|it| it.instance.clone()).filter(|instance| owned(&instance.tags)).collect()
    }

    /// All machines there are.
    pub(crate) fn machines(&self) -> Vec<Instance> {
        self.state().machines.values().map(|it| it.instance.clone()).collect()
    }

    /// Effects that may still land.
    pub(crate) fn landing(&self) -> usize {
        self.state().landing.len()
    }

    /// Machines ever made.
    pub(crate) fn born(&self) -> u64 {
        self.state().born
    }

    /// Each time that a Proxy had two living machines.
    pub(crate) fn doubles(&self) -> Vec<String> {
        self.state().doubles.clone()
    }

    /// What happened, for the message of a failure.
    pub(crate) fn story(&self) -> String {
        self.state().story.join("\n  ")
    }

    /// What happened to machines, and when.
    pub(crate) fn record(&self) -> Record {
        self.state().record.clone()
    }

    /// Something else happened that the story should have.
    pub(crate) fn tell(&self, what: &str) {
        self.state().story.push(format!("{:?} {what}", self.opened.elapsed()));
    }

    /// One machine goes, as a cloud does without asking; or it stops.
    pub(crate) fn harm(&self, which: usize, stop: bool) {
        let mut state = self.state();
        let Some(id) = state.machines.keys().nth(which % state.machines.len().max(1)).cloned() else {
            return;
        };
        state.story.push(format!(
            "{:?} {id} {}",
            self.opened.elapsed(),
            if stop { "stops" } else { "vanishes" }
        ));
        let incarnation = state.machines.get(&id).and_then(|machine| machine.instance.incarnation.clone());
        state.record.harmed.extend(incarnation);
        match state.machines.get_mut(&id) {
            Some(machine) if stop && machine.instance.state == InstanceState::Running => {
                machine.instance.state = InstanceState::Stopped;
                machine.instance.endpoints.clear();
            }
            Some(_) if stop => {}
            Some(_) | None => {
                state.machines.remove(&id);
            }
        }
    }
}

impl State {
    fn age(&mut self, now: Instant) {
        self.machines.retain(|_, machine| machine.gone_at.is_none_or(|at| at > now));
        for machine in self.machines.values_mut() {
            if machine.instance.state == InstanceState::Provisioning && now >= machine.born + BOOTS_IN {
                machine.instance.state = InstanceState::Running;
                machine.instance.endpoints = vec![Endpoint {
                    address: "198.51.100.7".to_owned(),
                    port: 3128,
                    scope: "public".to_owned(),
                    credentials: None,
                }];
            }
        }
    }

    fn create(
        &mut self,
        request: &CreateRequest,
        now: Instant,
        since: Duration,
    ) -> Result<Instance, Failure> {
        let id = id_of(request);
        if let Some(machine) = self.machines.get(&id) {
            if machine.instance.state == InstanceState::Deleting {
                return Err(Failure::new(Reason::Busy, "it is being deleted"));
            }
            return Ok(machine.instance.clone());
        }
        let others = self.machines.values().map(|it| &it.instance);
        let mut living = others.filter(|it| it.name == request.name && it.state != InstanceState::Deleting);
        if let Some(other) = living.next() {
            self.doubles.push(format!("{since:?} {id} was made while {} lives", other.id));
        }
        self.born += 1;
        let instance = Instance {
            incarnation: Incarnation::parse(format!("m{}", self.born)).ok(),
            tags: request.tags.clone(),
            ..Instance::bare(id.clone(), request.name.clone(), InstanceState::Provisioning)
        };
        self.record.births.extend(Birth::of(&instance, now));
        self.machines.insert(id, Machine { instance: instance.clone(), born: now, gone_at: None });
        Ok(instance)
    }

    fn delete(&mut self, target: &InstanceRef, now: Instant) -> Deletion {
        let Some(machine) = self.machines.get_mut(&target.id) else { return Deletion::Gone };
        let same = target.incarnation.is_none() || target.incarnation == machine.instance.incarnation;
        let ours = target.owner.iter().all(|(key, value)| machine.instance.tags.get(key) == Some(value));
        if same && ours && machine.gone_at.is_none() {
            self.record.taken.extend(Taken::of(&machine.instance, now));
            machine.instance.state = InstanceState::Deleting;
            machine.instance.endpoints.clear();
            machine.gone_at = Some(now + GOES_IN);
        }
        Deletion::InProgress(None)
    }
}

/// Machines of one Proxy that are made from different specs are different machines: the cloud would hold
/// both at once if it were asked to.
pub(crate) fn id_of(request: &CreateRequest) -> InstanceId {
    let spec = &request.tags["proxy-operator-spec"];
    InstanceId::parse(format!("fake/{}-{spec}", request.name)).unwrap()
}

#[cfg(test)]
fn request(name: &str, spec: &str) -> CreateRequest {
    CreateRequest {
        name: name.to_owned(),
        attempt_key: String::new(),
        port: 3128,
        placement: serde_json::Map::new(),
        parameters: serde_json::Map::new(),
        bootstrap: None,
        access: None,
        tags: Tags::from([("proxy-operator-spec".to_owned(), spec.to_owned())]),
    }
}

#[tokio::test(start_paused = true)]
async fn two_living_machines_of_one_proxy_are_noted_also_when_the_second_lands_late() {
    let cloud = Cloud::new();
    cloud.create(&request("px-1", "v1-a")).unwrap();
    cloud.create(&request("px-1", "v1-a")).unwrap();
    cloud.create(&request("px-2", "v1-b")).unwrap();
    assert_eq!(
        (cloud.doubles().len(), cloud.born()),
        (0, 2),
        "a repeated create and another Proxy's are none"
    );
    cloud.create_later(&request("px-1", "v1-b"), Duration::from_millis(300));
    assert_eq!((cloud.doubles().len(), cloud.landing()), (0, 1));
    tokio::time::advance(Duration::from_millis(300)).await;
    assert_eq!((cloud.doubles().len(), cloud.landing(), cloud.machines().len()), (1, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_going_is_no_second_one_and_a_new_one_is_missing_from_lists_for_a_while() {
    let cloud = Cloud::new();
    let first = cloud.create(&request("px-1", "v1-a")).unwrap();
    assert_eq!(cloud.list(&Tags::new()), []);
    tokio::time::advance(LIST_LAG).await;
    assert_eq!(cloud.list(&Tags::new()).len(), 1);
    let target = InstanceRef { id: first.id, incarnation: first.incarnation, owner: Tags::new() };
    cloud.delete(&target);
    cloud.create(&request("px-1", "v1-b")).unwrap();
    assert_eq!(cloud.doubles(), Vec::<String>::new());
    tokio::time::advance(GOES_IN).await;
    assert_eq!(cloud.machines().len(), 1);
}
