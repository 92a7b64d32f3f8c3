//! What goes wrong, as clients see it: one JSON shape for everything, the 404 of an unknown route included.
//!
//! The code is for programs and never changes its meaning; the message is for people and says what to do.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use egress_proxies_core::pool::{NoMatch, Refusal};
use http::header::{CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// Longest message; whatever a client sent may be quoted in it.
const MAX_MESSAGE: usize = 600;

/// The constant word for a kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ErrorCode)]
pub(super) enum Code {
    /// 400: the body is no JSON object.
    InvalidJson,
    /// 400: a field or query parameter is unknown, of the wrong type, or out of its limits.
    InvalidRequest,
    /// 400: the result of a report is none of those that exist.
    InvalidResult,
    /// 401: no token, or not one of ours.
    Unauthorized,
    /// 404: no such route.
    NotFound,
    /// 404: no such Proxy.
    UnknownProxy,
    /// 404: no such lease, or it ended.
    UnknownLease,
    /// 405: the route exists, not with this method.
    MethodNotAllowed,
    /// 408: the body did not arrive in time.
    RequestTimeout,
    /// 409: no proxy can be granted now.
    NoMatch,
    /// 409: the session holds a lease that was asked for in another way.
    SessionConflict,
    /// 410: the machine of the lease is no more.
    MachineGone,
    /// 413: the body is over 64 KiB.
    BodyTooLarge,
    /// 500: a fault of ours.
    Internal,
    /// 503: the operator has not seen all Proxies yet.
    NotReady,
    /// 503: this replica stands by; another one keeps the leases.
    NotLeader,
    /// 503: as many leases are live as the operator keeps.
    TooManyLeases,
}

impl Code {
    /// Its status.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::InvalidJson | Self::InvalidRequest | Self::InvalidResult => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound | Self::UnknownProxy | Self::UnknownLease => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::NoMatch | Self::SessionConflict => StatusCode::CONFLICT,
            Self::MachineGone => StatusCode::GONE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotReady | Self::NotLeader | Self::TooManyLeases => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Why nothing can be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum NoMatchReason {
    /// No Proxy matches: waiting does not help.
    NoSuchProxy,
    /// Proxies match, but none can be leased now.
    Busy,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ErrorBody {
    /// The kind of error, for programs.
    error: Code,
    /// What happened and what to do, for people.
    message: String,
}

/// The one code of [`NoMatchBody`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum NoMatchCode {
    NoMatch,
}

/// `no_match`: how many of the matching proxies stand where. The counts add up to `considered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NoMatchBody {
    /// The kind of error, for programs.
    error: NoMatchCode,
    /// What happened and what to do, for people.
    message: String,
    /// Whether waiting helps.
    reason: NoMatchReason,
    /// Proxies that match the request.
    considered: u32,
    /// At `maxLeases`.
    at_capacity: u32,
    /// At `maxLeasesPerTarget` for this target.
    target_at_capacity: u32,
    /// In cooldown for this target.
    in_cooldown: u32,
    /// Unhealthy, or reported as unreachable and not probed well since.
    unhealthy: u32,
    /// Suspended.
    suspended: u32,
    /// No machine yet, being replaced, no verdict yet, or credentials that were never read.
    not_ready: u32,
}

/// The one code of [`SessionConflictBody`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionConflictCode {
    SessionConflict,
}

/// `session_conflict`: the session holds a lease that was asked for in another way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct SessionConflictBody {
    /// The kind of error, for programs.
    error: SessionConflictCode,
    /// What happened and what to do, for people.
    message: String,
}

/// Why a lease is refused: `no_match` with counts, or `session_conflict`. `error` tells the two apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum LeaseRefusal {
    /// Nothing can be granted.
    NoMatch(NoMatchBody),
    /// The session has something else.
    SessionConflict(SessionConflictBody),
}

/// What stands in the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum AnyBody {
    Lease(LeaseRefusal),
    Plain(ErrorBody),
}

/// An error on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    code: Code,
    body: AnyBody,
    retry_after: Option<u64>,
}

