//! Providers over [`Cloud`]s, as one operator process sees them, and the providers config that has them: `fake`
//! alone unless a test adds others. Whether one is loaded can be changed at any time, as a provider host does.

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

/// An entry of a providers config and what became of it.
#[derive(Debug)]
pub(crate) struct Shelf {
    component: Mutex<Component>,
    scope: &'static str,
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
        Self::of("fake", |settings| settings.replacement = replacement)
    }

    /// One that reaches this account, with changes of what its entry says.
    pub(crate) fn of(scope: &'static str, change: impl FnOnce(&mut ProviderSettings)) -> Arc<Self> {
        let mut settings = ProviderSettings {
            probe_url: Some("http://probe.of-the-provider.invalid/".to_owned()),
            attributes: BTreeMap::from([("cloud".to_owned(), "fake".to_owned())]),
            ..ProviderSettings::default()
        };
        change(&mut settings);
        let component = Mutex::new(Component::Ready("sha256:00"));
        Arc::new(Self { component, scope, settings, changes: watch::channel(0).0 })
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

    fn is_configured(&self) -> bool {
        *self.component.lock().unwrap() != Component::Removed
    }

    pub(crate) fn info(&self, name: &ProviderName, digest: &str) -> ProviderInfo {
        ProviderInfo {
            name: name.clone(),
            digest: digest.to_owned(),
            config_hash: "c".to_owned(),
            scope: self.scope.to_owned(),
            bootstrap_max_bytes: 1000,
            list_lag: Duration::ZERO,
            takes_access: true,
            longest_call: Duration::from_millis(300),
            settings: self.settings.clone(),
        }
    }
}

/// A providers config: names, entries, and the account that each of them reaches.
pub(crate) struct Configured {
    entries: BTreeMap<ProviderName, (Arc<Shelf>, Arc<Cloud>)>,
    crash: Arc<Crash>,
    /// When this process made or deleted something.
    sent: Arc<Mutex<Vec<Instant>>>,
}

impl Configured {
    /// With `fake` alone.
    pub(crate) fn new(shelf: Arc<Shelf>, cloud: Arc<Cloud>, crash: Arc<Crash>) -> Self {
        let entries = BTreeMap::from([(ProviderName::parse("fake").unwrap(), (shelf, cloud))]);
        Self { entries, crash, sent: Arc::default() }
    }

    /// And with this one.
    pub(crate) fn and(mut self, name: &str, shelf: &Arc<Shelf>, cloud: &Arc<Cloud>) -> Self {
        let entry = (Arc::<Shelf>::clone(shelf), Arc::<Cloud>::clone(cloud));
        self.entries.insert(ProviderName::parse(name).unwrap(), entry);
        self
    }

    /// Writes down there when something is made or deleted.
    pub(crate) fn noting(self, sent: &Arc<Mutex<Vec<Instant>>>) -> Self {
        Self { sent: Arc::clone(sent), ..self }
    }
}

impl Providers for Configured {
    fn lookup(&self, name: &ProviderName) -> Lookup {
        let known = self.entries.get(name).filter(|(shelf, _)| shelf.is_configured());
        let Some((shelf, cloud)) = known else {
            let configured = self.entries.iter().filter(|(_, (shelf, _))| shelf.is_configured());
            return Lookup::Unknown { configured: configured.map(|(name, _)| name.clone()).collect() };
        };
        match *shelf.component.lock().unwrap() {
            Component::Loading => Lookup::Loading,
            Component::Removed => Lookup::Unknown { configured: Vec::new() },
            Component::Failed => Lookup::Failed { stage: "read", reason: "no such file".to_owned() },
            Component::Ready(digest) => Lookup::Ready(Arc::new(FakeProvider {
                info: shelf.info(name, digest),
                cloud: Arc::clone(cloud),
                crash: Arc::clone(&self.crash),
                sent: Arc::clone(&self.sent),
            })),
        }
    }

    fn settings(&self, name: &ProviderName) -> Option<ProviderSettings> {
        self.entries.get(name).map(|(shelf, _)| shelf.settings.clone())
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
            let mut items = cloud.list();
            items.retain(|machine| owner.iter().all(|(key, value)| machine.tags.get(key) == Some(value)));
            Ok(Listing { items, unreachable: Vec::new() })
        })
    }
}
