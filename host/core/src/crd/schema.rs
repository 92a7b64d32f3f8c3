//! Pieces of the CRD's schema that the derives can't express: bounds on maps and list items, integers in
//! Kubernetes' own formats, conditions with the bounds of `metav1.Condition`.
//!
//! Never looser than the types: what the API server admits, `serde` must be able to read.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// Longest URL.
pub(super) const URL_MAX: u32 = 2048;
/// Longest cloud-init text in characters; the provider's own limit, in bytes, may be lower.
pub(super) const INLINE_MAX: u32 = 262_144;
/// What the name of a Secret looks like.
pub(super) const SECRET_NAME: &str = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$";
/// What a key in a Secret looks like.
pub(super) const SECRET_KEY: &str = "^[A-Za-z0-9._-]+$";

/// Free-form settings: any JSON object.
pub(super) fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "maxProperties": 128,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A map of short texts; the shape of its keys is a rule, since a schema can't bound keys.
pub(super) fn texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 256 },
    })
}

/// A list of HTTP statuses.
pub(super) fn statuses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": { "type": "integer", "format": "int32", "minimum": 100, "maximum": 599 },
    })
}

/// Conditions, bounded as Kubernetes bounds its own, one of each type.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the Proxy's state.",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": { "type": "string", "maxLength": 316, "description": "Provisioned, Healthy or Ready." },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown." },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Constant word that says why, for programs.",
                },
                "message": { "type": "string", "maxLength": 32768, "description": "What it means and what to do about it, for people." },
                "lastTransitionTime": { "type": "string", "format": "date-time", "description": "When the status of this condition last changed." },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "Generation of the Proxy that this condition describes.",
                },
            },
        },
    })
}

/// Replaces Rust's integer formats, which the API server warns about, by the one of Kubernetes.
pub(super) fn kubernetes_integers(schema: &mut Schema) {
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        schema.insert("format".to_owned(), "int32".into());
    }
    schemars::transform::transform_subschemas(&mut kubernetes_integers, schema);
}
