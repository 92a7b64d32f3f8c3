//! Clients of the Kubernetes API: the one place that builds them.
//!
//! Invariants: no client resends a request by itself (a repeated write is a decision, taken after a fresh
//! look), a client has [`AT_ONCE`] requests under way and no more, each, once its turn has come, takes no longer than
//! [`REQUEST_TIMEOUT`], answer read to its end (watches are neither counted nor limited), and proxy variables of the
//! environment are ignored: the operator's own proxies must never carry its own control traffic.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use k8s_openapi::api::core::v1::Namespace;
use kube::client::{Body, ClientBuilder, DynBody};
use kube::core::Status;
use kube::{Api, Client, Config};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tower::util::BoxService;
use tower::{BoxError, Layer, Service};

/// Who asks, in audit logs and managed fields; a provider's request may say another name.
pub const NAME: &str = concat!("egress-proxies-operator/", env!("CARGO_PKG_VERSION"));
/// Longest time of a request that is not a watch.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that one client has under way at once, watches apart. Each takes a connection with its buffers, and a
/// start over a large fleet asks for thousands; more at once make no API server faster.
const AT_ONCE: usize = 32;
/// Longest silence on a connection: a little more than a watch of 60 s lasts.
const SILENCE: Duration = Duration::from_secs(75);

/// So long a process that begins bears that the API server refuses it: rights just granted take a moment, a server
/// that starts says so before it has read them, and what does not come then has to be applied by somebody.
pub const REFUSED: Duration = Duration::from_secs(30);

/// Why no client could be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a kubeconfig nor a service account was found.
    #[error(
        "no way to reach the Kubernetes API: set KUBECONFIG to a kubeconfig file, or run in a pod with a service account"
    )]
    NoConfig(#[source] Box<kube::config::InferConfigError>),
    /// The configuration was found and is of no use.
    #[error("the Kubernetes client configuration cannot be used")]
    Unusable(#[source] Box<kube::Error>),
}

/// Finds the configuration as kubectl does (kubeconfig, then service account) and makes it safe for
/// writers.
///
/// # Errors
/// If neither is there.
pub async fn infer_config() -> Result<Config, ClientError> {
    let config = Config::infer().await.map_err(|error| ClientError::NoConfig(Box::new(error)))?;
    Ok(safe(config))
}

/// Takes resends, proxies and endless waits out of a configuration.
pub fn safe(mut config: Config) -> Config {
    config.default_retry = false;
    config.proxy_url = None;
    config.connect_timeout = Some(REQUEST_TIMEOUT);
    config.write_timeout = Some(REQUEST_TIMEOUT);
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config
}

/// Builds a client; see the module for its rules.
///
/// # Errors
/// If the configuration is of no use, such as a certificate that cannot be parsed.
pub fn client(config: Config) -> Result<Client, ClientError> {
    Ok(builder(config)?.build())
}

/// The service below a client, so that further layers (counting, impersonation) can be put on top.
pub type BoundedService = Bounded<BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>>;

/// As [`client`], before it is built.
///
/// # Errors
/// As [`client`].
pub fn builder(config: Config) -> Result<ClientBuilder<BoundedService>, ClientError> {
    let builder =
        ClientBuilder::try_from(safe(config)).map_err(|error| ClientError::Unusable(Box::new(error)))?;
    Ok(builder.with_layer(&BoundedLayer { turns: Arc::new(Semaphore::new(AT_ONCE)) }))
}

/// The identity of a cluster that is given no other: the uid of its kube-system namespace.
///
/// # Errors
/// If the namespace cannot be read; then `--cluster-id` must be set.
pub async fn cluster_id(client: &Client) -> Result<String, kube::Error> {
    let namespace = Api::<Namespace>::all(client.clone()).get("kube-system").await?;
    Ok(namespace.metadata.uid.unwrap_or_default())
}

/// Puts the limits around a service. Not tower's `ConcurrencyLimit`: that gives the turn back when the head of an
/// answer is there, and what waits for one would keep watches, which take none, waiting behind it.
#[derive(Debug, Clone)]
struct BoundedLayer {
    turns: Arc<Semaphore>,
}

impl<S> Layer<S> for BoundedLayer {
    type Service = Bounded<S>;
    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, turns: Arc::clone(&self.turns) }
    }
}

/// A service whose answers are complete within [`REQUEST_TIMEOUT`] of their turn; of a watch, only its head, and
/// at once.
#[derive(Debug)]
pub struct Bounded<S> {
    inner: S,
    turns: Arc<Semaphore>,
}

