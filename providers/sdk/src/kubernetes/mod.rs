//! Errors of a Kubernetes API server.
//!
//! Most come as a `Status` object, whose `reason` and `details` say more than the HTTP status: a 403 may
//! be a quota, a 404 may be about something else than what was asked for.

use serde::Deserialize;

use crate::failure::{self, quote};
use crate::host::Response;
use crate::model::{Failure, Reason};

/// The API server of the operator's own cluster, with the identity that the administrator granted.
pub const ORIGIN: &str = "https://kubernetes.internal";

/// What an API server says instead of the object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    kind: String,
    reason: String,
    message: String,
    details: Details,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    kind: String,
    retry_after_seconds: Option<u32>,
    causes: Vec<Cause>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    field: String,
    message: String,
}

impl Status {
    /// Read a body; absent unless it is a `Status`.
    pub fn read(response: &Response) -> Option<Self> {
        let status: Self = serde_json::from_slice(&response.body).ok()?;
        (status.kind == "Status").then_some(status)
    }

    /// Machine-readable word such as `NotFound`.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    fn has_cause(&self, reason: &str) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == reason)
    }
}

/// Does this answer say for certain that this very object does not exist?
///
/// A 404 for a path that is not served, or from something in between, does not.
pub fn is_absent(response: &Response, resource: &str, name: &str) -> bool {
    response.status == 404
        && Status::read(response).is_some_and(|status| {
            status.reason == "NotFound" && status.details.kind == resource && status.details.name == name
        })
}

/// An answer with an error status. `what` says what was tried, such as "creating the pod".
pub fn failure(what: &str, response: &Response) -> Failure {
    let Some(status) = Status::read(response) else { return failure::from_status(what, response) };
    let reason = reason(&status, response.status);
    let retry_after_ms = failure::retry_after_ms(response)
        .or_else(|| status.details.retry_after_seconds.and_then(|seconds| seconds.checked_mul(1000)));
    Failure {
        retry_after_ms,
        upstream_status: Some(response.status),
        upstream_code: (!status.reason.is_empty()).then(|| status.reason.clone()),
        ..failure::new(reason, message(what, &status))
    }
}

fn reason(status: &Status, code: u16) -> Reason {
    match status.reason.as_str() {
        // Said by the quota admission plug-in; there is no code of its own.
        "Forbidden" if status.message.contains("exceeded quota") => Reason::Quota,
        "Forbidden" if status.has_cause("NamespaceTerminating") => Reason::Missing,
        "Unauthorized" | "Forbidden" => Reason::Denied,
        "NotFound" => Reason::Missing,
        "AlreadyExists" | "Conflict" => Reason::Busy,
        "Expired" | "Gone" => Reason::StaleCursor,
        "Invalid" => Reason::Invalid(String::new()),
        "BadRequest"
        | "MethodNotAllowed"
        | "NotAcceptable"
        | "UnsupportedMediaType"
        | "RequestEntityTooLarge" => Reason::Permanent,
        "TooManyRequests" => Reason::Throttled,
        "ServerTimeout" | "Timeout" | "InternalError" | "ServiceUnavailable" => Reason::Transient,
        _ if code == 429 => Reason::Throttled,
        _ if code >= 500 => Reason::Transient,
        other => Reason::Other(quote(other)),
    }
}

fn message(what: &str, status: &Status) -> String {
    let said = if status.message.is_empty() { status.reason.as_str() } else { status.message.as_str() };
    let mut text = format!("{what}: {}", quote(said));
    if status.reason == "Invalid" {
        // The values themselves are left out: they may come from a secret.
        let fields: Vec<&str> = status.details.causes.iter().map(|cause| cause.field.as_str()).collect();
        if !fields.is_empty() {
            text = format!("{what}: the API server refuses {}", quote(&fields.join(", ")));
            if let Some(first) = status.details.causes.first() {
                text = format!("{text}: {}", quote(&first.message));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests;
