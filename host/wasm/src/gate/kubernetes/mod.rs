//! The route `https://kubernetes.internal`: requests to the API server of the operator's own cluster, with
//! the rights of one ServiceAccount.
//!
//! RBAC of that ServiceAccount is the true limit. The checks here are tighter, because "may create pods"
//! is power over the node unless the pod's fields are looked at, and "may create pods" is also "may read
//! each Secret of the namespace" unless the pod's volumes are. What is sent is the document that was
//! checked, written anew: a text could say two things, and the API server might hear the other one. The
//! transport is a port of this crate: the operator owns the client that impersonates.

mod change;
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
use http::{HeaderValue, header};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use wasmtime_wasi_http::Error;

use super::budget::Budget;
use super::fence::Leave;
use super::{Errand, GateError, MOST_RESPONSE_BYTES, headers};
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

/// Bounds of one request within its call.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    pub(super) timeout: Duration,
    pub(super) held: &'a Budget,
    pub(super) leave: &'a Leave,
}

/// Checks and sends one request.
pub(super) async fn send(
    access: &Access,
    parts: &http::request::Parts,
    body: Bytes,
    errand: &Errand,
    limits: Limits<'_>,
) -> Result<http::Response<Bytes>, GateError> {
    let document = check(access, parts, &body, errand).map_err(GateError::Denied)?;
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = http::Request::builder()
        .method(parts.method.clone())
        .uri(path)
        .body(document.as_ref().map_or_else(Bytes::new, Document::written))
        .map_err(|_| Error::HttpRequestUriInvalid)?;
    *request.headers_mut() = headers::for_kubernetes(&parts.headers);
    if let Some(document) = &document {
        let kind = HeaderValue::from_static(document.content_type);
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    let began = Instant::now();
    // The size of the answer shows when it is there: until then it counts as the largest.
    let share = timeout(limits.timeout, limits.held.reserve(MOST_RESPONSE_BYTES)).await;
    let Ok(Some(mut share)) = share else { return Err(Error::ConnectionLimitReached.into()) };
    // Waiting for room took its time.
    let leave = limits.leave;
    leave.check()?;
    let left = limits.timeout.saturating_sub(began.elapsed());
    let limits = SendLimits { timeout: left, response_bytes: MOST_RESPONSE_BYTES };
    // The transport keeps the time as well; this one holds even if it does not.
    let sending = timeout(left, access.transport.send(request, limits));
    // Its connections are shared, and it may have to make one first.
    let answer = leave.while_open(sending).await?;
    match answer {
        Ok(Ok(response)) if response.body().len() <= MOST_RESPONSE_BYTES => {
            share.shrink(response.body().len());
            Ok(response.map(|body| share.keep(body)))
        }
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

/// A body that was checked, and as what the API server is to read it.
#[derive(Debug)]
struct Document {
    content_type: &'static str,
    json: Value,
}

impl Document {
    fn written(&self) -> Bytes {
        Bytes::from(self.json.to_string())
    }
}

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Everything that is decided before a request leaves: the body that goes out, or which line or field is at
/// fault.
fn check(
    access: &Access,
    parts: &http::request::Parts,
    body: &[u8],
    errand: &Errand,
) -> Result<Option<Document>, String> {
    let info = request::parse(&parts.method, &parts.uri)?;
    if info.namespace != access.grant.namespace {
        return Err(format!(
            "namespace {:?} is not granted; kubernetes.namespace is {}",
            info.namespace, access.grant.namespace
        ));
    }
    let resource = granted(access, &info)?;
    let name = info.name.as_deref().unwrap_or_default();
    match (resource, info.verb) {
        (KubernetesResource::Pods, Verb::Get | Verb::List) => Ok(None),
        (KubernetesResource::Pods, Verb::Create) => {
            let json = document(body, "the Pod")?;
            pod::check(&json, made(errand, "create a Pod")?)?;
            Ok(Some(Document { content_type: JSON, json }))
        }
        (KubernetesResource::Pods, Verb::Patch) => {
            of_machine(name, made(errand, "patch a Pod")?)?;
            change::content_type(&parts.headers)?;
            let json = document(body, "the patch")?;
            change::ungates(&json)?;
            Ok(Some(Document { content_type: MERGE_PATCH, json }))
        }
        (KubernetesResource::Pods, Verb::Delete) => {
            of_machine(name, removable(errand)?)?;
            if body.is_empty() {
                return Ok(None);
            }
            let json = document(body, "the body of a delete")?;
            change::delete_options(&json)?;
            Ok(Some(Document { content_type: JSON, json }))
        }
        (KubernetesResource::Secrets, Verb::Create) => {
            let json = document(body, "the Secret")?;
            secret::check(&json, made(errand, "create a Secret")?)?;
            Ok(Some(Document { content_type: JSON, json }))
        }
        (KubernetesResource::Pods, Verb::Update) => Err(
            "update on pods is never allowed; a provider makes a Pod, takes its scheduling gates away and deletes it"
                .to_owned(),
        ),
        (
            KubernetesResource::Secrets,
            verb @ (Verb::Get | Verb::List | Verb::Update | Verb::Patch | Verb::Delete),
        ) => Err(format!(
            "{} on secrets is never allowed; a provider may create the Secret of its machine and nothing else",
            verb.label()
        )),
    }
}

/// The resource if it is granted, else the line that is missing, or why no line can be written.
fn granted(access: &Access, info: &request::RequestInfo) -> Result<KubernetesResource, String> {
    let known = KubernetesResource::from_plural(&info.resource).filter(|_| info.group.is_empty());
    let Some(resource) = known else {
        let group = if info.group.is_empty() { "v1" } else { info.group.as_str() };
        let all = KubernetesResource::ALL.map(KubernetesResource::plural).join(" and ");
        return Err(format!(
            "{} on {} ({group}) is not known to this release, so it cannot be granted; a provider may use {all}",
            info.verb.label(),
            info.resource
        ));
    };
    if access.grant.resources.contains(&resource) {
        return Ok(resource);
    }
    Err(format!(
        "{} on {resource} is not granted; write in the providers config: {}",
        info.verb.label(),
        access.line_with(&[resource.plural()]),
        resource = resource.plural()
    ))
}

fn document(body: &[u8], what: &str) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|_| format!("{what} is not JSON"))
}

/// The machine that this call makes.
fn made<'a>(errand: &'a Errand, what: &str) -> Result<&'a str, String> {
    match errand {
        Errand::Make(machine) => Ok(machine),
        Errand::Look | Errand::Remove(_) => Err(format!("only the call create may {what}")),
    }
}

/// The machine that this call may delete: what it is to delete, or what it was about to make.
fn removable(errand: &Errand) -> Result<&str, String> {
    match errand {
        Errand::Make(machine) | Errand::Remove(machine) => Ok(machine),
        Errand::Look => Err("only the calls create and delete may delete a Pod".to_owned()),
    }
}

fn of_machine(name: &str, machine: &str) -> Result<(), String> {
    if name == machine {
        return Ok(());
    }
    Err(format!("Pod {name:?} is not that of this call's machine, {machine}"))
}
