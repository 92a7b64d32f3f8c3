//! The provider `fake` as one operator process sees it, and a providers config from which it can be taken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Failure, HostFault, Instance, InstanceRef, Listing, Lookup,
    Observation, Provider, ProviderInfo, ProviderSettings, Providers, Reason, Replacement, Tags,
};
use tokio::sync::watch;

use crate::cloud::{Cloud, LIST_LAG, id_of};
use crate::gate::{Effect, Fate, LONGEST_CALL, Process};

/// Whether the provider is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Component {
    Ready,
    Loading,
    Failed,
    /// The entry was taken out of the providers config.
    Removed,
}

impl Component {
    /// Nobody can be asked about machines, and nobody knows until when.
    pub(crate) fn is_unavailable(self) -> bool {
        match self {
            Self::Failed | Self::Removed => true,
            Self::Ready | Self::Loading => false,
        }
    }
}

/// The providers config, which outlives operator processes.
#[derive(Debug)]
pub(crate) struct Shelf {
    component: Mutex<Component>,
    settings: ProviderSettings,
    changes: watch::Sender<u64>,
}

impl Shelf {
    pub(crate) fn new(replacement: Replacement) -> Arc<Self> {
        let component = Mutex::new(Component::Ready);
        let settings = ProviderSettings { replacement, ..ProviderSettings::default() };
        Arc::new(Self { component, settings, changes: watch::channel(0).0 })
    }

    pub(crate) fn put(&self, component: Component) {
        *self.component.lock().unwrap() = component;
        self.changes.send_modify(|number| *number += 1);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The config in one process.
pub(crate) struct Configured {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) process: Arc<Process>,
}

impl Providers for Configured {
    fn lookup(&self, name: &ProviderName) -> Lookup {
        match *self.shelf.component.lock().unwrap() {
            Component::Loading => Lookup::Loading,
            Component::Failed => Lookup::Failed { stage: "read", reason: "no such file".to_owned() },
            Component::Removed => Lookup::Unknown { configured: Vec::new() },
            Component::Ready => Lookup::Ready(Arc::new(FakeProvider {
                info: info(name, self.shelf.settings.clone()),
                cloud: Arc::clone(&self.cloud),
                process: Arc::clone(&self.process),
            })),
        }
    }

    fn settings(&self, _name: &ProviderName) -> Option<ProviderSettings> {
        Some(self.shelf.settings.clone())
    }
}

fn info(name: &ProviderName, settings: ProviderSettings) -> ProviderInfo {
    ProviderInfo {
        name: name.clone(),
        digest: "sha256:00".to_owned(),
        config_hash: "c".to_owned(),
        scope: "fake".to_owned(),
        bootstrap_max_bytes: 1000,
        list_lag: LIST_LAG,
        takes_access: false,
        longest_call: LONGEST_CALL,
        settings,
    }
}

struct FakeProvider {
    info: ProviderInfo,
    cloud: Arc<Cloud>,
    process: Arc<Process>,
}

impl FakeProvider {
    /// `act` is what the call does, `later` the same at some later time.
    fn call<T: Send + 'static>(
        &self,
        effect: Effect,
        act: impl FnOnce(&Cloud) -> Result<T, Failure>,
        later: impl FnOnce(&Cloud, Duration),
    ) -> Call<'_, T> {
        let lost = || Failure::new(Reason::Transient, "connection lost");
        let held_back = || Failure::new(Reason::Host(HostFault::HeldBack), "a request was held back");
        self.process.act(effect, |fate| -> Call<'_, T> {
            match fate {
                Fate::DiesBefore => Box::pin(self.process.ends()),
                Fate::DiesAfter => {
                    drop(act(&self.cloud));
                    Box::pin(self.process.ends())
                }
                Fate::HeldBack if !effect.only_reads() => Box::pin(async move { Err(held_back()) }),
                // Of several requests the first did it; that another one was held back shows when the pause is over.
                Fate::BrokenOff if !effect.only_reads() => {
                    drop(act(&self.cloud));
                    let process = Arc::clone(&self.process);
                    Box::pin(async move {
                        process.after_a_pause().await;
                        Err(held_back())
                    })
                }
                Fate::Fine | Fate::HeldBack | Fate::BrokenOff => {
                    let answer = act(&self.cloud);
                    Box::pin(async move { answer })
                }
                Fate::Refused => Box::pin(async move { Err(lost()) }),
                Fate::AnswerLost => {
                    drop(act(&self.cloud));
                    Box::pin(async move { Err(lost()) })
                }
                Fate::Late(wait) => {
                    let answer = act(&self.cloud);
                    Box::pin(async move {
                        tokio::time::sleep(wait).await;
                        answer
                    })
                }
                Fate::LandsLate(after) => {
                    later(&self.cloud, after);
                    let passed = Failure::new(Reason::Host(HostFault::Deadline), "the call took too long");
                    Box::pin(async move { Err(passed) })
                }
            }
        })
    }
}

impl Provider for FakeProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn validate_create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, CreatePlan> {
        let act = |_: &Cloud| {
            if request.parameters.get("size").and_then(serde_json::Value::as_u64) == Some(0) {
                let reason = Reason::Invalid("/parameters/size".to_owned());
                return Err(Failure::new(reason, "size must be at least 1"));
            }
            Ok(CreatePlan { id: Some(id_of(request)), ..CreatePlan::default() })
        };
        self.call(Effect::Validate, act, |_, _| {})
    }

    fn create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, Instance> {
        let later = |cloud: &Cloud, after| cloud.create_later(request, after);
        self.call(Effect::Create, |cloud| cloud.create(request), later)
    }

    fn get<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Observation> {
        self.call(Effect::Get, |cloud| Ok(cloud.get(target)), |_, _| {})
    }

    fn delete<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Deletion> {
        let later = |cloud: &Cloud, after| cloud.delete_later(target, after);
        self.call(Effect::Delete, |cloud| Ok(cloud.delete(target)), later)
    }

    /// An answer that is lost is here one that shows nothing and says that it could not look everywhere.
    fn list_owned<'a>(&'a self, owner: &'a Tags) -> Call<'a, Listing> {
        self.process.act(Effect::List, |fate| -> Call<'a, Listing> {
            match fate {
                Fate::DiesBefore | Fate::DiesAfter => Box::pin(self.process.ends()),
                Fate::AnswerLost => Box::pin(async {
                    Ok(Listing { items: Vec::new(), unreachable: vec!["zones/b".to_owned()] })
                }),
                Fate::Refused | Fate::LandsLate(_) => {
                    Box::pin(async { Err(Failure::new(Reason::Throttled, "too many requests")) })
                }
                Fate::Late(wait) => {
                    let items = self.cloud.list(owner);
                    Box::pin(async move {
                        tokio::time::sleep(wait).await;
                        Ok(Listing { items, unreachable: Vec::new() })
                    })
                }
                Fate::Fine | Fate::HeldBack | Fate::BrokenOff => {
                    let items = self.cloud.list(owner);
                    Box::pin(async { Ok(Listing { items, unreachable: Vec::new() }) })
                }
            }
        })
    }
}
