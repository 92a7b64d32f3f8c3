//! The one way out for guests: every request passes here, in this order, or it does not leave.
//!
//! 1. budgets, so that a refused request costs as much as any other;
//! 2. where it goes, in canonical form;
//! 3. whether this call may use the network at all;
//! 4. which grant covers it;
//! 5. headers;
//! 6. whether this process may still act, unless it only reads;
//! 7. the route's own checks, and 6 once more when there is nothing left to wait for;
//! 8. the answer, bounded and stripped.
//!
//! A refused request is remembered: the call's outcome is then `Denied` with the line that is missing in
//! the providers config, whatever the guest makes of it. Redirects are never followed, credentials are
//! never seen by the guest, and proxy settings of the environment are never used.

mod budget;
mod fence;
mod headers;
pub mod kubernetes;
pub(crate) mod linked;
pub(crate) mod plain;
mod policy;
pub(crate) mod target;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
pub(crate) use egress_proxies_core::address;
use http_body_util::{BodyExt, Full, Limited};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::{Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

use crate::config::Origin;

use budget::Budget;
pub use fence::{Fence, while_allowed};
pub(crate) use policy::{Need, NeedAuth, Policy};

/// Methods that a rule can name; no other leaves.
pub(crate) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Requests of one call.
const MOST_REQUESTS: u32 = 256;
/// Requests of one call at the same time.
const MOST_CONCURRENT: usize = 16;
/// Body of one request.
const MOST_REQUEST_BYTES: usize = 1 << 20;
/// Body of one answer.
pub(crate) const MOST_RESPONSE_BYTES: usize = 8 << 20;
/// Bodies of all answers that one call holds at the same time, read or not.
const MOST_HELD_BYTES: usize = 16 << 20;
/// Headers of one answer.
const MOST_RESPONSE_HEADERS: usize = 16 * 1024;
/// What the guest may write of a body before it is taken up.
const BODY_CHUNK: usize = 8 * 1024;
/// Shortest time-out that a guest can ask for.
const LEAST_TIMEOUT: Duration = Duration::from_millis(100);

/// Whether a call may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// The calls of `meta`: none at all.
    Off,
    /// What the policy grants.
    Granted,
}

/// What a call may change in the operator's own cluster: objects of one machine, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Errand {
    /// It looks and changes nothing.
    Look,
    /// It makes the machine of this name, and may clean up after itself.
    Make(String),
    /// It deletes the machine of this name.
    Remove(String),
}

/// The gate of one call.
#[derive(Debug)]
pub(crate) struct CallGate {
    policy: Arc<Policy>,
    network: Network,
    errand: Errand,
    deadline: Instant,
    requests: AtomicU32,
    concurrent: Semaphore,
    held: Budget,
    denial: Mutex<Option<String>>,
    held_back: AtomicBool,
}

/// Why a request did not get an answer.
#[derive(Debug)]
pub(crate) enum GateError {
    /// Not granted; for the administrator.
    Denied(String),
    /// Granted, and went wrong.
    Failed(Error),
}

impl From<Error> for GateError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl CallGate {
    pub(crate) fn new(policy: Arc<Policy>, network: Network, errand: Errand, deadline: Instant) -> Arc<Self> {
        Arc::new(Self {
            policy,
            network,
            errand,
            deadline,
            requests: AtomicU32::new(0),
            concurrent: Semaphore::new(MOST_CONCURRENT),
            held: Budget::new(MOST_HELD_BYTES),
            denial: Mutex::default(),
            held_back: AtomicBool::new(false),
        })
    }

