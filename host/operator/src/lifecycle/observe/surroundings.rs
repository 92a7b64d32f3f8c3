//! What a Proxy refers to, looked up without I/O: provider, Secrets, verdict.

use std::sync::Arc;

use egress_proxies_core::crd::{Mode, Proxy};
use egress_proxies_core::facts::{LeaseCounts, Machine, ProxyFacts, Verdicts};
use egress_proxies_core::ids::InvalidId;
use egress_proxies_core::lifecycle::{
    FactsInput, ObjectFacts, ProviderView, Surroundings, facts_of, probe_url,
};
use egress_proxies_core::provider::{Lookup, ProviderSettings, Providers};
use tokio::sync::watch;

use super::secrets;
use super::stores::Stores;

/// Where the surroundings come from.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) stores: Stores,
    pub(crate) providers: Arc<dyn Providers>,
    pub(crate) verdicts: watch::Receiver<Verdicts>,
    pub(crate) leases: watch::Receiver<LeaseCounts>,
    pub(crate) cluster: String,
    pub(crate) default_probe_url: Option<String>,
}

impl Sources {
    /// What this object refers to, as of now.
    pub(crate) fn surroundings(&self, object: &ObjectFacts) -> Surroundings {
        let namespace = &object.key.namespace;
        let settings = self.settings(object);
        Surroundings {
            cluster: self.cluster.clone(),
            probe_configured: probe_url(object, settings.as_ref(), self.default_probe_url.as_deref())
                .is_some(),
            provider: ProviderView::from(&self.lookup(object)),
            cloud_init: secrets::cloud_init(&self.stores, namespace, object.spec.cloud_init.as_ref()),
            auth: secrets::auth(&self.stores, namespace, object.spec.auth.as_ref()),
            verdict: self.verdicts.borrow().get(&object.uid).cloned(),
            leases: self.leases.borrow().get(&object.uid).copied().unwrap_or_default(),
        }
    }

    /// The Proxy as health and pool need it; `running` is the machine that this process saw run.
    pub(crate) fn facts(&self, proxy: &Proxy, running: Option<Machine>) -> Result<ProxyFacts, InvalidId> {
        let object = ObjectFacts::of(proxy)?;
        let namespace = &object.key.namespace;
        let settings = self.settings(&object);
        let ca = proxy.spec.health_check.ca_secret_ref.as_ref();
        let ca_pem = ca.map(|reference| secrets::ca_pem(&self.stores, namespace, reference));
        let input = FactsInput {
            auth: secrets::auth(&self.stores, namespace, proxy.spec.auth.as_ref()),
            provider: settings.as_ref(),
            default_probe_url: self.default_probe_url.as_deref(),
            ca_pem,
            running,
        };
        facts_of(proxy, input)
    }

    fn lookup(&self, object: &ObjectFacts) -> Lookup {
        match (object.spec.mode, object.provider()) {
            (Mode::Managed, Some(name)) => self.providers.lookup(&name),
            (Mode::Managed, None) | (Mode::External, _) => Lookup::Unknown { configured: Vec::new() },
        }
    }

    /// From the config, not from the loaded provider: a machine that runs keeps its attributes and its
    /// probe while its provider is loading or cannot be loaded.
    fn settings(&self, object: &ObjectFacts) -> Option<ProviderSettings> {
        match (object.spec.mode, object.provider()) {
            (Mode::Managed, Some(name)) => self.providers.settings(&name),
            (Mode::Managed, None) | (Mode::External, _) => None,
        }
    }
}
