//! The one way out for guests: every request passes here, in this order, or it does not leave.
//!
//! 1. where it goes, in canonical form;
//! 2. whether this call may use the network at all;
//! 3. which grant covers it;
//! 4. budgets;
//! 5. headers;
//! 6. the route's own checks;
//! 7. the answer, bounded and stripped.
//!
//! A refused request is remembered: the call's outcome is then `Denied` with the line that is missing in
//! the providers config, whatever the guest makes of it. Redirects are never followed, credentials are
//! never seen by the guest, and proxy settings of the environment are never used.

pub(crate) mod address;
mod headers;
pub mod kubernetes;
pub(crate) mod plain;
mod policy;
pub(crate) mod target;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::{Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

pub(crate) use policy::{Need, Policy};

/// Requests of one call.
const MOST_REQUESTS: u32 = 256;
/// Requests of one call at the same time.
const MOST_CONCURRENT: usize = 16;
/// Body of one request.
const MOST_REQUEST_BYTES: usize = 1 << 20;
/// Body of one answer.
pub(crate) const MOST_RESPONSE_BYTES: usize = 8 << 20;
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

/// The gate of one call.
#[derive(Debug)]
pub(crate) struct CallGate {
    policy: Arc<Policy>,
    network: Network,
    /// Name of the machine that this call makes; none for calls that make nothing.
    machine: Option<String>,
    deadline: Instant,
    requests: AtomicU32,
    concurrent: Semaphore,
    denials: Mutex<Vec<String>>,
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
    pub(crate) fn new(
        policy: Arc<Policy>,
        network: Network,
        machine: Option<String>,
        deadline: Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            policy,
            network,
            machine,
            deadline,
            requests: AtomicU32::new(0),
            concurrent: Semaphore::new(MOST_CONCURRENT),
            denials: Mutex::new(Vec::new()),
        })
    }

    /// The first refused request, if there was one.
    pub(crate) fn denial(&self) -> Option<String> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
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
                Ok(response)
            }
            Err(GateError::Failed(error)) => Err(error),
            Err(GateError::Denied(why)) => {
                tracing::debug!(provider = %self.policy.provider(), %why, "request of a provider refused");
                let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
                if denials.len() < 8 {
                    denials.push(why);
                }
                Err(Error::HttpRequestDenied)
            }
        }
    }

    async fn route(
        &self,
        request: http::Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<http::Response<Bytes>, GateError> {
        let (parts, body) = request.into_parts();
        let origin = target::origin_of(&parts.uri).map_err(GateError::Denied)?;
        let path = parts.uri.path();
        if self.network == Network::Off {
            return Err(GateError::Denied(format!(
                "the provider made a request to {origin} in a call that must work without the network"
            )));
        }
        target::path(path).map_err(|why| GateError::Denied(format!("request to {origin}: {why}")))?;
        if parts.method == http::Method::CONNECT || parts.method == http::Method::TRACE {
            return Err(GateError::Denied(format!("method {} is never allowed", parts.method)));
        }
        let route = self.policy.route(&origin, &parts.method, path).map_err(GateError::Denied)?;

        if self.requests.fetch_add(1, Ordering::Relaxed) >= MOST_REQUESTS {
            return Err(Error::ConnectionLimitReached.into());
        }
        let _slot = self.concurrent.try_acquire().map_err(|_| Error::ConnectionLimitReached)?;
        let body = self.collect(body).await?;
        match route {
            policy::Route::Kubernetes(access) => {
                kubernetes::send(access, &parts, body, self.machine.as_deref(), self.left()).await
            }
            policy::Route::Plain(rule) => {
                plain::send(
                    self.policy.client(),
                    rule,
                    &origin,
                    plain::Outgoing { parts, body },
                    self.times(options),
                )
                .await
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