impl ApiError {
    /// An error of this kind.
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE {
            message = message.chars().take(MAX_MESSAGE).chain("...".chars()).collect();
        }
        Self { code, body: AnyBody::Plain(ErrorBody { error: code, message }), retry_after: None }
    }

    /// The Proxies are not all known yet.
    pub(super) fn not_ready() -> Self {
        let message = "the operator has not read all Proxies yet; try again in a few seconds";
        Self { retry_after: Some(2), ..Self::new(Code::NotReady, message) }
    }

    /// Leases are given by another replica, or by none for now.
    pub(super) fn not_leader() -> Self {
        let message = "this replica gives no leases now: it stands by, or cannot reach the Kubernetes API and waits \
                       for it; send the request again over a new connection, which may reach the replica that does";
        Self { retry_after: Some(1), ..Self::new(Code::NotLeader, message) }
    }

    /// There is no such Proxy.
    pub(super) fn unknown_proxy(id: &str) -> Self {
        Self::new(Code::UnknownProxy, format!("there is no Proxy {id:?}; GET /v1/proxies lists them"))
    }

    /// There is no such lease.
    pub(super) fn unknown_lease() -> Self {
        let message = "no such lease: it expired, was released, or was lost in a restart; take a new one";
        Self::new(Code::UnknownLease, message)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotReady => Self::not_ready(),
            Refusal::NoMatch(why) => no_match(&why),
            Refusal::TooManyLeases(wait) => too_many_leases(wait),
            Refusal::SessionConflict => session_conflict(),
            Refusal::UnknownLease => Self::unknown_lease(),
            Refusal::MachineGone => Self::new(
                Code::MachineGone,
                "the machine of this lease is gone or about to go; take a new lease",
            ),
        }
    }
}

fn session_conflict() -> ApiError {
    let message = "the session holds a lease that was asked for with another selector, namespace or target, \
                   or on a proxy that is now excluded; release that lease or use another session";
    let body =
        SessionConflictBody { error: SessionConflictCode::SessionConflict, message: message.to_owned() };
    let body = AnyBody::Lease(LeaseRefusal::SessionConflict(body));
    ApiError { code: Code::SessionConflict, body, retry_after: None }
}

fn too_many_leases(wait: Duration) -> ApiError {
    let wait = whole_seconds(wait);
    let message = format!(
        "as many leases are live as the operator keeps in all; release those not in use, ask for a shorter \
         ttlSeconds, and try again in {wait} s"
    );
    ApiError { retry_after: Some(wait), ..ApiError::new(Code::TooManyLeases, message) }
}

/// Rounded up, and never "at once".
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

fn no_match(why: &NoMatch) -> ApiError {
    let retry_after = why.retry_after.map(whole_seconds);
    let (reason, message) = match (why.considered, retry_after) {
        (0, _) if why.unknown_attributes.is_empty() => (
            NoMatchReason::NoSuchProxy,
            "no Proxy matches the request; check selector, namespace and exclude against what \
             GET /v1/proxies lists"
                .to_owned(),
        ),
        (0, _) => {
            let keys: String = why.unknown_attributes.join(", ").chars().take(300).collect();
            let message = format!(
                "no Proxy matches: none has the attribute {keys}; GET /v1/proxies lists those there are"
            );
            (NoMatchReason::NoSuchProxy, message)
        }
        (_, Some(wait)) => {
            (NoMatchReason::Busy, format!("no matching proxy can be leased now; try again in {wait} s"))
        }
        (_, None) => (
            NoMatchReason::Busy,
            "no matching proxy can be leased now, and no time is known when one can be; the counts say why, \
             GET /v1/proxies says which"
                .to_owned(),
        ),
    };
    let body = NoMatchBody {
        error: NoMatchCode::NoMatch,
        message,
        reason,
        considered: why.considered,
        at_capacity: why.at_capacity,
        target_at_capacity: why.target_at_capacity,
        in_cooldown: why.in_cooldown,
        unhealthy: why.unhealthy,
        suspended: why.suspended,
        not_ready: why.not_ready,
    };
    let retry_after = retry_after.filter(|_| reason == NoMatchReason::Busy);
    ApiError { code: Code::NoMatch, body: AnyBody::Lease(LeaseRefusal::NoMatch(body)), retry_after }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), Json(self.body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::NotLeader {
            // A Service chooses a replica per connection: the next request must be free to reach another one.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.code == Code::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
