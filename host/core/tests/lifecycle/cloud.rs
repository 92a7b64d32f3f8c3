//! A cloud with one machine per name and zone. Effects and answers are apart: an effect may land later
//! than its answer is given up.

use std::collections::BTreeMap;
use std::time::Duration;

use egress_proxies_core::ids::{Incarnation, InstanceId};
use egress_proxies_core::provider::{
    CreatePlan, CreateRequest, Deletion, Endpoint, Failure, HostFault, Instance, InstanceRef, InstanceState,
    Listing, Observation, Reason, Tags,
};

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It works.
    Fine,
    /// It fails before it has an effect.
    FailsBefore,
    /// It has its effect, the answer is lost.
    AnswerLost,
    /// Its effect comes up to the longest call later; the answer is a passed deadline.
    Late,
    /// Its effect lands, and what comes after it is refused: the answer is a lack of permission.
    LandsThenDenied,
    /// Quota.
    Quota,
    /// No permission.
    Denied,
    /// No permit on the host.
    NoPermit,
    /// Lists: a zone is unreachable. Others: the rate limit.
    Partial,
}

/// Longest time between the start of a call and its effect.
pub(crate) const LONGEST_CALL: Duration = Duration::from_mins(1);
/// How much later a late effect comes.
const LANDS_LATE_BY: Duration = Duration::from_secs(59);
/// How long a new machine may be missing from lists.
pub(crate) const LIST_LAG: Duration = Duration::from_secs(10);
const BOOTS_IN: Duration = Duration::from_secs(7);
const GOES_IN: Duration = Duration::from_secs(12);

#[derive(Debug, Clone)]
struct Machine {
    name: String,
    incarnation: u64,
    made_at: Duration,
    state: InstanceState,
    gone_at: Option<Duration>,
    tags: Tags,
    size: u64,
    /// Somebody else's.
    foreign: bool,
}

#[derive(Debug, Clone)]
enum Effect {
    Create(InstanceId, Box<CreateRequest>),
    Delete(InstanceRef),
}

/// The cloud.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cloud {
    machines: BTreeMap<InstanceId, Machine>,
    pending: Vec<(Duration, Effect)>,
    born: u64,
    /// Creates that made a machine.
    pub(crate) creates: u32,
    /// Calls of any kind.
    pub(crate) calls: u32,
    /// Whether validate-create tells the id.
    pub(crate) plans_ids: bool,
}

fn id_of(request: &CreateRequest) -> InstanceId {
    let zone = request.placement.get("zone").and_then(serde_json::Value::as_str).unwrap_or("z0");
    InstanceId::parse(format!("zones/{zone}/{}", request.name)).unwrap()
}

fn failure(fate: Fate) -> Option<Failure> {
    let reason = match fate {
        Fate::Fine | Fate::AnswerLost | Fate::Late => return None,
        Fate::FailsBefore => Reason::Transient,
        Fate::Quota => Reason::Quota,
        Fate::Denied | Fate::LandsThenDenied => Reason::Denied,
        Fate::NoPermit => Reason::Host(HostFault::NoPermit),
        Fate::Partial => Reason::Throttled,
    };
    Some(Failure::new(reason, "the cloud says no"))
}

fn no_answer() -> Failure {
    Failure::new(Reason::Host(HostFault::Deadline), "the call took too long")
}

impl Cloud {
    /// An empty cloud.
    pub(crate) fn new(plans_ids: bool) -> Self {
        Self { plans_ids, ..Self::default() }
    }

    /// When something happens next by itself.
    pub(crate) fn next_event(&self, now: Duration) -> Option<Duration> {
        let pending = self.pending.iter().map(|(at, _)| *at);
        let gone = self.machines.values().filter_map(|machine| machine.gone_at);
        let boots = self.machines.values().map(|machine| machine.made_at + BOOTS_IN);
        pending.chain(gone).chain(boots).filter(|at| *at > now).min()
    }

    /// Lets time pass: pending effects land, machines boot and go.
    pub(crate) fn advance(&mut self, now: Duration) {
        let (due, later) = self.pending.drain(..).partition(|(at, _)| *at <= now);
        self.pending = later;
        let due: Vec<(Duration, Effect)> = due;
        for (at, effect) in due {
            self.land(effect, at);
        }
        self.machines.retain(|_, machine| machine.gone_at.is_none_or(|at| at > now));
        for machine in self.machines.values_mut() {
            if machine.state == InstanceState::Provisioning && now >= machine.made_at + BOOTS_IN {
                machine.state = InstanceState::Running;
            }
        }
    }

