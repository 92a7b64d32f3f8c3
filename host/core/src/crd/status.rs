//! What the operator reports. Written by one place only, and only when it changes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{conditions, kubernetes_integers};

/// State in one word: Pending, Provisioning, Ready, Unhealthy, Replacing, Deleting or Failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Accepted; nothing was made yet, or something must be fixed first.
    #[default]
    Pending,
    /// The machine is being made, or has no verdict yet.
    Provisioning,
    /// Runs and is healthy.
    Ready,
    /// Runs and fails its probes.
    Unhealthy,
    /// The machine is being exchanged for one of another spec.
    Replacing,
    /// The object is being deleted and its machine with it.
    Deleting,
    /// Will not become ready without a change; see the conditions.
    Failed,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Provisioning,
        Self::Ready,
        Self::Unhealthy,
        Self::Replacing,
        Self::Deleting,
        Self::Failed,
    ];

    /// As it stands in status, in metrics and in the discovery API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Provisioning => "Provisioning",
            Self::Ready => "Ready",
            Self::Unhealthy => "Unhealthy",
            Self::Replacing => "Replacing",
            Self::Deleting => "Deleting",
            Self::Failed => "Failed",
        }
    }
}

/// The conditions that every Proxy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The machine exists and runs.
    Provisioned,
    /// Probes through it succeed.
    Healthy,
    /// It can be leased: for `kubectl wait --for=condition=Ready`.
    Ready,
}

impl ConditionType {
    /// As it stands in `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provisioned => "Provisioned",
            Self::Healthy => "Healthy",
            Self::Ready => "Ready",
        }
    }
}

/// What the operator knows of a Proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = kubernetes_integers)]
pub struct ProxyStatus {
    /// State in one word.
    #[serde(default)]
    pub phase: Phase,
    /// Reason of the condition that explains the phase.
    #[schemars(length(max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The provider's id of the machine.
    #[schemars(length(max = 512))]
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The scope that the machine was made in.
    #[schemars(length(max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_scope: Option<String>,
    /// Identity of the machine upstream; another one after a replacement.
    #[schemars(length(max = 512))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Address of the proxy: IPv4, IPv6, or a DNS name.
    #[schemars(length(max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Port of the proxy.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Latency of a probe, as of the last status-affecting one, in milliseconds.
    #[schemars(range(max = 2_147_483_647))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_millis: Option<u32>,
    /// Time of the last status-affecting probe, not of the most recent one.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_health_check_time: Option<String>,
    /// What a permanent failure was about: no call is made until one of these changes.
    #[schemars(length(max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latch: Option<String>,
    /// Value of the annotation `crawl.example.com/replace` that was taken up last.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_nonce: Option<String>,
    /// Identity of the machine that goes because of that; absent once it is gone.
    #[schemars(length(max = 512))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<String>,
    /// Generation that this status describes.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Provisioned, Healthy and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_the_same_word_in_status_and_everywhere_else() {
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        }
        let words: std::collections::BTreeSet<_> = Phase::ALL.map(Phase::as_str).into();
        assert_eq!(words.len(), Phase::ALL.len());
    }
}
