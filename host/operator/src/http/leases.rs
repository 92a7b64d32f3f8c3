//! Grants, renews, releases, and takes reports.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use egress_proxies_core::pool::{Granted, NoMatch, Refusal};
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};

use super::Api;
use super::answers::{NeedsLeader, NeedsToken, TakesBody};
use super::error::{ApiError, ErrorBody, LeaseRefusal};
use super::extract::{Body, LeasePath, NoQuery};
use super::recorder::LeaseOutcome;
use super::request::{LeaseRequest, RenewRequest, ReportRequest};
use super::response::LeaseReply;

/// Leases a proxy.
///
/// 201 with a new lease; 200 with the lease that the session already has, renewed. Credentials of the
/// proxy are here and nowhere else.
#[utoipa::path(
    post, path = "/v1/leases", operation_id = "acquireLease", tag = "leases",
    request_body = LeaseRequest,
    responses(
        (status = 201, description = "A new lease", body = LeaseReply),
        (status = 200, description = "The session's lease, renewed", body = LeaseReply),
        (status = 400, description = "`invalid_json`, `invalid_request`", body = ErrorBody),
        (status = 409, description = "`no_match` with counts (`Retry-After` if a time is known), or `session_conflict`", body = LeaseRefusal),
        (status = 503, description = "`not_leader`, `not_ready`, `too_many_leases`", body = ErrorBody),
        NeedsToken,
        TakesBody,
    )
)]
pub(super) async fn acquire(
    State(api): State<Api>,
    query: Result<NoQuery, ApiError>,
    body: Result<Body<LeaseRequest>, ApiError>,
) -> Result<Response, ApiError> {
    if let Err(refusal) = api.leads() {
        api.metrics.lease_request(LeaseOutcome::NotLeader);
        return Err(refusal);
    }
    let order = match query.and(body).and_then(|Body(request)| request.into_order()) {
        Ok(order) => order,
        Err(refusal) => {
            api.metrics.lease_request(LeaseOutcome::Invalid);
            return Err(refusal);
        }
    };
    match api.pool.acquire(order).await {
        Ok(granted) => {
            let outcome = if granted.renewed { LeaseOutcome::Renewed } else { LeaseOutcome::Granted };
            api.metrics.lease_request(outcome);
            Ok(reply(&api, &granted))
        }
        Err(refusal) => {
            api.metrics.lease_request(outcome(&refusal));
            Err(refusal.into())
        }
    }
}

/// Lets a live lease last longer.
#[utoipa::path(
    post, path = "/v1/leases/{id}/renew", operation_id = "renewLease", tag = "leases",
    params(("id" = String, Path, description = "`leaseID`")),
    request_body = RenewRequest,
    responses(
        (status = 200, description = "The lease", body = LeaseReply),
        (status = 400, description = "`invalid_json`, `invalid_request`", body = ErrorBody),
        (status = 404, description = "`unknown_lease`", body = ErrorBody),
        (status = 410, description = "`machine_gone`", body = ErrorBody),
        NeedsToken,
        NeedsLeader,
        TakesBody,
    )
)]
pub(super) async fn renew(
    State(api): State<Api>,
    LeasePath(id): LeasePath,
    NoQuery: NoQuery,
    Body(request): Body<RenewRequest>,
) -> Result<Response, ApiError> {
    api.leads()?;
    let ttl = request.ttl()?;
    let granted = api.pool.renew(id.ok_or_else(ApiError::unknown_lease)?, ttl).await?;
    Ok(reply(&api, &granted))
}

/// Gives a lease back. 204 whether or not there was one; a replica that keeps no leases says so instead.
#[utoipa::path(
    delete, path = "/v1/leases/{id}", operation_id = "releaseLease", tag = "leases",
    params(("id" = String, Path, description = "`leaseID`")),
    responses(
        (status = 204, description = "There is no such lease any more"),
        (status = 400, description = "`invalid_request`: there is a query parameter", body = ErrorBody),
        (status = 503, description = "`not_leader`", body = ErrorBody),
        NeedsToken,
    )
)]
pub(super) async fn release(
    State(api): State<Api>,
    LeasePath(id): LeasePath,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    api.leads()?;
    if let Some(id) = id {
        api.pool.release(id).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Takes in what happened. Works for a while after the end of the lease too: a ban is often seen late.
#[utoipa::path(
    post, path = "/v1/leases/{id}/report", operation_id = "reportLease", tag = "leases",
    params(("id" = String, Path, description = "`leaseID`")),
    request_body = ReportRequest,
    responses(
        (status = 204, description = "Taken in"),
        (status = 400, description = "`invalid_result`, `invalid_json`, `invalid_request`", body = ErrorBody),
        (status = 404, description = "`unknown_lease`", body = ErrorBody),
        NeedsToken,
        NeedsLeader,
        TakesBody,
    )
)]
pub(super) async fn report(
    State(api): State<Api>,
    LeasePath(id): LeasePath,
    NoQuery: NoQuery,
    Body(request): Body<ReportRequest>,
) -> Result<StatusCode, ApiError> {
    api.leads()?;
    let report = request.into_report()?;
    api.pool.report(id.ok_or_else(ApiError::unknown_lease)?, report).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn reply(api: &Api, granted: &Granted) -> Response {
    let status = if granted.renewed { StatusCode::OK } else { StatusCode::CREATED };
    let body = LeaseReply::new(granted, api.tokens.credential_policy());
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn outcome(refusal: &Refusal) -> LeaseOutcome {
    match refusal {
        Refusal::NotReady => LeaseOutcome::NotReady,
        Refusal::NoMatch(NoMatch { considered: 0, .. }) => LeaseOutcome::NoSuchProxy,
        Refusal::NoMatch(_) => LeaseOutcome::Busy,
        Refusal::TooManyLeases(_) => LeaseOutcome::TooManyLeases,
        Refusal::SessionConflict => LeaseOutcome::SessionConflict,
        Refusal::MachineGone | Refusal::UnknownLease => LeaseOutcome::MachineGone,
    }
}
