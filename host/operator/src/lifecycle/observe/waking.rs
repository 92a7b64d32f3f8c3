//! Watches that are woken when a pause of the lead is over. At that moment the API server is known to answer, and a
//! watch may be silent because its connection died without a word; else that is noticed a minute later, and until
//! then this process acts on caches as old as the pause.
//!
//! kube's watcher cannot be told to start anew from the version that it has, but does so when the server ends its
//! request. So the request is ended here. What a list asks for is none of this: it is bounded in time.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::progress::SoFar;
use crate::kubernetes_client::is_watch;

/// What a watch brings, until it is ended.
type Events = UnsyncBoxBody<Bytes, BoxError>;

/// A client for one watch, whose requests end when another pause is over. It notes which of them are followed.
pub(super) fn waking(client: &Client, so_far: &Arc<SoFar>) -> Client {
    let (inner, noted) = (client.clone(), Arc::clone(so_far));
    let service = tower::service_fn(move |request| send(inner.clone(), Arc::clone(&noted), request));
    Client::new(service, client.default_namespace())
}

async fn send(
    client: Client,
    so_far: Arc<SoFar>,
    request: Request<Body>,
) -> Result<Response<Events>, kube::Error> {
    if !is_watch(request.uri()) {
        return Ok(client.send(request).await?.map(|body| body.map_err(Into::into).boxed_unsync()));
    }
    let mut resumed = so_far.resumed.clone();
    let pauses = *resumed.borrow_and_update();
    let mut over = Box::pin(async move {
        if resumed.changed().await.is_err() {
            std::future::pending::<()>().await; // there is no election
        }
    });
    let response = tokio::select! {
        biased;
        response = client.send(request) => response?,
        () = &mut over => return Ok(Response::new(nothing())),
    };
    if response.status().is_success() {
        so_far.follows_since(pauses);
    }
    Ok(response.map(|body| {
        let events = BodyStream::new(body).take_until(over);
        StreamBody::new(events).map_err(Into::into).boxed_unsync()
    }))
}

/// As if the server had ended the watch at once.
fn nothing() -> Events {
    Body::empty().map_err(Into::into).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use http_body_util::Full;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::runtime::watcher::{Config, Event, watcher};
    use serde_json::json;
    use tokio::sync::watch;
    use tokio::time::{sleep, timeout};

    use super::super::progress::Progress;
    use super::*;
    use crate::leadership::Leadership;

    const LONG: Duration = Duration::from_secs(30);

    /// What the API server does with the watches that it is asked for, one after the other.
    #[derive(Clone, Copy)]
    enum Says {
        /// The head of an answer, and then nothing.
        Silent,
        /// Not even that.
        Hangs,
        /// An object of this version, and then nothing.
        Object(&'static str),
    }

    /// An API server with an empty list in version 7.
    async fn answer(says: Option<Says>, request: Request<Body>) -> Result<Response<Events>, BoxError> {
        let full = |value: serde_json::Value| Full::new(Bytes::from(format!("{value}\n")));
        let Some(says) = says else {
            let list = full(json!({"metadata": {"resourceVersion": "7"}, "items": []}));
            return Ok(Response::new(list.map_err(|never| match never {}).boxed_unsync()));
        };
        assert!(request.uri().to_string().contains("resourceVersion=7"), "{}", request.uri());
        let first = match says {
            Says::Hangs => std::future::pending().await,
            Says::Silent => None,
            Says::Object(version) => {
                let object = json!({"metadata": {"name": "a", "resourceVersion": version}});
                let event = json!({"type": "ADDED", "object": object}).to_string() + "\n";
                Some(Ok::<_, BoxError>(hyper::body::Frame::data(Bytes::from(event))))
            }
        };
        let events = futures::stream::iter(first).chain(futures::stream::pending());
        Ok(Response::new(StreamBody::new(events).boxed_unsync()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_silent_or_hangs_starts_anew_from_its_version_when_a_pause_is_over() {
        for first in [Says::Silent, Says::Hangs] {
            let left = Arc::new(Mutex::new(vec![Says::Object("9"), first]));
            let service = tower::service_fn(move |request: Request<Body>| {
                let watch = is_watch(request.uri());
                answer(if watch { left.lock().unwrap().pop() } else { None }, request)
            });
            let resumed = watch::channel(0).0;
            let leadership = Leadership { resumed: resumed.subscribe(), ..Leadership::alone() };
            let so_far = Progress::new("a watch".to_owned(), &leadership).so_far;
            let client = waking(&Client::new(service, "default"), &so_far);
            let mut events = Box::pin(watcher(Api::<ConfigMap>::all(client), Config::default()));
            for _ in [Event::<ConfigMap>::Init, Event::InitDone] {
                events.next().await.unwrap().unwrap();
            }
            assert!(timeout(LONG, events.next()).await.is_err(), "nothing comes");
            let ends = async {
                sleep(LONG).await;
                assert_eq!(so_far.is_behind(), matches!(first, Says::Hangs));
                resumed.send_replace(1);
                assert!(so_far.is_behind());
            };
            let (event, ()) = tokio::join!(timeout(LONG * 2, events.next()), ends);
            let event = event.expect("it is started anew").unwrap().unwrap();
            assert!(matches!(event, Event::Apply(object) if object.metadata.name.as_deref() == Some("a")));
            assert!(!so_far.is_behind());
        }
    }
}
