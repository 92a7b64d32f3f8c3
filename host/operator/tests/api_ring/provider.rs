//! The provider `fake`: the [`Cloud`] as one operator process sees it, and the providers config that has it.
//! Whether it is loaded can be changed at any time, as a provider host does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Failure, Instance, InstanceRef, Listing, Lookup, Observation,
    Provider, ProviderInfo, ProviderSettings, Providers, Reason, Replacement, Tags,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cloud::{Cloud, Fault, Verb, id_of};
use crate::operator::Crash;

/// How loading the component went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Component {
    /// A component with this digest is ready.
    Ready(&'static str),
    /// Not yet.
    Loading,
    /// It could not be loaded.
    Failed,
    /// The entry is not in the providers config.
    Removed,
}

/// The entry `fake` of a providers config and what became of it.
#[derive(Debug)]
pub(crate) struct Shelf {
    component: Mutex<Component>,
    settings: ProviderSettings,
    changes: watch::Sender<u64>,
}

impl Shelf {
    /// Ready, with one attribute and a probe URL for its Proxies.
    pub(crate) fn new() -> Arc<Self> {
        Self::replacing(Replacement::default())
    }

    /// One whose machines are replaced so.
    pub(crate) fn replacing(replacement: Replacement) -> Arc<Self> {
        let settings = ProviderSettings {
            replacement,
            probe_url: Some("http://probe.of-the-provider.invalid/".to_owned()),
            attributes: BTreeMap::from([("cloud".to_owned(), "fake".to_owned())]),
            ..ProviderSettings::default()
        };
        let component = Mutex::new(Component::Ready("sha256:00"));
        Arc::new(Self { component, settings, changes: watch::channel(0).0 })
    }

    /// Becomes another one, and says so.
    pub(crate) fn put(&self, component: Component) {
        *self.component.lock().unwrap() = component;
        self.changes.send_modify(|number| *number += 1);
    }

    /// Grows with each change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn info(&self, digest: &str) -> ProviderInfo {
        ProviderInfo {
            name: ProviderName::parse("fake").unwrap(),
            digest: digest.to_owned(),
            config_hash: "c".to_owned(),
            scope: "fake".to_owned(),
            bootstrap_max_bytes: 1000,
            list_lag: Duration::ZERO,
            takes_access: true,
            longest_call: Duration::from_millis(300),
            settings: self.settings.clone(),
        }
    }
}

/// A providers config with `fake` in it.
pub(crate) struct Configured {
    shelf: Arc<Shelf>,
    cloud: Arc<Cloud>,
    crash: Arc<Crash>,
    /// When this process made or deleted something.
    sent: Arc<Mutex<Vec<Instant>>>,
}

impl Configured {
    pub(crate) fn new(shelf: Arc<Shelf>, cloud: Arc<Cloud>, crash: Arc<Crash>) -> Self {
        Self { shelf, cloud, crash, sent: Arc::default() }
    }

    /// Writes down there when something is made or deleted.
    pub(crate) fn noting(self, sent: &Arc<Mutex<Vec<Instant>>>) -> Self {
        Self { sent: Arc::clone(sent), ..self }
    }
}

impl Providers for Configured {
    fn lookup(&self, name: &ProviderName) -> Lookup {
        if name.as_str() != "fake" {
            return Lookup::Unknown { configured: vec![ProviderName::parse("fake").unwrap()] };
        }
        match *self.shelf.component.lock().unwrap() {
            Component::Loading => Lookup::Loading,
            Component::Removed => Lookup::Unknown { configured: Vec::new() },
            Component::Failed => Lookup::Failed { stage: "read", reason: "no such file".to_owned() },
            Component::Ready(digest) => Lookup::Ready(Arc::new(FakeProvider {
                info: self.shelf.info(digest),
                cloud: Arc::clone(&self.cloud),
                crash: Arc::clone(&self.crash),
                sent: Arc::clone(&self.sent),
            })),
        }
    }

    fn settings(&self, name: &ProviderName) -> Option<ProviderSettings> {
        (name.as_str() == "fake").then(|| self.shelf.settings.clone())
    }
}

struct FakeProvider {
    info: ProviderInfo,
    cloud: Arc<Cloud>,
    crash: Arc<Crash>,
    sent: Arc<Mutex<Vec<Instant>>>,
}

impl FakeProvider {
    fn call<T: Send + 'static>(
        &self,
        verb: Verb,
        act: impl FnOnce(&Cloud) -> Result<T, Failure>,
    ) -> Call<'_, T> {
        if matches!(verb, Verb::Create | Verb::Delete) {
            self.sent.lock().unwrap().push(Instant::now());
        }
        let fault = self.cloud.fault(verb);
        if let Some(Fault::Refuse(failure)) = fault {
            return Box::pin(async move { Err(failure) });
        }
        if let Some(Fault::RefuseLate(wait, failure)) = fault {
            return Box::pin(async move {
                tokio::time::sleep(wait).await;
                Err(failure)
            });
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
                // Past the panic hook: a backtrace would block this thread for longer than the create takes.
                Some(Fault::PanicAndLand(_)) => std::panic::resume_unwind(Box::new("on purpose")),
                Some(Fault::Refuse(_) | Fault::RefuseLate(..)) | None => answer,
            }
        })
    }
}

impl Provider for FakeProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn validate_create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, CreatePlan> {
        self.call(Verb::Validate, |_| Ok(CreatePlan { id: Some(id_of(request)), ..CreatePlan::default() }))
    }

    fn create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, Instance> {
        if let Some(after) = self.cloud.lands_late() {
            self.cloud.create_later(request, after);
            return self.call(Verb::Create, |_| Err(Failure::new(Reason::Transient, "under way")));
        }
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
