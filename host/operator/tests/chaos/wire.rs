//! Between the operator's client and the API server: each request about one Proxy meets its fate here.
//! Lists, watches and Events pass.

use std::sync::Arc;
use std::task::{Context, Poll};

use egress_proxies_operator::kubernetes_client::BoundedBody;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::gate::{Effect, Fate, Process, UnderWay};

/// Puts the gate around a service.
pub(crate) struct WireLayer(pub(crate) Arc<Process>);

impl<S> Layer<S> for WireLayer {
    type Service = Wire<S>;
    fn layer(&self, inner: S) -> Wire<S> {
        Wire { inner: Arc::new(tokio::sync::Mutex::new(inner)), process: Arc::clone(&self.0) }
    }
}

/// A service with the gate around it.
pub(crate) struct Wire<S> {
    inner: Arc<tokio::sync::Mutex<S>>,
    process: Arc<Process>,
}

impl<S> Service<Request<Body>> for Wire<S>
where
    S: Service<Request<Body>, Response = Response<BoundedBody>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, process) = (Arc::clone(&self.inner), Arc::clone(&self.process));
        async move {
            let effect = effect_of(&request);
            let fate = effect.map_or(Fate::Fine, |effect| process.act(effect, |fate| fate));
            let is_write = effect.is_some_and(|effect| !effect.only_reads());
            let sender = Arc::clone(&process);
            let send = async move {
                let under_way = is_write.then(|| sender.sends());
                let answer = {
                    let mut inner = inner.lock().await;
                    inner.ready().await?.call(request)
                };
                let answer = answer.await;
                under_way.into_iter().for_each(UnderWay::answered);
                answer
            };
            match fate {
                Fate::Fine => send.await,
                // The fence is asked while it waits for a connection, and again while it waits for its answer.
                Fate::HeldBack => {
                    if is_write {
                        process.after_a_pause().await;
                    }
                    send.await
                }
                Fate::BrokenOff => {
                    let answer = send.await;
                    if is_write {
                        process.after_a_pause().await;
                    }
                    answer
                }
                Fate::Refused => Err("the connection was refused".into()),
                Fate::DiesBefore => process.ends().await,
                Fate::DiesAfter => {
                    drop(send.await);
                    process.ends().await
                }
                Fate::AnswerLost | Fate::LandsLate(_) => {
                    drop(send.await);
                    Err("the connection was lost before the answer came".into())
                }
                Fate::Late(wait) => {
                    let answer = send.await;
                    tokio::time::sleep(wait).await;
                    answer
                }
            }
        }
        .boxed()
    }
}

/// Requests about one Proxy are effects: `.../proxies/NAME` and its status.
fn effect_of(request: &Request<Body>) -> Option<Effect> {
    let (_, of_proxy) = request.uri().path().split_once("/proxies/")?;
    if of_proxy.ends_with("/status") {
        return Some(Effect::Status);
    }
    Some(if request.method() == Method::GET { Effect::Look } else { Effect::Metadata })
}
