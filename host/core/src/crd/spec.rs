//! What a user asks for.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::rules;
use super::schema::{kubernetes_integers, parameters, texts};
use super::{AuthSpec, CloudInit, HealthCheckSpec, ProxyStatus};

/// What the proxy should be.
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
    derive = "PartialEq",
    doc = "An HTTP egress proxy: made by a provider (Managed) or existing elsewhere (External), probed through itself and leased to crawlers.",
    selectable = ".spec.mode",
    selectable = ".spec.provider",
    selectable = ".status.phase",
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "description": "Managed or External."}"#,
    printcolumn = r#"{"name": "Provider", "type": "string", "jsonPath": ".spec.provider", "description": "Provider of a Managed proxy."}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "State in one word."}"#,
    printcolumn = r#"{"name": "IP", "type": "string", "jsonPath": ".status.ip", "description": "Address of the proxy."}"#,
    printcolumn = r#"{"name": "Healthy", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Healthy\")].status", "description": "Whether probes through it succeed."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since the Proxy was created."}"#,
    printcolumn = r#"{"name": "Port", "type": "integer", "priority": 1, "jsonPath": ".status.port", "description": "Port of the proxy."}"#,
    printcolumn = r#"{"name": "Latency", "type": "integer", "priority": 1, "jsonPath": ".status.latencyMillis", "description": "Latency of a probe in milliseconds."}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.reason", "description": "Why it is in this phase."}"#,
    printcolumn = r#"{"name": "ID", "type": "string", "priority": 1, "jsonPath": ".status.providerID", "description": "The provider's id of the machine."}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = kubernetes_integers, transform = |schema: &mut Schema| rules::add(schema, rules::SPEC))]
pub struct ProxySpec {
    /// Managed: a provider makes, replaces and deletes the machine. External: it exists elsewhere and is only
    /// probed and leased. Immutable.
    pub mode: Mode,
    /// Name of a provider in the operator's providers config. Required with Managed, refused with External,
    /// immutable.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z][a-z0-9-]*$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Where and on what the machine is made; the provider says which fields it needs. A change replaces the
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Free-form settings for the provider, checked against its own JSON Schema. A change replaces the
    /// machine.
    #[schemars(schema_with = "parameters")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    /// Start-up payload of the machine. A change replaces the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// Port on which the proxy listens, 1-65535, with Managed only; 3128 when absent. A change replaces the
    /// machine.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Where an External proxy listens. Required with External, refused with Managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointSpec>,
    /// Credentials that the proxy demands, used by probes and given to clients with a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,
    /// What discovery selects by, such as `geo: de`. Up to 32; keys of 1-63 letters, digits, `-`, `_`, `.` and
    /// `/`, values of up to 256 characters.
    #[schemars(schema_with = "texts")]
    #[schemars(transform = |schema: &mut Schema| rules::add(schema, rules::ATTRIBUTES))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Most concurrent leases; without it there is no limit. 0 means that none is given.
    #[schemars(range(max = 1_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_leases: Option<u32>,
    /// Most concurrent leases per target host; without it there is no limit.
    #[schemars(range(max = 1_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_leases_per_target: Option<u32>,
    /// True: the proxy is kept and probed, but not leased any more; leases that exist run out.
    #[serde(default)]
    pub suspend: bool,
    /// How the proxy is probed through itself.
    #[serde(default)]
    pub health_check: HealthCheckSpec,
}

/// Who makes the machine: Managed or External.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// A provider makes, replaces and deletes it.
    Managed,
    /// It exists elsewhere; it is tracked, probed and leased.
    External,
}

/// Where and on what the machine is made. All fields are optional here; the provider says what it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Zone, such as europe-west1-b.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Type of the machine, such as e2-micro.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// Image of the machine.
    #[schemars(length(min = 1, max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Network that the machine is in.
    #[schemars(length(min = 1, max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Subnetwork that the machine is in.
    #[schemars(length(min = 1, max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnetwork: Option<String>,
    /// Size of the disk in GB.
    #[schemars(range(min = 1, max = 65536))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<u32>,
    /// Labels of the machine, up to 32; the operator's own tags win.
    #[schemars(schema_with = "texts")]
    #[schemars(transform = |schema: &mut Schema| rules::add(schema, rules::LABELS))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Where an External proxy listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSpec {
    /// Address of the proxy: IPv4, IPv6 without brackets, or a DNS name.
    #[schemars(length(max = 253))]
    #[schemars(transform = |schema: &mut Schema| rules::add(schema, rules::HOST))]
    pub host: String,
    /// Port of the proxy, 1-65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Protocol between client and proxy.
    #[serde(default)]
    pub protocol: EndpointProtocol,
}

/// Protocol between client and proxy: http.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndpointProtocol {
    /// HTTP proxy: absolute-form requests and CONNECT.
    #[default]
    Http,
}
