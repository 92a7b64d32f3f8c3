//! Reading requests strictly: what cannot be understood is refused with the field and its limits, never
//! ignored. A misspelt field that is ignored costs its author an afternoon.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use egress_proxies_core::ids::LeaseId;
use egress_proxies_core::pool::Target;
use http::request::Parts;
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;
use serde_json::Number;
use serde_json::error::Category;
use tokio::time::timeout;

use super::error::{ApiError, Code};

/// Longest body.
pub(super) const MAX_BODY: usize = 64 * 1024;
/// Time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A JSON object as body, whatever its content type says: `curl -d` says it is a form.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let bytes = timeout(BODY_TIMEOUT, to_bytes(request.into_body(), MAX_BODY))
            .await
            .map_err(|_| ApiError::new(Code::RequestTimeout, "the body did not arrive within 10 s"))?
            .map_err(|error| unreadable(&error))?;
        parse(&bytes).map(Self)
    }
}

fn unreadable(error: &axum::Error) -> ApiError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large();
        }
        cause = error.source();
    }
    ApiError::new(Code::InvalidJson, "the body ended before it was complete")
}

/// The body is over the limit.
pub(super) fn too_large() -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("the body is longer than {MAX_BODY} bytes"))
}

fn parse<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, ApiError> {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {}
        None => {
            return Err(ApiError::new(
                Code::InvalidJson,
                "the body is empty; send a JSON object, at least {}",
            ));
        }
        Some(_) => return Err(ApiError::new(Code::InvalidJson, "the body is not a JSON object")),
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match inner.classify() {
            Category::Data if path == "." => ApiError::new(Code::InvalidRequest, inner.to_string()),
            Category::Data => ApiError::new(Code::InvalidRequest, format!("{path}: {inner}")),
            Category::Syntax | Category::Eof | Category::Io => not_json(&inner),
        }
    })?;
    json.end().map_err(|error| not_json(&error))?;
    Ok(value)
}

fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::new(Code::InvalidJson, format!("the body is not JSON: {error}"))
}

/// Parts of the path, percent-decoded.
#[derive(Debug)]
pub(super) struct PathParts<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParts<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(value) = Path::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::new(Code::InvalidRequest, format!("path: {}", error.body_text())))?;
        Ok(Self(value))
    }
}

/// The id of a lease in the path; none if the text there cannot be one, which is as good as an unknown one.
#[derive(Debug)]
pub(super) struct LeasePath(pub(super) Option<LeaseId>);

impl<S: Send + Sync> FromRequestParts<S> for LeasePath {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let text = Path::<String>::from_request_parts(parts, state).await.ok();
        Ok(Self(text.and_then(|Path(text)| LeaseId::parse(text).ok())))
    }
}

/// No query parameter at all.
#[derive(Debug)]
pub(super) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let QueryPairs(pairs) = QueryPairs::from_request_parts(parts, state).await?;
        only(&pairs, &[])?;
        Ok(Self)
    }
}

/// Query parameters in their order, repeated ones included.
#[derive(Debug)]
pub(super) struct QueryPairs(pub(super) Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for QueryPairs {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(pairs) = Query::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::new(Code::InvalidRequest, format!("query: {}", error.body_text())))?;
        Ok(Self(pairs))
    }
}

/// Whole seconds from 1 to `most`.
pub(super) fn seconds(
    field: &str,
    given: Option<&Number>,
    most: Duration,
) -> Result<Option<Duration>, ApiError> {
    let Some(given) = given else { return Ok(None) };
    match given.as_u64().filter(|seconds| (1..=most.as_secs()).contains(seconds)) {
        Some(seconds) => Ok(Some(Duration::from_secs(seconds))),
        None => {
            Err(invalid(field, &format!("must be a whole number from 1 to {}, not {given}", most.as_secs())))
        }
    }
}

/// Text of 1 to `most` characters.
pub(super) fn text(field: &str, given: Option<String>, most: usize) -> Result<Option<String>, ApiError> {
    let Some(given) = given else { return Ok(None) };
    let count = given.chars().count();
    if (1..=most).contains(&count) {
        Ok(Some(given))
    } else {
        Err(invalid(field, &format!("must have 1 to {most} characters, not {count}")))
    }
}

/// A host.
pub(super) fn target(field: &str, given: Option<&str>) -> Result<Option<Target>, ApiError> {
    given.map(Target::parse).transpose().map_err(|error| invalid(field, &error.to_string()))
}

/// A field that is understood but not allowed.
pub(super) fn invalid(field: &str, fault: &str) -> ApiError {
    ApiError::new(Code::InvalidRequest, format!("{field}: {fault}"))
}

/// Refuses parameters other than these, and repeated ones.
pub(super) fn only(pairs: &[(String, String)], allowed: &[&str]) -> Result<(), ApiError> {
    for (index, (key, _)) in pairs.iter().enumerate() {
        if !allowed.contains(&key.as_str()) {
            let known = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
            return Err(unknown(key, &known));
        }
        once(key, pairs.iter().skip(index + 1).any(|(later, _)| later == key))?;
    }
    Ok(())
}

/// Refuses what is given more than once.
pub(super) fn once(key: &str, repeated: bool) -> Result<(), ApiError> {
    if repeated { Err(invalid(key, "may be given once")) } else { Ok(()) }
}

/// A parameter that the route does not have.
pub(super) fn unknown(key: &str, known: &str) -> ApiError {
    invalid(key, &format!("is no query parameter of this route; known: {known}"))
}
