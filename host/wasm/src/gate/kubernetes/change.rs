//! How a Pod that exists may be changed: its scheduling gates go, or it goes.
//!
//! Allow-lists of content types and fields. A patch could otherwise swap the image of any pod of the
//! namespace, and a server-side apply makes what is not there, past every check of `pod`.

use http::{HeaderMap, header};
use serde_json::{Map, Value};

use super::MERGE_PATCH;

type Check = Result<(), String>;

/// Fields of DeleteOptions that a provider may set.
const OPTIONS: [&str; 5] = ["apiVersion", "kind", "preconditions", "propagationPolicy", "gracePeriodSeconds"];

/// A merge patch: what it does can be told from its body alone.
pub(super) fn content_type(headers: &HeaderMap) -> Check {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case(MERGE_PATCH) {
        return Ok(());
    }
    let shown: String = kind.chars().take(64).collect();
    Err(format!("a patch of a Pod must have the content type {MERGE_PATCH}, not {shown:?}"))
}

/// Takes the scheduling gates away from one Pod, named by its uid, and does nothing else.
pub(super) fn ungates(patch: &Value) -> Check {
    let fields = object(Some(patch), "the patch")?;
    only(fields, &["metadata", "spec"], "the patch")?;
    let metadata = object(fields.get("metadata"), "metadata of the patch")?;
    only(metadata, &["uid", "resourceVersion"], "metadata of the patch")?;
    texts(metadata, "metadata of the patch")?;
    if !metadata.contains_key("uid") {
        return Err(
            "a patch of a Pod must name its uid (metadata.uid), or it could hit another one".to_owned()
        );
    }
    let spec = object(fields.get("spec"), "spec of the patch")?;
    only(spec, &["schedulingGates"], "spec of the patch")?;
    match spec.get("schedulingGates") {
        Some(Value::Null) => Ok(()),
        Some(Value::Array(gates)) if gates.is_empty() => Ok(()),
        _ => Err("a patch of a Pod may only take its schedulingGates away: null or []".to_owned()),
    }
}

/// Preconditions, policy and grace period of a delete.
pub(super) fn delete_options(options: &Value) -> Check {
    let what = "the options of a delete";
    let fields = object(Some(options), what)?;
    only(fields, &OPTIONS, what)?;
    match fields.get("preconditions") {
        None | Some(Value::Null) => Ok(()),
        Some(conditions) => {
            let what = "preconditions of a delete";
            let conditions = object(Some(conditions), what)?;
            only(conditions, &["uid", "resourceVersion"], what)?;
            texts(conditions, what)
        }
    }
}

fn object<'a>(value: Option<&'a Value>, what: &str) -> Result<&'a Map<String, Value>, String> {
    value.and_then(Value::as_object).ok_or_else(|| format!("{what} must be an object"))
}

fn only(fields: &Map<String, Value>, allowed: &[&str], what: &str) -> Check {
    match fields.keys().find(|field| !allowed.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => {
            let field: String = field.chars().take(64).collect();
            Err(format!("{what} may only have {}, not {field:?}", allowed.join(", ")))
        }
    }
}

fn texts(fields: &Map<String, Value>, what: &str) -> Check {
    match fields.iter().find(|(_, value)| !value.is_string()) {
        None => Ok(()),
        Some((field, _)) => Err(format!("{what}: {field} must be a text")),
    }
}
