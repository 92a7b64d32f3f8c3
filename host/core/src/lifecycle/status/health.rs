//! The Healthy condition: the verdict of the machine that status names, or what is known without one.

use crate::crd::ConditionType;

use super::conditions::{Facet, Value, find};
use super::{HealthView, ObjectFacts, Stage, StatusIntent};
use crate::crd::ProxyStatus;
use crate::facts::{Machine, Verdict};

/// Reason when no probe URL is configured.
pub(super) const NO_PROBE_URL: &str = "NoProbeURL";
const NO_PROBE_URL_MESSAGE: &str = "no probe URL is configured, so nobody knows whether this proxy works: set \
    spec.healthCheck.url on the Proxy, healthCheck.url of its provider in the providers config, or the \
    operator's flag --probe-url";
/// Reason until the first probe has ended: an ordinary step, no trouble.
pub const NOT_PROBED_YET: &str = "NotProbedYet";
const NOT_PROBED_YET_MESSAGE: &str = "no probe of this machine has ended yet";

/// The condition and the figures beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Probed {
    pub(super) facet: Facet,
    pub(super) latency_millis: Option<u32>,
    pub(super) time: Option<String>,
}

/// What is known of the health of the machine in `status`, the one to be written.
pub(super) fn judge(
    object: &ObjectFacts,
    intent: &StatusIntent,
    status: &ProxyStatus,
    health: HealthView<'_>,
) -> Probed {
    let goes_on = match &intent.stage {
        Stage::Kept(_) | Stage::Untouched => true, // its provider, which may have the URL, may be missing
        Stage::Running
        | Stage::External(_)
        | Stage::Creating
        | Stage::Provisioning(_)
        | Stage::Draining(_)
        | Stage::Replacing(_)
        | Stage::Deleting(_)
        | Stage::Blocked(..) => false,
    };
    if !health.configured && !goes_on {
        return unknown(NO_PROBE_URL, NO_PROBE_URL_MESSAGE);
    }
    if status.ip.is_none() {
        return unknown(NOT_PROBED_YET, NOT_PROBED_YET_MESSAGE);
    }
    match health.verdict.filter(|verdict| is_about(status, verdict)).filter(|_| health.configured) {
        Some(verdict) => of_verdict(verdict),
        None => kept(object, status, health.configured),
    }
}

/// True if the verdict is about the machine in the status, at the address that stands there.
fn is_about(status: &ProxyStatus, verdict: &Verdict) -> bool {
    let Machine { incarnation, address, port } = &verdict.machine;
    identity(status).as_deref() == Some(incarnation.as_str())
        && status.ip.as_ref() == Some(address)
        && status.port == Some(*port)
}

/// The identity that verdicts of the machine in a status carry.
fn identity(status: &ProxyStatus) -> Option<String> {
    status.incarnation.clone().or_else(|| {
        let (host, port) = (status.ip.as_deref()?, status.port?);
        Some(format!("{host}:{port}"))
    })
}

fn of_verdict(verdict: &Verdict) -> Probed {
    let value = if verdict.healthy { Value::True } else { Value::False };
    Probed {
        facet: Facet {
            kind: ConditionType::Healthy,
            value,
            reason: verdict.reason.to_owned(),
            message: verdict.message.clone(),
        },
        latency_millis: verdict.latency.map(|span| u32::try_from(span.as_millis()).unwrap_or(u32::MAX)),
        time: Some(verdict.probed_at.to_string()),
    }
}

/// Without a verdict of its own (a restart, a hand-over) what stands in status goes on, if it is about
/// this machine at this address.
fn kept(object: &ObjectFacts, status: &ProxyStatus, configured: bool) -> Probed {
    let old = &object.status;
    let same = identity(old) == identity(status)
        && old.ip.is_some()
        && (&old.ip, old.port) == (&status.ip, status.port);
    let condition = find(old, ConditionType::Healthy)
        .filter(|condition| same && condition.reason != NO_PROBE_URL && condition.status != "Unknown");
    let Some(condition) = condition else {
        return if configured {
            unknown(NOT_PROBED_YET, NOT_PROBED_YET_MESSAGE)
        } else {
            unknown(NO_PROBE_URL, NO_PROBE_URL_MESSAGE)
        };
    };
    let value = if condition.status == "True" { Value::True } else { Value::False };
    Probed {
        facet: Facet {
            kind: ConditionType::Healthy,
            value,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        },
        latency_millis: old.latency_millis,
        time: old.last_health_check_time.clone(),
    }
}

fn unknown(reason: &str, message: &str) -> Probed {
    Probed {
        facet: Facet {
            kind: ConditionType::Healthy,
            value: Value::Unknown,
            reason: reason.to_owned(),
            message: message.to_owned(),
        },
        latency_millis: None,
        time: None,
    }
}

/// True if a change of latency is not worth a write: at most the greater of 20 ms and half of the old.
pub(super) fn latency_is_alike(old: Option<u32>, new: Option<u32>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old.abs_diff(new) <= (old / 2).max(20),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