    fn land(&mut self, effect: Effect, now: Duration) {
        match effect {
            Effect::Create(id, request) => {
                if self.machines.contains_key(&id) {
                    return; // the name is taken
                }
                self.born += 1;
                self.creates += 1;
                let machine = Machine {
                    name: request.name.clone(),
                    incarnation: self.born,
                    made_at: now,
                    state: InstanceState::Provisioning,
                    gone_at: None,
                    tags: request.tags.clone(),
                    size: request.parameters.get("size").and_then(serde_json::Value::as_u64).unwrap_or(1),
                    foreign: false,
                };
                self.machines.insert(id, machine);
            }
            Effect::Delete(target) => {
                if let Some(machine) = self.machines.get_mut(&target.id) {
                    let same = target
                        .incarnation
                        .as_ref()
                        .is_none_or(|wanted| wanted.as_str() == machine.incarnation.to_string());
                    let ours = target.owner.iter().all(|(key, value)| machine.tags.get(key) == Some(value));
                    if same && ours && machine.state != InstanceState::Deleting {
                        machine.state = InstanceState::Deleting;
                        machine.gone_at = Some(now + GOES_IN);
                    }
                }
            }
        }
    }

    /// A machine as the provider shows it.
    pub(crate) fn view(&self, id: &InstanceId) -> Option<Instance> {
        let machine = self.machines.get(id)?;
        let runs = machine.state == InstanceState::Running;
        let endpoint = Endpoint {
            address: format!("10.0.{}.{}", machine.incarnation / 250, machine.incarnation % 250),
            port: 3128,
            scope: "private".to_owned(),
            credentials: None,
        };
        Some(Instance {
            incarnation: Some(Incarnation::parse(machine.incarnation.to_string()).unwrap()),
            endpoints: if runs { vec![endpoint] } else { Vec::new() },
            tags: machine.tags.clone(),
            ..Instance::bare(id.clone(), machine.name.clone(), machine.state.clone())
        })
    }

    /// Gives an effect its fate. True: it landed and the answer may be given.
    fn send(&mut self, effect: Effect, fate: Fate, now: Duration) -> Result<(), Failure> {
        self.calls += 1;
        match fate {
            Fate::Fine => {
                self.land(effect, now);
                Ok(())
            }
            Fate::AnswerLost => {
                self.land(effect, now);
                Err(no_answer())
            }
            Fate::LandsThenDenied => {
                self.land(effect, now);
                Err(failure(fate).unwrap())
            }
            Fate::Late => {
                self.pending.push((now + LANDS_LATE_BY, effect));
                Err(no_answer())
            }
            Fate::FailsBefore | Fate::Quota | Fate::Denied | Fate::NoPermit | Fate::Partial => {
                Err(failure(fate).unwrap())
            }
        }
    }

    /// validate-create.
    pub(crate) fn validate(&self, request: &CreateRequest) -> Result<CreatePlan, Failure> {
        if request.parameters.get("size").and_then(serde_json::Value::as_u64) == Some(0) {
            let reason = Reason::Invalid("/parameters/size".to_owned());
            return Err(Failure::new(reason, "size must be at least 1"));
        }
        let id = self.plans_ids.then(|| id_of(request));
        Ok(CreatePlan { id, location: None, warnings: Vec::new() })
    }

    /// create.
    pub(crate) fn create(
        &mut self,
        request: &CreateRequest,
        fate: Fate,
        now: Duration,
    ) -> Result<Instance, Failure> {
        let id = id_of(request);
        let there = self.machines.get(&id);
        if there.is_some_and(|machine| machine.state == InstanceState::Deleting) {
            return Err(Failure::new(Reason::Busy, "it is being deleted"));
        }
        self.send(Effect::Create(id.clone(), Box::new(request.clone())), fate, now)?;
        Ok(self.view(&id).unwrap())
    }

    /// get.
    pub(crate) fn get(&mut self, target: &InstanceRef, fate: Fate) -> Result<Observation, Failure> {
        self.calls += 1;
        match fate {
            Fate::Fine => {}
            Fate::AnswerLost | Fate::Late => return Err(no_answer()),
            Fate::FailsBefore
            | Fate::LandsThenDenied
            | Fate::Quota
            | Fate::Denied
            | Fate::NoPermit
            | Fate::Partial => {
                return Err(failure(fate).unwrap());
            }
        }
        Ok(match self.view(&target.id) {
            Some(instance) => Observation::Found(Box::new(instance)),
            None => Observation::Absent(None),
        })
    }

    /// delete.
    pub(crate) fn delete(
        &mut self,
        target: &InstanceRef,
        fate: Fate,
        now: Duration,
    ) -> Result<Deletion, Failure> {
        let there = self.machines.contains_key(&target.id);
        self.send(Effect::Delete(target.clone()), fate, now)?;
        Ok(if there { Deletion::InProgress(None) } else { Deletion::Gone })
    }

