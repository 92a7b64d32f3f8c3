//! What the cloud writes down about its machines: which came to be, which were taken away by a delete, and which
//! were harmed by nobody's wish.

use std::collections::BTreeSet;

use egress_proxies_core::ids::Incarnation;
use egress_proxies_core::provider::{Instance, InstanceState};
use tokio::time::Instant;

/// A machine came to be.
#[derive(Debug, Clone)]
pub(crate) struct Birth {
    pub(crate) at: Instant,
    pub(crate) machine: Incarnation,
    /// Uid and name of its Proxy.
    pub(crate) uid: String,
    pub(crate) name: String,
    /// What it was made from.
    pub(crate) spec: String,
}

impl Birth {
    pub(crate) fn of(instance: &Instance, at: Instant) -> Option<Self> {
        let tag = |key: &str| instance.tags.get(key).cloned().unwrap_or_default();
        let (uid, name) = (uid_of(instance), tag("proxy-operator-name"));
        let spec = tag("proxy-operator-spec");
        Some(Self { at, machine: instance.incarnation.clone()?, uid, name, spec })
    }
}

/// A delete began to take a machine away.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) at: Instant,
    pub(crate) machine: Incarnation,
    pub(crate) uid: String,
    /// It ran until then.
    pub(crate) ran: bool,
}

impl Taken {
    pub(crate) fn of(instance: &Instance, at: Instant) -> Option<Self> {
        let ran = instance.state == InstanceState::Running;
        Some(Self { at, machine: instance.incarnation.clone()?, uid: uid_of(instance), ran })
    }
}

/// All of that, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    pub(crate) births: Vec<Birth>,
    pub(crate) taken: Vec<Taken>,
    /// Machines that vanished or stopped by themselves.
    pub(crate) harmed: BTreeSet<Incarnation>,
}

/// Uid of the Proxy that a machine was made for.
pub(crate) fn uid_of(instance: &Instance) -> String {
    instance.tags.get("proxy-operator-uid").cloned().unwrap_or_default()
}
