//! What every request passes, outermost first: a panic becomes a 500, one log line, the limit of the body,
//! the token (in `auth`).
//!
//! The log line has neither query nor header nor the path itself, only the route: paths hold lease ids,
//! which are keys, and queries may hold anything.

use std::any::Any;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Method;
use http::header::CONTENT_LENGTH;
use http_body_util::Limited;
use tracing::{error, info};

use super::error::{ApiError, Code};
use super::extract::{MAX_BODY, too_large};
use crate::clock::SharedClock;

/// Turns a panic of a handler into an answer; the process and the other requests go on.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("not a text");
    error!(panic = text, "a request handler panicked");
    ApiError::new(Code::Internal, "a fault in the operator; its log has more").into_response()
}

/// One line per request.
pub(super) async fn log(State(clock): State<SharedClock>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let started = clock.now().mono;
    let response = next.run(request).await;
    let route = route.as_ref().map_or("(no route)", MatchedPath::as_str);
    if route != "/healthz" {
        let millis = clock.now().mono.since(started).as_millis();
        info!(%method, %route, status = response.status().as_u16(), %millis, "request");
    }
    response
}

/// Refuses a body that says it is too long at once, and stops reading one that turns out to be. Only POST has
/// a body; with other methods nobody reads it.
pub(super) async fn limit_body(request: Request, next: Next) -> Response {
    let announced = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<u64>().ok());
    if request.method() == Method::POST
        && announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > MAX_BODY))
    {
        return too_large().into_response();
    }
    next.run(request.map(|body| Body::new(Limited::new(body, MAX_BODY)))).await
}
