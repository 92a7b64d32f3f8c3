//! The `Proxy` resource, `crawl.example.com/v1alpha1`: the contract with platform engineers.
//!
//! Doc comments here are what `kubectl explain` prints; rules are CEL with messages that say what to do.
//! Once landed, fields change only compatibly. `crds/` holds the generated YAML; a test compares it.

mod health_check;
pub mod rules;
mod schema;
mod secrets;
mod spec;
mod status;

pub use health_check::HealthCheckSpec;
pub use secrets::{AuthSpec, CloudInit, SecretKeyRef, SecretRef};
pub use spec::{EndpointProtocol, EndpointSpec, Mode, Placement, Proxy, ProxySpec};
pub use status::{ConditionType, Phase, ProxyStatus};

/// API group.
pub const GROUP: &str = "crawl.example.com";
/// Finalizer of every Managed Proxy.
pub const FINALIZER: &str = "crawl.example.com/finalizer";
/// Annotation: hash of what the machine was made from.
pub const SPEC_HASH_ANNOTATION: &str = "crawl.example.com/spec-hash";
/// Annotation: the id that create will return, written before the create.
pub const PLANNED_ID_ANNOTATION: &str = "crawl.example.com/planned-id";
/// Annotation: the scope that the create goes to, written together with the planned id.
pub const PLANNED_SCOPE_ANNOTATION: &str = "crawl.example.com/planned-scope";
/// Annotation by a person: a new value asks for a new machine, once.
pub const REPLACE_ANNOTATION: &str = "crawl.example.com/replace";
/// Annotation by a person, `true`: a Proxy whose provider is gone may be deleted without its machine.
pub const ABANDON_ANNOTATION: &str = "crawl.example.com/abandon";
/// Label that a cloud-init Secret must carry, with the value `true`.
pub const CLOUD_INIT_LABEL: &str = "crawl.example.com/cloud-init";
/// Label that a Secret with proxy credentials must carry, with the value `true`.
pub const PROXY_AUTH_LABEL: &str = "crawl.example.com/proxy-auth";
