//! What a Proxy takes from Secrets: start-up payload and credentials.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::rules;
use super::schema::{INLINE_MAX, SECRET_KEY, SECRET_NAME};

/// Start-up payload of the machine: exactly one of `inline` and `secretRef`. A change replaces the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = |schema: &mut Schema| rules::add(schema, rules::CLOUD_INIT))]
pub struct CloudInit {
    /// The text itself. Everybody who may read the Proxy can read it: keep secrets in a Secret.
    #[schemars(length(min = 1, max = INLINE_MAX))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// One key of a Secret in the same namespace, which carries the label
    /// `crawl.example.com/cloud-init: "true"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
}

/// One key of a Secret in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_NAME))]
    pub name: String,
    /// Key in the data of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_KEY))]
    pub key: String,
}

/// Credentials that the proxy demands, used by probes and given to clients with a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// A Secret in the same namespace, which carries the label `crawl.example.com/proxy-auth: "true"`.
    pub secret_ref: SecretRef,
}

/// A Secret with a user name and a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_NAME))]
    pub name: String,
    /// Key of the user name in the data of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_KEY))]
    #[serde(default = "username_key")]
    pub username_key: String,
    /// Key of the password in the data of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_KEY))]
    #[serde(default = "password_key")]
    pub password_key: String,
}

fn username_key() -> String {
    "username".to_owned()
}

fn password_key() -> String {
    "password".to_owned()
}
