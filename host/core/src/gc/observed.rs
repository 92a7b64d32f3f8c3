//! All that a pass may depend on, as plain values.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{InstanceId, ProviderName, ProxyKey, ProxyUid};
use crate::lifecycle::is_in_namespace;
use crate::provider::{Instance, Listing};

use super::Sightings;

/// What one pass saw, and what the passes before it remember.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Identity of this cluster, as in the tags of machines.
    pub cluster: String,
    /// Where Proxies are looked for.
    pub view: View,
    /// Each provider that is ready, and its machines. Listed before the Proxies.
    pub machines: BTreeMap<ProviderName, Machines>,
    /// The Proxies. Listed after the machines.
    pub proxies: Proxies,
    /// From the plan of the pass before.
    pub sightings: Sightings,
}

/// What a provider answered when its machines were listed.
#[derive(Debug, Clone)]
pub enum Machines {
    /// These, and what could not be reached.
    Listed(Listing),
    /// It failed to answer.
    Unlisted,
}

/// The Proxies of the view.
#[derive(Debug, Clone)]
pub enum Proxies {
    /// Every one of them.
    All(BTreeMap<ProxyUid, LivingProxy>),
    /// The list failed, or broke off.
    Unknown,
}

/// Where Proxies are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// In all namespaces.
    All,
    /// In these alone: machines made for a Proxy elsewhere are not judged.
    Namespaces(BTreeSet<String>),
}

impl View {
    /// True if the Proxy of this machine would be seen.
    pub fn covers(&self, machine: &Instance) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(names) => names.iter().any(|name| is_in_namespace(machine, name)),
        }
    }
}

/// What an existing Proxy says of its machine. One that is being deleted exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivingProxy {
    /// Namespace and name.
    pub key: ProxyKey,
    /// `spec.provider`.
    pub provider: Option<ProviderName>,
    /// `deletionTimestamp` is set.
    pub deleting: bool,
    /// The machine in its status.
    pub recorded: Option<InstanceId>,
    /// The machine that its next create will make, or its last one made.
    pub planned: Option<InstanceId>,
}

impl LivingProxy {
    /// True if a machine with this id, made by `provider` for this very Proxy, is certainly another one than
    /// the Proxy means. While it records none, or plans none, nothing is certain.
    pub fn disowns(&self, provider: &ProviderName, id: &InstanceId) -> bool {
        let another = |named: &Option<InstanceId>| named.as_ref().is_some_and(|named| named != id);
        !self.deleting
            && self.provider.as_ref() == Some(provider)
            && another(&self.recorded)
            && another(&self.planned)
    }
}
