//! A Proxy as health and pool need it: from its object and what it refers to, on every replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::crd::{ConditionType, HealthCheckSpec, Mode, Phase, Proxy, ProxyStatus};
use crate::facts::{Auth, CaPem, Machine, ProbePlan, ProxyFacts};
use crate::ids::{Incarnation, InvalidId, ProviderName};
use crate::provider::ProviderSettings;

use super::ObjectFacts;

/// What the facts of a Proxy depend on, besides its object.
#[derive(Debug, Clone)]
pub struct FactsInput<'a> {
    /// Its credentials as far as they can be read.
    pub auth: Auth,
    /// Settings of its provider, if that is loaded.
    pub provider: Option<&'a ProviderSettings>,
    /// Probe URL of last resort, from the operator's flag.
    pub default_probe_url: Option<&'a str>,
    /// Further CA certificates, if `healthCheck.caSecretRef` is set.
    pub ca_pem: Option<CaPem>,
    /// The leader saw this machine run (`Memory::running_machine`) before status says so: probed, and
    /// leased only once the status is Ready.
    pub running: Option<Machine>,
}

/// Facts of one Proxy.
///
/// # Errors
/// Only for an object without a valid uid.
pub fn facts_of(proxy: &Proxy, input: FactsInput<'_>) -> Result<ProxyFacts, InvalidId> {
    let object = ObjectFacts::of(proxy)?;
    let spec = &object.spec;
    let machine = machine_of(&object, input.running);
    let attributes = attributes_of(&spec.attributes, input.provider);
    let current = machine.as_ref().is_some_and(|machine| is_in_status(spec.mode, &object.status, machine));
    let networks = input.provider.map(|settings| Arc::clone(&settings.address_cidrs)).unwrap_or_default();
    let probe = probe_url(&object, input.provider, input.default_probe_url)
        .map(|url| ProbePlan { networks, ..probe_plan(url, &spec.health_check, input.ca_pem) });
    Ok(ProxyFacts {
        mode: spec.mode,
        provider: spec.provider.clone().and_then(|name| ProviderName::parse(name).ok()),
        attributes,
        max_leases: spec.max_leases,
        max_leases_per_target: spec.max_leases_per_target,
        suspend: spec.suspend,
        deleting: object.deleting,
        begun: object.has_finalizer(),
        phase: object.status.phase,
        auth: input.auth,
        healthy: if current { healthy(&object.status) } else { None },
        latency: object
            .status
            .latency_millis
            .filter(|_| current)
            .map(|millis| Duration::from_millis(u64::from(millis))),
        probe,
        machine,
        key: object.key,
        uid: object.uid,
    })
}

/// True if a probe URL is set on the Proxy, its provider or by the flag.
pub fn probe_url(
    object: &ObjectFacts,
    provider: Option<&ProviderSettings>,
    default: Option<&str>,
) -> Option<String> {
    let own = object.spec.health_check.url.as_deref();
    own.or_else(|| provider.and_then(|settings| settings.probe_url.as_deref())).or(default).map(str::to_owned)
}

/// The machine to probe and to lease: External always, Managed while the status names a running one.
fn machine_of(object: &ObjectFacts, running: Option<Machine>) -> Option<Machine> {
    if object.deleting {
        return None;
    }
    let status = &object.status;
    match object.spec.mode {
        Mode::External => object.spec.endpoint.as_ref().and_then(|endpoint| {
            let name = format!("{}:{}", endpoint.host, endpoint.port);
            let incarnation = Incarnation::parse(name).ok()?;
            Some(Machine { incarnation, address: endpoint.host.clone(), port: endpoint.port })
        }),
        Mode::Managed => {
            let early = match status.phase {
                Phase::Pending | Phase::Provisioning => running,
                Phase::Ready | Phase::Unhealthy | Phase::Replacing | Phase::Deleting | Phase::Failed => None,
            };
            early.or_else(|| {
                let incarnation = Incarnation::parse(status.incarnation.clone()?).ok()?;
                Some(Machine { incarnation, address: status.ip.clone()?, port: status.port? })
            })
        }
    }
}

/// True if the status is about this machine at this address. That of an edited External Proxy is about the
/// endpoint before, as is that of a machine that got another address: its verdict says nothing about the new.
fn is_in_status(mode: Mode, status: &ProxyStatus, machine: &Machine) -> bool {
    let same_machine = match mode {
        Mode::Managed => status.incarnation.as_deref() == Some(machine.incarnation.as_str()),
        Mode::External => true,
    };
    same_machine
        && status.ip.as_deref() == Some(machine.address.as_str())
        && status.port == Some(machine.port)
}

fn attributes_of(
    own: &BTreeMap<String, String>,
    provider: Option<&ProviderSettings>,
) -> BTreeMap<String, String> {
    let mut all = provider.map(|settings| settings.attributes.clone()).unwrap_or_default();
    all.extend(own.clone());
    all
}

fn healthy(status: &ProxyStatus) -> Option<bool> {
    let name = ConditionType::Healthy.as_str();
    let condition = status.conditions.iter().find(|condition| condition.type_ == name)?;
    match condition.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

fn probe_plan(url: String, check: &HealthCheckSpec, ca_pem: Option<CaPem>) -> ProbePlan {
    let interval = Duration::from_secs(u64::from(check.interval_seconds.max(1)));
    ProbePlan {
        url,
        expected_status: if check.expected_status.is_empty() {
            vec![200]
        } else {
            check.expected_status.clone()
        },
        interval,
        timeout: Duration::from_secs(u64::from(check.timeout_seconds.max(1))).min(interval),
        success_threshold: check.success_threshold.max(1),
        failure_threshold: check.failure_threshold.max(1),
        networks: Arc::default(),
        ca_pem,
        insecure_skip_verify: check.insecure_skip_verify,
    }
}
