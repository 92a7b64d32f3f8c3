//! The spec hash: what a machine was made from, in one line.
//!
//! `v1:<sha256 hex>` of canonical JSON with exactly these keys, sorted, without white space:
//! `cloudInit` (the resolved text or null), `parameters` (object, `{}` if absent), `placement` (object
//! without absent fields, `{}` if absent), `port` (number as given, null if absent), `provider` (string).
//! Object keys are sorted by bytes at every depth; numbers and strings as serde_json prints them.
//! It is taken before defaulting, so that a new default never replaces a fleet. Frozen: another way of
//! hashing is another version, and an unknown version never replaces a machine.

use std::fmt;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::crd::ProxySpec;
use crate::provider::ProviderInfo;

const VERSION: &str = "v1";

/// A spec hash of the current version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecHash(String);

impl SpecHash {
    /// As it stands in the annotation: `v1:<64 hex>`.
    pub fn annotation(&self) -> String {
        format!("{VERSION}:{}", self.0)
    }

    /// As it stands in the machine's tag: `v1-<32 hex>`.
    pub fn tag(&self) -> String {
        let short: String = self.0.chars().take(32).collect();
        format!("{VERSION}-{short}")
    }

    /// What a tag or annotation says of a machine: made from this (true), from another spec (false), or
    /// in a version that this release can't judge (None).
    pub fn judges(&self, text: &str) -> Option<bool> {
        if text.starts_with("v1-") {
            Some(text == self.tag())
        } else if text.starts_with("v1:") {
            Some(text == self.annotation())
        } else {
            None
        }
    }
}

impl fmt::Display for SpecHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.annotation())
    }
}

/// Hash of the parts of the spec that a machine is made from, with the resolved cloud-init text.
pub fn spec_hash(spec: &ProxySpec, cloud_init: Option<&str>) -> SpecHash {
    SpecHash(hex(&Sha256::digest(canonical_spec(spec, cloud_init))))
}

/// The text that is hashed.
pub(super) fn canonical_spec(spec: &ProxySpec, cloud_init: Option<&str>) -> String {
    let placement = spec
        .placement
        .as_ref()
        .and_then(|placement| serde_json::to_value(placement).ok())
        .unwrap_or_else(|| Value::Object(Map::new()));
    let parameters = Value::Object(spec.parameters.clone().unwrap_or_default());
    let mut all = Map::new();
    all.insert("cloudInit".to_owned(), cloud_init.map_or(Value::Null, Value::from));
    all.insert("parameters".to_owned(), parameters);
    all.insert("placement".to_owned(), placement);
    all.insert("port".to_owned(), spec.port.map_or(Value::Null, Value::from));
    all.insert("provider".to_owned(), spec.provider.clone().map_or(Value::Null, Value::from));
    let mut out = String::new();
    write_canonical(&Value::Object(all), &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (at, key) in keys.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(map.get(key).unwrap_or(&Value::Null), out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string());
        }
    }
}

/// What a permanent failure is about: it holds until the spec, the provider or its config changes.
pub fn latch_key(spec: &SpecHash, provider: &ProviderInfo) -> String {
    let mut digest = Sha256::new();
    for part in [&spec.annotation(), &provider.digest, &provider.config_hash] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let text = hex(&digest.finalize());
    let short: String = text.chars().take(32).collect();
    format!("{VERSION}-{short}")
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
