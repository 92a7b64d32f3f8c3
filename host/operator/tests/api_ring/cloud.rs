//! A cloud in memory, and a provider for it. It keeps real state that outlives the operator under test,
//! and it can lose an answer, answer late, refuse, hang for ever, and let machines vanish.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egress_proxies_core::ids::{Incarnation, InstanceId, ProviderName};
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Endpoint, Failure, Instance, InstanceRef, InstanceState,
    Listing, Lookup, Observation, Provider, ProviderInfo, ProviderSettings, Providers, Reason, Tags,
};

use crate::operator::Crash;

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
    /// It happens, and the answer is lost.
    LoseAnswer,
    /// It happens, and the answer comes late.
    Late(Duration),
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The next call of this kind goes wrong.
    pub(crate) fn next(&self, verb: Verb, fault: Fault) {
        self.state().faults.push_back((verb, fault));
    }

    /// Machines start to run, and are gone, only after being looked at this often.
    pub(crate) fn take_looks(&self, until_running: u32, until_gone: u32) {
        let mut state = self.state();
        state.looks_until_running = until_running;
        state.looks_until_gone = until_gone;
    }

    /// All machines go, as a cloud does without asking.
    pub(crate) fn lose_machines(&self) {
        self.state().machines.clear();
    }

    pub(crate) fn machines(&self) -> Vec<Instance> {
        self.state().machines.values().cloned().collect()
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

    pub(crate) fn count(&self, verb: Verb) -> usize {
        self.state().calls.iter().filter(|call| **call == verb).count()
    }

    fn fault(&self, verb: Verb) -> Option<Fault> {
        let mut state = self.state();
        state.calls.push(verb);
        let at = state.faults.iter().position(|(of, _)| *of == verb)?;
        state.faults.remove(at).map(|(_, fault)| fault)
    }

    fn create(&self, request: &CreateRequest) -> Result<Instance, Failure> {
        let mut state = self.state();
        let id = id_of(&request.name);
        if let Some(instance) = state.machines.get(&id) {
            if instance.state == InstanceState::Deleting {
                return Err(Failure::new(Reason::Busy, "it is being deleted"));
            }
            return Ok(instance.clone());
        }
        state.born += 1;
        let instance = Instance {
            id: id.clone(),
            name: request.name.clone(),
            incarnation: Some(Incarnation::parse(format!("m{}", state.born)).unwrap()),
            state: InstanceState::Provisioning,
            endpoints: Vec::new(),
            created_at: None,
            location: None,
            problem: None,
            tags: request.tags.clone(),
        };
        let bootstrap = request.bootstrap.as_ref().map(|text| text.expose().clone());
        state.bootstraps.push(bootstrap);
        state.looks.insert(id.clone(), 0);
        state.machines.insert(id, instance.clone());
        state.most_at_once = state.most_at_once.max(state.machines.len());
        Ok(instance)
    }

    fn get(&self, target: &InstanceRef, port: u16) -> Observation {
        let mut state = self.state();
        let state = &mut *state;
        let looks = state.looks.entry(target.id.clone()).or_default();
        *looks += 1;
        let Some(instance) = state.machines.get_mut(&target.id) else { return Observation::Absent(None) };
        if instance.state == InstanceState::Deleting && *looks > state.looks_until_gone {
            state.machines.remove(&target.id);
            return Observation::Absent(None);
        }
        if instance.state == InstanceState::Provisioning && *looks > state.looks_until_running {
            instance.state = InstanceState::Running;
            instance.endpoints = vec![Endpoint {
                address: "198.51.100.7".to_owned(),
                port,
                scope: "public".to_owned(),
                credentials: None,
            }];
        }
        Observation::Found(Box::new(instance.clone()))
    }

    fn delete(&self, target: &InstanceRef) -> Deletion {
        let mut state = self.state();
        let state = &mut *state;
        let Some(instance) = state.machines.get_mut(&target.id) else { return Deletion::Gone };
        if instance.state != InstanceState::Deleting {
            instance.state = InstanceState::Deleting;
            instance.endpoints.clear();
            state.looks.insert(target.id.clone(), 0);
        }
        Deletion::InProgress(None)
    }
}

fn id_of(name: &str) -> InstanceId {
    InstanceId::parse(format!("fake/{name}")).unwrap()
}

/// The provider `fake`, as one operator process sees it.
pub(crate) struct FakeProvider {
    info: ProviderInfo,
    cloud: Arc<Cloud>,
    crash: Arc<Crash>,
}

impl FakeProvider {
    fn new(cloud: Arc<Cloud>, crash: Arc<Crash>) -> Self {
        let info = ProviderInfo {
            name: ProviderName::parse("fake").unwrap(),
            digest: "sha256:00".to_owned(),
            config_hash: "c".to_owned(),
            scope: "fake".to_owned(),
            bootstrap_max_bytes: 1000,
            list_lag: Duration::ZERO,
            takes_access: false,
            longest_call: Duration::from_millis(300),
            settings: ProviderSettings::default(),
        };
        Self { info, cloud, crash }
    }

    fn call<T: Send + 'static>(
        &self,
        verb: Verb,
        act: impl FnOnce(&Cloud) -> Result<T, Failure>,
    ) -> Call<'_, T> {
        let fault = self.cloud.fault(verb);
        if let Some(Fault::Refuse(failure)) = fault {
            return Box::pin(async move { Err(failure) });
        }
        let answer = act(&self.cloud);
        Box::pin(async move {
            if matches!(verb, Verb::Create | Verb::Delete) {
                self.crash.point().await;
            }
            match fault {
                Some(Fault::LoseAnswer) => Err(Failure::new(Reason::Transient, "connection lost")),
                Some(Fault::Late(wait)) => {
                    tokio::time::sleep(wait).await;
                    answer
                }
                Some(Fault::Refuse(_)) | None => answer,
            }
        })
    }
}

impl Provider for FakeProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn validate_create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, CreatePlan> {
        self.call(Verb::Validate, |_| {
            Ok(CreatePlan { id: Some(id_of(&request.name)), ..CreatePlan::default() })
        })
    }

    fn create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, Instance> {
        self.call(Verb::Create, |cloud| cloud.create(request))
    }

    fn get<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Observation> {
        self.call(Verb::Get, |cloud| Ok(cloud.get(target, 3128)))
    }

    fn delete<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Deletion> {
        self.call(Verb::Delete, |cloud| Ok(cloud.delete(target)))
    }

    fn list_owned<'a>(&'a self, owner: &'a Tags) -> Call<'a, Listing> {
        self.call(Verb::List, |cloud| {
            let mut items = cloud.machines();
            items.retain(|machine| owner.iter().all(|(key, value)| machine.tags.get(key) == Some(value)));
            Ok(Listing { items, unreachable: Vec::new() })
        })
    }
}

/// A providers config with `fake` in it.
pub(crate) struct Configured {
    fake: Arc<FakeProvider>,
}

impl Configured {
    pub(crate) fn new(cloud: Arc<Cloud>, crash: Arc<Crash>) -> Self {
        Self { fake: Arc::new(FakeProvider::new(cloud, crash)) }
    }
}

impl Providers for Configured {
    fn lookup(&self, name: &ProviderName) -> Lookup {
        if name.as_str() == "fake" {
            Lookup::Ready(Arc::clone(&self.fake) as Arc<dyn Provider>)
        } else {
            Lookup::Unknown { configured: vec![self.fake.info.name.clone()] }
        }
    }
}
