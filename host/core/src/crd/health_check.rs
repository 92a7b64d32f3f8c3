//! How a proxy is probed through itself.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::SecretKeyRef;
use super::rules;
use super::schema::{URL_MAX, statuses};

/// How the proxy is probed through itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = |schema: &mut Schema| rules::add(schema, rules::HEALTH_CHECK))]
pub struct HealthCheckSpec {
    /// URL fetched through the proxy, http or https. Without it the provider's `healthCheck.url` counts, then
    /// the operator's `--probe-url`; with none of them the proxy is not probed and never Ready.
    #[schemars(length(max = URL_MAX))]
    #[schemars(transform = |schema: &mut Schema| rules::add(schema, rules::URL))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Statuses of the response that count as success; empty means 200 alone.
    #[schemars(schema_with = "statuses")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected_status: Vec<u16>,
    /// Seconds between two probes, 1-86400.
    #[schemars(range(min = 1, max = 86400))]
    pub interval_seconds: u32,
    /// Seconds that one probe may take, 1-300, at most the interval.
    #[schemars(range(min = 1, max = 300))]
    pub timeout_seconds: u32,
    /// Successful probes in a row until the proxy counts as healthy.
    #[schemars(range(min = 1, max = 100))]
    pub success_threshold: u32,
    /// Failed probes in a row until the proxy counts as unhealthy.
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: u32,
    /// Further CA certificates (PEM) to trust for the TLS inside the tunnel. The Secret is in the same
    /// namespace and carries the label `crawl.example.com/proxy-auth: "true"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// True: certificates inside the tunnel are not verified, so that an intercepting proxy passes.
    pub insecure_skip_verify: bool,
}

impl Default for HealthCheckSpec {
    fn default() -> Self {
        Self {
            url: None,
            expected_status: Vec::new(),
            interval_seconds: 30,
            timeout_seconds: 10,
            success_threshold: 1,
            failure_threshold: 3,
            ca_secret_ref: None,
            insecure_skip_verify: false,
        }
    }
}
