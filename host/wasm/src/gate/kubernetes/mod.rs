//! The route `https://kubernetes.internal`: requests to the API server of the operator's own cluster, with
//! the rights of one ServiceAccount.
//!
//! RBAC of that ServiceAccount is the true limit. The checks here are tighter, because "may create pods"
//! is power over the node unless the pod's fields are looked at, and "may create pods" is also "may read
//! each Secret of the namespace" unless the pod's volumes are. The transport is a port of this crate: the
//! operator owns the client that impersonates.

mod pod;
mod request;
mod secret;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wasmtime_wasi_http::Error;

use super::{GateError, MOST_RESPONSE_BYTES, headers};
use crate::config::{KubernetesGrant, KubernetesResource};
use request::Verb;

/// A request under way; dropping it cancels it.
pub type Sending<'a> =
    Pin<Box<dyn Future<Output = Result<http::Response<Bytes>, TransportError>> + Send + 'a>>;

/// Sends requests to the API server as one ServiceAccount.
///
/// The request's URI is path and query only. An implementation adds the server, the identity and nothing
/// else: no retries, no redirects, no proxy. It ends the request at `limits.timeout` and refuses answers
/// longer than `limits.response_bytes`.
pub trait KubernetesTransport: Send + Sync {
    /// Sends one request. An answer with an error status is `Ok`.
    fn send(&self, request: http::Request<Bytes>, limits: SendLimits) -> Sending<'_>;
}

/// Makes transports, one per provider instance.
pub trait KubernetesTransportFactory: Send + Sync {
    /// A transport that acts as this ServiceAccount and nobody else.
    ///
    /// # Errors
    /// If there can be none; the text is for people, and fails the provider.
    fn for_service_account(
        &self,
        namespace: &str,
        service_account: &str,
    ) -> Result<Arc<dyn KubernetesTransport>, String>;
}

/// Bounds of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendLimits {
    /// Time for the whole exchange.
    pub timeout: Duration,
    /// Longest body that is accepted.
    pub response_bytes: usize,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The time was up.
    #[error("the API server did not answer in time")]
    Timeout,
    /// No connection; the text is for people.
    #[error("no connection to the API server: {0}")]
    Connect(String),
    /// The answer was too long.
    #[error("the answer of the API server is longer than the limit")]
    TooLarge,
    /// The connection broke or what came was no HTTP.
    #[error("the API server's answer was cut off: {0}")]
    Broken(String),
}

/// A grant with the transport that carries it out.
#[derive(Clone)]
pub(crate) struct Access {
    grant: KubernetesGrant,
    transport: Arc<dyn KubernetesTransport>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl Access {
    pub(crate) fn new(grant: KubernetesGrant, transport: Arc<dyn KubernetesTransport>) -> Self {
        Self { grant, transport }
    }

    pub(crate) fn grant(&self) -> &KubernetesGrant {
        &self.grant
    }

    /// The configured line with further resources.
    pub(crate) fn line_with(&self, further: &[&str]) -> String {
        let mut resources: Vec<&str> =
            self.grant.resources.iter().map(|resource| resource.plural()).collect();
        for name in further {
            if !resources.contains(name) {
                resources.push(name);
            }
        }
        format!(
            "kubernetes: {{ namespace: {}, serviceAccount: {}, resources: [{}] }}",
            self.grant.namespace,
            self.grant.service_account,
            resources.join(", ")
        )
    }
}

/// Checks and sends one request.
pub(super) async fn send(
    access: &Access,
    parts: &http::request::Parts,
    body: Bytes,
    machine: Option<&str>,
    timeout: Duration,
) -> Result<http::Response<Bytes>, GateError> {
    check(access, parts, &body, machine).map_err(GateError::Denied)?;
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = http::Request::builder()
        .method(parts.method.clone())
        .uri(path)
        .body(body)
        .map_err(|_| Error::HttpRequestUriInvalid)?;
    *request.headers_mut() = headers::for_kubernetes(&parts.headers);
    let limits = SendLimits { timeout, response_bytes: MOST_RESPONSE_BYTES };
    // The transport keeps the time as well; this one holds even if it does not.
    let answer = tokio::time::timeout(timeout, access.transport.send(request, limits)).await;
    match answer {
        Ok(Ok(response)) if response.body().len() <= MOST_RESPONSE_BYTES => Ok(response),
        Ok(Ok(_) | Err(TransportError::TooLarge)) => {
            Err(Error::HttpResponseBodySize(u64::try_from(MOST_RESPONSE_BYTES).ok()).into())
        }
        Ok(Err(TransportError::Timeout)) | Err(_) => Err(Error::HttpResponseTimeout.into()),
        Ok(Err(TransportError::Connect(why))) => {
            tracing::debug!(%why, "no connection to the API server for a provider");
            Err(Error::ConnectionRefused.into())
        }
        Ok(Err(TransportError::Broken(why))) => {
            tracing::debug!(%why, "the API server's answer to a provider was cut off");
            Err(Error::HttpResponseIncomplete.into())
        }
    }
}

/// Everything that is decided before a request leaves. The error says which line or field is at fault.
fn check(
    access: &Access,
    parts: &http::request::Parts,
    body: &[u8],
    machine: Option<&str>,
) -> Result<(), String> {
    let info = request::parse(&parts.method, &parts.uri)?;
    if info.namespace != access.grant.namespace {
        return Err(format!(
            "namespace {:?} is not granted; kubernetes.namespace is {}",
            info.namespace, access.grant.namespace
        ));
    }
    let granted = KubernetesResource::from_plural(&info.resource)
        .filter(|resource| info.group.is_empty() && access.grant.resources.contains(resource));
    let Some(resource) = granted else {
        return Err(format!(
            "{} on {} is not granted; write in the providers config: {}",
            info.verb.label(),
            info.resource,
            access.line_with(&[info.resource.as_str()])
        ));
    };
    match (resource, info.verb) {
        (KubernetesResource::Secrets, Verb::Create) => secret::check(body, machine),
        (KubernetesResource::Secrets, verb) => Err(format!(
            "{} on secrets is never allowed; a provider may create the Secret of its machine and nothing else",
            verb.label()
        )),
        (KubernetesResource::Pods, Verb::Create | Verb::Update) => pod::check(body, machine, info.verb),
        (KubernetesResource::Pods, Verb::Get | Verb::List | Verb::Patch | Verb::Delete)
        | (KubernetesResource::Services | KubernetesResource::ConfigMaps, _) => Ok(()),
    }
}
