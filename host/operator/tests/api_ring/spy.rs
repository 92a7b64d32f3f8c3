//! Sits between the operator's client and the API server: writes down each request, lets somebody else act
//! just before a write, answers in the server's place, and stops the world after the n-th effect, as a crash
//! would.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use egress_proxies_operator::kubernetes_client::BoundedBody;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceExt};

/// After so many effects nothing goes on: the effect happened, its answer never arrives.
#[derive(Debug)]
pub(crate) struct Crash {
    left: AtomicI64,
    happened: Notify,
}

impl Crash {
    pub(crate) fn never() -> Arc<Self> {
        Self::after(i64::MAX)
    }

    pub(crate) fn after(effects: i64) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(effects), happened: Notify::new() })
    }

    /// An effect has happened.
    pub(crate) async fn point(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 1 {
            self.happened.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the world has stopped.
    pub(crate) async fn happened(&self) {
        self.happened.notified().await;
    }
}

type Interruption = (&'static str, BoxFuture<'static, ()>);

/// The server's, or ours.
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;
/// Answers in the API server's place while this gives one.
type Answer = Box<dyn FnMut(&str) -> Option<(u16, Value)> + Send>;
/// Group, resource and verb, as RBAC has them.
pub(crate) type Right = (String, String, String);

/// What the operator wrote, which rights it used, and who interrupts it.
pub(crate) struct Spy {
    writes: Mutex<Vec<String>>,
    /// When.
    sent: Mutex<Vec<Instant>>,
    reads: Mutex<Vec<String>>,
    rights: Mutex<BTreeSet<Right>>,
    answers: Mutex<Option<Answer>>,
    interruptions: Mutex<Vec<Interruption>>,
    crash: Arc<Crash>,
}

impl Spy {
    pub(crate) fn new(crash: Arc<Crash>) -> Arc<Self> {
        Arc::new(Self {
            writes: Mutex::default(),
            sent: Mutex::default(),
            reads: Mutex::default(),
            answers: Mutex::default(),
            rights: Mutex::default(),
            interruptions: Mutex::default(),
            crash,
        })
    }

    /// Writes to Proxies so far, as `METHOD path`.
    pub(crate) fn proxy_writes(&self) -> Vec<String> {
        let all = self.writes.lock().unwrap();
        all.iter().filter(|write| write.contains("/proxies/")).cloned().collect()
    }

    /// When it wrote, so far.
    pub(crate) fn sent(&self) -> Vec<Instant> {
        self.sent.lock().unwrap().clone()
    }

    /// The rights used so far.
    pub(crate) fn rights(&self) -> BTreeSet<Right> {
        self.rights.lock().unwrap().clone()
    }

    /// Events written so far.
    pub(crate) fn events(&self) -> usize {
        self.writes.lock().unwrap().iter().filter(|write| write.contains("/events")).count()
    }

    /// Full lists asked for so far.
    pub(crate) fn lists(&self) -> usize {
        self.reads.lock().unwrap().iter().filter(|read| read.starts_with("LIST")).count()
    }

    /// Watches asked for so far.
    pub(crate) fn watches(&self) -> usize {
        self.reads.lock().unwrap().iter().filter(|read| read.starts_with("WATCH")).count()
    }

    /// Answers reads such as `WATCH /apis/.../proxies` with a code and a body, while `answer` gives one.
    pub(crate) fn answer(&self, answer: impl FnMut(&str) -> Option<(u16, Value)> + Send + 'static) {
        *self.answers.lock().unwrap() = Some(Box::new(answer));
    }

    /// Writes the read down; with the answer to it that does not come from the server.
    fn read(&self, line: String) -> Option<(u16, Value)> {
        let answer = self.answers.lock().unwrap().as_mut().and_then(|answer| answer(&line));
        self.reads.lock().unwrap().push(line);
        answer
    }

    /// Before the next write to a path with this ending, `act` happens.
    pub(crate) fn before(&self, ending: &'static str, act: impl Future<Output = ()> + Send + 'static) {
        self.interruptions.lock().unwrap().push((ending, act.boxed()));
    }

    fn interruption(&self, path: &str) -> Option<BoxFuture<'static, ()>> {
        let mut all = self.interruptions.lock().unwrap();
        let at = all.iter().position(|(ending, _)| path.ends_with(ending))?;
        Some(all.remove(at).1)
    }
}

/// Puts a [`Spy`] around a service.
pub(crate) struct SpyLayer(pub(crate) Arc<Spy>);

impl<S> Layer<S> for SpyLayer {
    type Service = Spied<S>;
    fn layer(&self, inner: S) -> Spied<S> {
        Spied { inner: Arc::new(tokio::sync::Mutex::new(inner)), spy: Arc::clone(&self.0) }
    }
}

/// A service with a [`Spy`] around it.
pub(crate) struct Spied<S> {
    inner: Arc<tokio::sync::Mutex<S>>,
    spy: Arc<Spy>,
}

impl<S> Service<Request<Body>> for Spied<S>
where
    S: Service<Request<Body>, Response = Response<BoundedBody>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnyBody>, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, spy) = (Arc::clone(&self.inner), Arc::clone(&self.spy));
        async move {
            let write = request.method() != Method::GET;
            let path = request.uri().path().to_owned();
            let line = format!("{} {path}", request.method());
            spy.rights.lock().unwrap().insert(right(request.method(), request.uri()));
            if let Some(act) = write.then(|| spy.interruption(&path)).flatten() {
                act.await;
            }
            if write {
                spy.sent.lock().unwrap().push(Instant::now());
                spy.writes.lock().unwrap().push(line);
            } else if let Some((code, body)) = spy.read(format!("{} {path}", kind_of(request.uri()))) {
                let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
                return Ok(Response::builder().status(code).body(body.boxed_unsync())?);
            }
            let answer = {
                let mut inner = inner.lock().await;
                inner.ready().await?.call(request)
            };
            let response = answer.await?;
            if write && path.contains("/proxies/") {
                spy.crash.point().await;
            }
            Ok(response.map(BodyExt::boxed_unsync))
        }
        .boxed()
    }
}

fn kind_of(uri: &Uri) -> &'static str {
    let collection = uri.path().ends_with("/proxies") || uri.path().ends_with("/secrets");
    match uri.query() {
        Some(query) if query.contains("watch=true") => "WATCH",
        Some(_) | None if collection => "LIST",
        Some(_) | None => "GET",
    }
}

/// The right that a request needs.
fn right(method: &Method, uri: &Uri) -> Right {
    let parts: Vec<&str> = uri.path().trim_start_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        other => panic!("no resource: {other:?}"),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (resource, named) = match rest {
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, below] => (format!("{resource}/{below}"), true),
        other => panic!("no resource: {other:?}"),
    };
    let watches = uri.query().is_some_and(|query| query.contains("watch=true"));
    let verb = match method.as_str() {
        "GET" if named => "get",
        "GET" if watches => "watch",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        other => panic!("no verb: {other}"),
    };
    (group.to_owned(), resource, verb.to_owned())
}