impl<S> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<BoundedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(NAME));
        let watch = is_watch(request.uri());
        let turns = (!watch).then(|| Arc::clone(&self.turns));
        // Begins when it is polled: after its turn has come.
        let answer = self.inner.call(request);
        async move {
            let turn = match turns {
                Some(turns) => turns.acquire_owned().await.ok(),
                None => None,
            };
            let mut limit = Box::pin(tokio::time::sleep(REQUEST_TIMEOUT));
            let response = tokio::select! {
                biased;
                response = answer => response?,
                () = &mut limit => return Err(too_slow()),
            };
            Ok(response.map(|body| BoundedBody { body, limit: (!watch).then_some(limit), _turn: turn }))
        }
        .boxed()
    }
}

/// The body of an answer; ends with an error when its time is up.
pub struct BoundedBody {
    body: Box<DynBody>,
    limit: Option<Pin<Box<Sleep>>>,
    /// Given back when nobody reads on.
    _turn: Option<OwnedSemaphorePermit>,
}

impl std::fmt::Debug for BoundedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundedBody").field("limited", &self.limit.is_some()).finish_non_exhaustive()
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        match self.limit.as_mut().map(|limit| limit.poll_unpin(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Some(Err(too_slow()))),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn too_slow() -> BoxError {
    let seconds = REQUEST_TIMEOUT.as_secs();
    format!("the Kubernetes API did not answer completely within {seconds} s").into()
}

/// True if the API server itself refuses: no rights, or there is nothing of the kind. A load balancer whose backends
/// are away may answer 404 as well, and what is no Status has no code.
pub fn refuses(status: &Status) -> bool {
    match status.code {
        401 | 403 => true,
        404 => status.reason == "NotFound",
        _ => false,
    }
}

/// True for a request whose answer goes on for as long as there is news.
pub fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    fn endless_body() -> Box<DynBody> {
        let frames = futures::stream::pending::<Result<Frame<Bytes>, BoxError>>();
        Box::new(http_body_util::StreamBody::new(frames))
    }

    async fn call(uri: &str) -> Result<Response<BoundedBody>, BoxError> {
        let inner = tower::service_fn(|_: Request<Body>| async { Ok(Response::new(endless_body())) });
        let request = Request::get(uri).body(Body::empty()).unwrap();
        layer(AT_ONCE).layer(inner).oneshot(request).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_ends_is_given_up_after_ten_seconds() {
        let body = call("/api/v1/secrets?limit=500").await.unwrap().into_body();
        let error = body.collect().await.unwrap_err().to_string();
        assert_eq!(error, "the Kubernetes API did not answer completely within 10 s");
    }

    fn layer(turns: usize) -> BoundedLayer {
        BoundedLayer { turns: Arc::new(Semaphore::new(turns)) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_its_turn_and_its_time_begins_then() {
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let inner = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().unwrap().push(request.uri().path().to_owned());
                Ok::<_, BoxError>(Response::new(endless_body()))
            }
        });
        let layer = layer(1);
        let ask =
            |uri: &str| layer.layer(inner.clone()).oneshot(Request::get(uri).body(Body::empty()).unwrap());
        let first = ask("/first").await.unwrap();
        let watch = ask("/watch?watch=true").await.unwrap();
        let began = tokio::time::Instant::now();
        let (first, second) = tokio::join!(first.into_body().collect(), ask("/second"));
        assert!(first.is_err());
        assert_eq!(began.elapsed(), REQUEST_TIMEOUT, "the first gave its turn back at its end");
        assert_eq!(*asked.lock().unwrap(), ["/first", "/watch", "/second"], "a watch takes no turn");
        assert!(second.unwrap().into_body().collect().await.is_err());
        assert_eq!(began.elapsed(), REQUEST_TIMEOUT * 2);
        drop(watch);
    }

    #[tokio::test]
    async fn a_request_says_whose_it_is_unless_it_does_already() {
        let echo = tower::service_fn(|request: Request<Body>| async move {
            let mut answer = Response::new(endless_body());
            *answer.headers_mut() = request.headers().clone();
            Ok::<_, BoxError>(answer)
        });
        for (given, expected) in [(None, NAME), (Some("of-a-provider/1.0"), "of-a-provider/1.0")] {
            let mut request = Request::get("/api").body(Body::empty()).unwrap();
            request.headers_mut().extend(given.map(|name| (USER_AGENT, HeaderValue::from_static(name))));
            let answer = layer(1).layer(echo).oneshot(request).await.unwrap();
            let sent: Vec<_> = answer.headers().get_all(USER_AGENT).iter().collect();
            assert_eq!(sent, [expected]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_stay_silent_for_longer() {
        let body = call("/api/v1/secrets?watch=true&limit=500").await.unwrap().into_body();
        assert!(tokio::time::timeout(REQUEST_TIMEOUT * 3, body.collect()).await.is_err());
    }

    #[test]
    fn a_configuration_is_made_safe() {
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.proxy_url = Some("http://127.0.0.1:3128".parse().unwrap());
        let config = safe(config);
        assert!(!config.default_retry && config.proxy_url.is_none());
    }
}
