//! The CEL rules of the CRD, one table per type. The API server checks them at each write; each message
//! says what to do. A rule that compares with `oldSelf` runs on updates alone.
//!
//! The rules about appearing and disappearing fields sit on the whole spec: on an optional field itself a
//! rule is skipped whenever the field is absent.

use schemars::Schema;
use serde_json::{Value, json};

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Field that the refusal names, below the type that the rule is on; empty for the type itself.
    pub field: &'static str,
    /// CEL expression that must be true.
    pub holds: &'static str,
    /// What a person should do.
    pub message: &'static str,
}

const fn rule(field: &'static str, holds: &'static str, message: &'static str) -> Rule {
    Rule { field, holds, message }
}

/// Rules on `spec`.
pub const SPEC: &[Rule] = &[
    rule(
        "mode",
        "self.mode == oldSelf.mode",
        "mode is immutable: delete the Proxy and create it anew with the other mode",
    ),
    rule(
        "provider",
        "has(self.provider) == has(oldSelf.provider) && (!has(self.provider) || self.provider == oldSelf.provider)",
        "provider is immutable: delete the Proxy and create it anew with the other provider",
    ),
    rule(
        "provider",
        "self.mode != 'Managed' || has(self.provider)",
        "mode Managed needs a provider: set it to a name in the operator's providers config",
    ),
    rule(
        "provider",
        "self.mode != 'External' || !has(self.provider)",
        "mode External takes no provider: remove it, or use mode Managed",
    ),
    rule(
        "endpoint",
        "self.mode != 'External' || has(self.endpoint)",
        "mode External needs an endpoint: set endpoint.host and endpoint.port",
    ),
    rule(
        "endpoint",
        "self.mode != 'Managed' || !has(self.endpoint)",
        "mode Managed takes no endpoint, the provider reports it: remove it, or use mode External",
    ),
    rule(
        "cloudInit",
        "self.mode != 'External' || !has(self.cloudInit)",
        "mode External takes no cloudInit, since no machine is made: remove it",
    ),
    rule(
        "port",
        "self.mode != 'External' || !has(self.port)",
        "mode External takes no port: set endpoint.port instead",
    ),
    rule(
        "placement",
        "self.mode != 'External' || !has(self.placement)",
        "mode External takes no placement, since no machine is made: remove it",
    ),
    rule(
        "parameters",
        "self.mode != 'External' || !has(self.parameters)",
        "mode External takes no parameters, since no machine is made: remove them",
    ),
];

/// Rules on `spec.cloudInit`.
pub const CLOUD_INIT: &[Rule] = &[rule(
    "",
    "has(self.inline) != has(self.secretRef)",
    "set exactly one of cloudInit.inline and cloudInit.secretRef",
)];

/// Rules on `spec.endpoint.host`.
pub const HOST: &[Rule] = &[rule(
    "",
    "isIP(self) || (self.matches('^([A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?[.])*[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?[.]?$') && !self.matches('^[0-9.]+$'))",
    "must be an IPv4 address, an IPv6 address without brackets, or a DNS name; scheme and port do not belong here",
)];

/// Rules on `spec.attributes`.
pub const ATTRIBUTES: &[Rule] = &[rule(
    "",
    "self.all(key, key.matches('^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$'))",
    "keys of attributes have 1-63 letters, digits, '-', '_', '.' or '/' and start with a letter or digit",
)];

/// Rules on `spec.placement.labels`.
pub const LABELS: &[Rule] = &[rule(
    "",
    "self.all(key, key.matches('^[A-Za-z0-9][A-Za-z0-9._/-]{0,316}$'))",
    "keys of labels have 1-317 letters, digits, '-', '_', '.' or '/' and start with a letter or digit",
)];

/// Rules on `spec.healthCheck`.
pub const HEALTH_CHECK: &[Rule] = &[rule(
    "timeoutSeconds",
    "self.timeoutSeconds <= self.intervalSeconds",
    "timeoutSeconds (default 10) must be at most intervalSeconds (default 30): shorten the timeout or lengthen the interval",
)];

/// Rules on `spec.healthCheck.url`.
pub const URL: &[Rule] = &[rule(
    "",
    "self.matches('^https?://[^/?#@]+([/?#].*)?$') && isURL(self)",
    "must be an http:// or https:// URL with a host and without user name or password, such as https://example.com/health",
)];

/// All rules, so that a test can see that each has a case.
pub const ALL: &[&[Rule]] = &[SPEC, CLOUD_INIT, HOST, ATTRIBUTES, LABELS, HEALTH_CHECK, URL];

/// Puts the rules on a type or field.
pub(super) fn add(schema: &mut Schema, rules: &[Rule]) {
    let rendered = rules.iter().map(|rule| {
        let mut out = json!({ "rule": rule.holds, "message": rule.message });
        if let (false, Some(out)) = (rule.field.is_empty(), out.as_object_mut()) {
            out.insert("fieldPath".to_owned(), Value::String(format!(".{}", rule.field)));
        }
        out
    });
    schema.insert("x-kubernetes-validations".to_owned(), rendered.collect());
}
