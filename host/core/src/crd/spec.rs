//! What a user asks for.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ProxyStatus;

/// An HTTP egress proxy: made by a provider (Managed) or existing elsewhere (External), probed through
/// itself and leased to crawlers.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crawl.example.com",
    version = "v1alpha1",
    kind = "Proxy",
    plural = "proxies",
    singular = "proxy",
    shortname = "px",
    namespaced,
    status = "ProxyStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ProxySpec {
    /// Managed: a provider makes the machine. External: it exists elsewhere and is only probed and leased.
    pub mode: Mode,
    /// Name of a provider in the providers config. Required with Managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Where and on what the machine is made; the provider says which fields it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Free-form settings for the provider, checked against its own JSON Schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    /// Start-up payload of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// Port on which the proxy listens, Managed only; default 3128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Where an External proxy listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointSpec>,
    /// Credentials that the proxy demands, used by probes and given with a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,
    /// What discovery selects by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Most concurrent leases; absent = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_leases: Option<u32>,
    /// Most concurrent leases per target host; absent = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_leases_per_target: Option<u32>,
    /// True: the proxy is kept and probed, but not leased.
    #[serde(default)]
    pub suspend: bool,
    /// How the proxy is probed through itself.
    #[serde(default)]
    pub health_check: HealthCheckSpec,
}

/// Who makes the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// A provider makes, replaces and deletes it.
    Managed,
    /// It exists elsewhere; it is tracked, probed and leased.
    External,
}

/// Where and on what a machine is made. All optional here; the provider says what it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Zone, such as europe-west1-b.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Machine type, such as e2-micro.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// Image of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Subnetwork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnetwork: Option<String>,
    /// Disk size in GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<u32>,
    /// Labels of the machine; the operator's own tags win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Start-up payload: exactly one of `inline` and `secretRef`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudInit {
    /// The text itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// A Secret in the same namespace with the label `crawl.example.com/cloud-init: "true"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
}

/// One key of a Secret in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Key in its data.
    pub key: String,
}

/// Where an External proxy listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSpec {
    /// IPv4, IPv6 without brackets, or DNS name.
    pub host: String,
    /// Port, 1-65535.
    pub port: u16,
    /// Protocol between client and proxy.
    #[serde(default)]
    pub protocol: EndpointProtocol,
}

/// Protocol between client and proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndpointProtocol {
    /// HTTP proxy: absolute-form requests and CONNECT.
    #[default]
    Http,
}

/// Credentials that a proxy demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// A Secret in the same namespace with the label `crawl.example.com/proxy-auth: "true"`.
    pub secret_ref: SecretRef,
}

/// A Secret with a user name and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    pub name: String,
    /// Key of the user name; default `username`.
    #[serde(default = "username_key")]
    pub username_key: String,
    /// Key of the password; default `password`.
    #[serde(default = "password_key")]
    pub password_key: String,
}

fn username_key() -> String {
    "username".to_owned()
}

fn password_key() -> String {
    "password".to_owned()
}

/// How a proxy is probed through itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheckSpec {
    /// URL fetched through the proxy; falls back to the provider's, then to the operator's flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Statuses that count as success; empty = 200.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected_status: Vec<u16>,
    /// Seconds between probes.
    pub interval_seconds: u32,
    /// Seconds for one probe, at most the interval.
    pub timeout_seconds: u32,
    /// Successes in a row to become healthy.
    pub success_threshold: u32,
    /// Failures in a row to become unhealthy.
    pub failure_threshold: u32,
    /// A Secret key with further CA certificates (PEM) for the TLS inside the tunnel; the Secret carries
    /// the label `crawl.example.com/proxy-auth: "true"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
    /// True: certificates inside the tunnel are not verified.
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