    /// The first refused request, if there was one.
    pub(crate) fn denial(&self) -> Option<String> {
        self.denial.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request was granted and did not leave, or its answer was not waited for, since this process may not act.
    pub(crate) fn held_back(&self) -> bool {
        self.held_back.load(Ordering::Relaxed)
    }

    /// Requests that were tried, granted or not.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Everything between the guest's `handle` and the answer.
    pub(crate) async fn send(
        &self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<http::Response<Bytes>, Error> {
        match self.route(request, options.unwrap_or_default()).await {
            Ok(mut response) => {
                headers::clean_response(response.headers_mut());
                if headers::bytes(response.headers()) > MOST_RESPONSE_HEADERS {
                    return Err(Error::HttpResponseHeaderSectionSize(
                        u32::try_from(MOST_RESPONSE_HEADERS).ok(),
                    ));
                }
                Ok(response)
            }
            Err(GateError::Failed(error)) => Err(error),
            Err(GateError::Denied(why)) => {
                tracing::debug!(provider = %self.policy.provider(), %why, "request of a provider refused");
                self.denial.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                Err(Error::HttpRequestDenied)
            }
        }
    }

    async fn route(
        &self,
        request: http::Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<http::Response<Bytes>, GateError> {
        if self.requests.fetch_add(1, Ordering::Relaxed) >= MOST_REQUESTS {
            return Err(Error::ConnectionLimitReached.into());
        }
        let (parts, body) = request.into_parts();
        let origin = target::origin_of(&parts.uri).map_err(GateError::Denied)?;
        let path = parts.uri.path();
        if self.network == Network::Off {
            return Err(GateError::Denied(format!(
                "the provider made a request to {origin} in a call that must work without the network"
            )));
        }
        target::path(path).map_err(|why| GateError::Denied(format!("request to {origin}: {why}")))?;
        if !METHODS.contains(&parts.method.as_str()) {
            let method: String = parts.method.as_str().chars().take(16).collect();
            return Err(GateError::Denied(format!("method {method} is never allowed")));
        }
        let route = self.policy.route(&origin, &parts.method, path).map_err(GateError::Denied)?;
        let _slot = self.concurrent.try_acquire().map_err(|_| Error::ConnectionLimitReached)?;
        let body = self.collect(body).await?;
        let leave = self.policy.leave(&parts.method, &origin);
        let answer = self.leave(route, &origin, plain::Outgoing { parts, body }, (&leave, options)).await;
        if leave.has_refused() {
            self.held_back.store(true, Ordering::Relaxed);
        }
        answer
    }

    async fn leave(
        &self,
        route: policy::Route<'_>,
        origin: &Origin,
        outgoing: plain::Outgoing,
        (leave, options): (&fence::Leave, RequestOptions),
    ) -> Result<http::Response<Bytes>, GateError> {
        leave.check()?;
        match route {
            policy::Route::Kubernetes(access) => {
                let plain::Outgoing { parts, body } = outgoing;
                let limits = kubernetes::Limits { timeout: self.left(), held: &self.held, leave };
                kubernetes::send(access, &parts, body, &self.errand, limits).await
            }
            policy::Route::Plain(rule) => {
                let limits = plain::Limits { times: self.times(options), held: &self.held, leave };
                plain::send(self.policy.client(), rule, origin, outgoing, limits).await
            }
        }
    }

    /// The guest writes its body after `handle` has returned: wait for it, bounded in size and time.
    async fn collect(&self, body: WasiBody) -> Result<Bytes, Error> {
        match timeout_at(self.deadline, Limited::new(body, MOST_REQUEST_BYTES).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Error::HttpRequestBodySize(Some(u64::try_from(MOST_REQUEST_BYTES).unwrap_or(u64::MAX))))
            }
            Ok(Err(_)) => Err(Error::HttpProtocolError),
            Err(_elapsed) => Err(Error::ConnectionWriteTimeout),
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What the guest asks for, never longer than what is left of the call, never zero.
    fn times(&self, options: RequestOptions) -> plain::Times {
        let clamp = |asked: Option<Duration>| asked.unwrap_or(Duration::MAX).max(LEAST_TIMEOUT);
        plain::Times {
            deadline: self.deadline,
            connect: clamp(options.connect_timeout).min(Duration::from_secs(10)),
            first_byte: clamp(options.first_byte_timeout),
            between_bytes: clamp(options.between_bytes_timeout),
        }
    }
}

/// The gate as wasi:http calls it.
#[derive(Debug)]
pub(crate) struct Hooks(pub(crate) Arc<CallGate>);

impl WasiHttpHooks for Hooks {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(headers::forbidden)
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }

    fn set_host_header(&mut self) -> bool {
        false
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _read_outcome: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Answer, Error>> + Send> {
        let gate = Arc::clone(&self.0);
        Box::new(async move {
            let response = gate.send(request, options).await?;
            let response =
                response.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync());
            let done: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(async { Ok(()) });
            Ok((response, done))
        })
    }
}

type Answer = (http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);
