//! The providers' way to the API server: one client per ServiceAccount, acting as it and as nobody else.
//!
//! The port is the provider host's (`egress_proxies_wasm::gate::kubernetes`), which has checked what is
//! asked for; here it gets the server's address, the identity, a deadline and a size limit, and nothing
//! more. The operator's own rights never apply: without the right to impersonate the ServiceAccount, or
//! without rights of the ServiceAccount itself, the API server refuses. Nothing is sent twice, redirects
//! are answers like any other, proxies of the environment are ignored.

use std::sync::Arc;

use bytes::Bytes;
use egress_proxies_wasm::gate::kubernetes::{
    KubernetesTransport, KubernetesTransportFactory, SendLimits, Sending, TransportError,
};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::BoxError;

use crate::kubernetes_client::{NAME, safe};

/// Makes transports from the operator's own configuration.
#[derive(Clone)]
pub struct KubernetesRoute {
    config: Config,
}

impl KubernetesRoute {
    /// `config` says where the API server is and how the operator proves who it is.
    pub fn new(config: Config) -> Self {
        Self { config: safe(config) }
    }
}

impl std::fmt::Debug for KubernetesRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesRoute").field("server", &self.config.cluster_url).finish_non_exhaustive()
    }
}

impl KubernetesTransportFactory for KubernetesRoute {
    fn for_service_account(
        &self,
        namespace: &str,
        service_account: &str,
    ) -> Result<Arc<dyn KubernetesTransport>, String> {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{service_account}"));
        config.auth_info.impersonate_uid = None;
        config.auth_info.impersonate_user_extra = None;
        // The API server adds the groups of a ServiceAccount itself; naming them would need further rights.
        config.auth_info.impersonate_groups = None;
        let client = ClientBuilder::try_from(config)
            .map_err(|error| format!("no client for ServiceAccount {namespace}/{service_account}: {error}"))?
            .build();
        Ok(Arc::new(AsServiceAccount { client }))
    }
}

struct AsServiceAccount {
    client: Client,
}

impl KubernetesTransport for AsServiceAccount {
    fn send(&self, request: Request<Bytes>, limits: SendLimits) -> Sending<'_> {
        Box::pin(async move {
            match tokio::time::timeout(limits.timeout, self.exchange(request, limits.response_bytes)).await {
                Ok(answer) => answer,
                Err(_) => Err(TransportError::Timeout),
            }
        })
    }
}

impl AsServiceAccount {
    async fn exchange(
        &self,
        request: Request<Bytes>,
        most: usize,
    ) -> Result<Response<Bytes>, TransportError> {
        let (mut parts, body) = request.into_parts();
        remove_identities(&mut parts.headers);
        parts.headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(NAME));
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        let response = self.client.send(request).await.map_err(|error| unsent(&error))?;
        let (parts, body) = response.into_parts();
        let bytes = Limited::new(body, most).collect().await.map_err(|error| cut_off(&error))?.to_bytes();
        Ok(Response::from_parts(parts, bytes))
    }
}

/// The identity is added by the client; what a request says of itself counts for nothing.
fn remove_identities(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::PROXY_AUTHORIZATION);
    headers.remove(header::COOKIE);
    let theirs: Vec<_> = headers.keys().filter(|name| is_identity(name.as_str())).cloned().collect();
    for name in theirs {
        headers.remove(name);
    }
}

fn is_identity(name: &str) -> bool {
    name.starts_with("impersonate-") || name.starts_with("x-remote-")
}

fn unsent(error: &kube::Error) -> TransportError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        let connects = inner
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect);
        if connects {
            return TransportError::Connect(innermost(inner));
        }
        cause = inner.source();
    }
    TransportError::Broken(innermost(error))
}

fn cut_off(error: &BoxError) -> TransportError {
    if error.is::<LengthLimitError>() {
        TransportError::TooLarge
    } else {
        TransportError::Broken(innermost(&**error))
    }
}

/// The outer texts of the clients only say that something failed.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    last.to_string()
}
