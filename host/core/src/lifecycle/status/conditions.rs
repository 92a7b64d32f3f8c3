//! The three conditions, always all of them, each with the generation it is about.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::crd::{ConditionType, ProxyStatus};
use crate::lifecycle::ProvisionedReason;
use crate::time::Now;

/// A condition without its bookkeeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facet {
    pub(super) kind: ConditionType,
    pub(super) value: Value,
    pub(super) reason: String,
    pub(super) message: String,
}

/// Value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    True,
    False,
    Unknown,
}

impl Value {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The condition as it stands in a status.
pub(super) fn find(status: &ProxyStatus, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// The conditions with their transition times, which move only when the value changes, or a drain begins: from
/// there on it is counted, and the value may have been False long before.
pub(super) fn all(
    old: &ProxyStatus,
    facets: [Facet; 3],
    generation: Option<i64>,
    now: Now,
) -> Vec<Condition> {
    let draining = ProvisionedReason::Draining.as_str();
    facets
        .into_iter()
        .map(|facet| {
            let since = find(old, facet.kind)
                .filter(|old| old.status == facet.value.as_str())
                .filter(|old| old.reason == facet.reason || facet.reason != draining)
                .map_or_else(|| Time(whole_seconds(now.wall)), |old| old.last_transition_time.clone());
            Condition {
                type_: facet.kind.as_str().to_owned(),
                status: facet.value.as_str().to_owned(),
                reason: facet.reason,
                message: facet.message,
                last_transition_time: since,
                observed_generation: generation,
            }
        })
        .collect()
}

/// Kubernetes keeps whole seconds.
fn whole_seconds(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}
