//! The discovery and lease API, and the operational endpoints.
//!
//! Foreign input ends here: everything is parsed strictly and bounded, and answered in one JSON shape. The
//! pool and the fleet are ports ([`LeasePort`], a watch channel); this room knows neither Kubernetes nor
//! how leases are kept, and it never logs a token, a lease id or a credential.

#![warn(clippy::indexing_slicing, clippy::string_slice)]

mod answers;
mod auth;
mod discovery;
mod error;
mod extract;
mod layers;
mod leases;
mod openapi;
pub mod ops;
mod proxy_url;
mod recorder;
mod request;
mod response;
mod serve;

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use egress_proxies_core::facts::Fleet;
use egress_proxies_core::pool::LeasePort;
use tokio::sync::watch;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;

pub use auth::{TokenSources, Tokens};
pub use openapi::openapi_json;
pub use recorder::{LeaseMetrics, LeaseOutcome, NoMetrics};
pub use serve::{Limits, serve};

use crate::clock::SharedClock;
use error::{ApiError, Code};

/// What the handlers work with.
#[derive(Clone)]
pub struct Api {
    /// Leases and cooldowns.
    pub pool: Arc<dyn LeasePort>,
    /// The Proxies.
    pub fleet: watch::Receiver<Fleet>,
    /// Who may call.
    pub tokens: Arc<Tokens>,
    /// Who counts.
    pub metrics: Arc<dyn LeaseMetrics>,
    /// The time, for the log.
    pub clock: SharedClock,
    /// Whether this replica keeps the leases.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Api {
    /// The Proxies, once they are all known: before that, an empty list would be a lie.
    fn fleet(&self) -> Result<Fleet, ApiError> {
        let fleet = self.fleet.borrow().clone();
        if fleet.ready { Ok(fleet) } else { Err(ApiError::not_ready()) }
    }

    /// A lease that a standby knew of would be unknown to everybody else.
    fn leads(&self) -> Result<(), ApiError> {
        if (self.leads)() { Ok(()) } else { Err(ApiError::not_leader()) }
    }
}

/// The routes, inside what every request passes.
pub fn router(api: Api) -> Router {
    let layers = ServiceBuilder::new()
        .layer(CatchPanicLayer::custom(|panic: Box<dyn Any + Send>| layers::panicked(panic.as_ref())))
        .layer(from_fn_with_state(Arc::clone(&api.clock), layers::log))
        .layer(from_fn(layers::limit_body))
        .layer(from_fn_with_state(Arc::clone(&api.tokens), auth::require_token));
    let (routes, _) = openapi::routes().split_for_parts();
    routes
        .fallback(async || ApiError::new(Code::NotFound, "no such route; GET /openapi.json lists them"))
        .method_not_allowed_fallback(async || {
            ApiError::new(Code::MethodNotAllowed, "the route does not know this method; see the Allow header")
        })
        .layer(layers)
        .with_state(api)
}