    /// list-by-tag; new machines are missing from it for a while.
    pub(crate) fn list(&mut self, owner: &Tags, fate: Fate, now: Duration) -> Result<Listing, Failure> {
        self.calls += 1;
        match fate {
            Fate::Fine | Fate::Partial => {}
            Fate::AnswerLost | Fate::Late => return Err(no_answer()),
            Fate::FailsBefore | Fate::LandsThenDenied | Fate::Quota | Fate::Denied | Fate::NoPermit => {
                return Err(failure(fate).unwrap());
            }
        }
        if fate == Fate::Partial {
            return Ok(Listing { items: Vec::new(), unreachable: vec!["z1".to_owned()] });
        }
        // It forgets to filter: somebody else's machines are in it too.
        let items = self
            .machines
            .iter()
            .filter(|(_, machine)| now >= machine.made_at + LIST_LAG)
            .filter(|(_, machine)| {
                machine.foreign || owner.iter().all(|(key, value)| machine.tags.get(key) == Some(value))
            })
            .filter_map(|(id, _)| self.view(id))
            .collect();
        Ok(Listing { items, unreachable: Vec::new() })
    }

    /// The size that a machine was made with; none if it is no more.
    pub(crate) fn size_of(&self, incarnation: &str) -> Option<u64> {
        let mut all = self.machines.values();
        all.find(|machine| machine.incarnation.to_string() == incarnation).map(|machine| machine.size)
    }

    /// Machines that run or are coming up.
    pub(crate) fn live(&self) -> Vec<InstanceId> {
        let lives = |machine: &Machine| !machine.foreign && machine.state != InstanceState::Deleting;
        self.machines.iter().filter(|(_, machine)| lives(machine)).map(|(id, _)| id.clone()).collect()
    }

    /// Machines in any state, and creates that may still land.
    pub(crate) fn left(&self) -> usize {
        let coming = self.pending.iter().filter(|(_, effect)| matches!(effect, Effect::Create(..))).count();
        self.machines.values().filter(|machine| !machine.foreign).count() + coming
    }

    /// Somebody removes all machines of the Proxy by hand.
    pub(crate) fn vanish(&mut self) {
        self.machines.retain(|_, machine| machine.foreign);
    }

    /// Somebody makes a machine that looks like one of a Proxy in the same cluster, another one.
    pub(crate) fn plant(&mut self, id: &str) {
        let tag = |key: &str, value: &str| (format!("proxy-operator-{key}"), value.to_owned());
        let machine = Machine {
            name: id.to_owned(),
            incarnation: 0,
            made_at: Duration::ZERO,
            state: InstanceState::Running,
            gone_at: None,
            tags: Tags::from([tag("uid", "somebody-else"), tag("cluster", "cluster-a")]),
            size: 1,
            foreign: true,
        };
        self.machines.insert(InstanceId::parse(id).unwrap(), machine);
    }

    /// Somebody removes that machine again; it must have been left alone.
    pub(crate) fn unplant(&mut self, id: &str) {
        let machine = self.machines.remove(&InstanceId::parse(id).unwrap()).unwrap();
        assert_eq!((machine.state, machine.gone_at), (InstanceState::Running, None));
    }

    /// Somebody takes their tags from all machines of the Proxy, or gives them back.
    pub(crate) fn tag(&mut self, tagged: bool) {
        const UID: &str = "proxy-operator-uid";
        const TAKEN: &str = "somebody-took-the-uid";
        let (from, to) = if tagged { (TAKEN, UID) } else { (UID, TAKEN) };
        let theirs = |machine: &Machine| machine.foreign && !machine.tags.contains_key(TAKEN);
        for machine in self.machines.values_mut().filter(|machine| !theirs(machine)) {
            let uid = machine.tags.remove(from).unwrap();
            machine.tags.insert(to.to_owned(), uid);
            machine.foreign = !tagged;
        }
    }

    /// All machines of the Proxy stop by themselves.
    pub(crate) fn stop(&mut self) {
        for machine in self.machines.values_mut().filter(|machine| !machine.foreign) {
            if machine.state != InstanceState::Deleting {
                machine.state = InstanceState::Stopped;
            }
        }
    }

    /// All live machines go to this state.
    pub(crate) fn set_state(&mut self, state: &InstanceState) {
        for machine in self.machines.values_mut().filter(|machine| !machine.foreign) {
            if machine.state != InstanceState::Deleting {
                machine.state = state.clone();
            }
        }
    }
}
