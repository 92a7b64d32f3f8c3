//! The operational endpoints: is the process alive, is it ready, what does it measure, how are the
//! providers. No secret is shown; the ports are meant for the cluster's inside.
//!
//! Liveness says nothing about the world: a process that waits for a broken API server must not be killed
//! for it. Readiness is a list of named gates, so that whoever looks sees which one is shut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::Value;

/// One condition of readiness: open once its loop has said so.
#[derive(Debug, Clone)]
pub struct Gate {
    name: &'static str,
    open: Arc<AtomicBool>,
}

impl Gate {
    /// A shut gate; `name` says what is waited for.
    pub fn shut(name: &'static str) -> Self {
        Self { name, open: Arc::default() }
    }

    /// Opens or shuts it.
    pub fn set(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }
}

/// Answers with a text, or says why it can't.
pub type TextSource = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;
/// Answers with JSON.
pub type JsonSource = Arc<dyn Fn() -> Value + Send + Sync>;

/// `/livez` and `/readyz`.
pub fn probes(gates: Vec<Gate>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(gates))
}

async fn readyz(State(gates): State<Arc<Vec<Gate>>>) -> Response {
    let shut: Vec<&str> = gates.iter().filter(|gate| !gate.is_open()).map(|gate| gate.name).collect();
    if shut.is_empty() {
        return (StatusCode::OK, "ok\n").into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", shut.join("\nnot ready: "))).into_response()
}

/// What the pages for people on call are made from.
#[derive(Clone)]
pub struct Sources {
    /// `/metrics`.
    pub metrics: TextSource,
    /// `/debug/providers`.
    pub providers: JsonSource,
    /// `/debug/suspicions`.
    pub suspicions: JsonSource,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sources")
    }
}

/// `/metrics`, `/debug/providers` and `/debug/suspicions`.
pub fn metrics(sources: Sources) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .route("/debug/providers", get(async |State(sources): State<Sources>| Json((sources.providers)())))
        .route("/debug/suspicions", get(async |State(sources): State<Sources>| Json((sources.suspicions)())))
        .with_state(sources)
}

async fn show_metrics(State(sources): State<Sources>) -> Response {
    match (sources.metrics)() {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(fault) => (StatusCode::INTERNAL_SERVER_ERROR, fault).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    async fn ask(router: Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn readiness_names_the_gates_that_are_shut_and_liveness_does_not_care() {
        let (caches, listeners) = (Gate::shut("the caches are filled"), Gate::shut("the API listens"));
        let router = probes(vec![caches.clone(), listeners.clone()]);
        listeners.set(true);
        let (status, body) = ask(router.clone(), "/readyz").await;
        assert_eq!((status.as_u16(), body.as_str()), (503, "not ready: the caches are filled\n"));
        assert_eq!(ask(router.clone(), "/livez").await.0.as_u16(), 200);
        caches.set(true);
        assert_eq!(ask(router, "/readyz").await.0.as_u16(), 200);
    }

    #[tokio::test]
    async fn metrics_that_can_not_be_had_are_an_error_and_not_an_empty_page() {
        let (status, body) = ask(metrics(sources()), "/metrics").await;
        assert_eq!((status.as_u16(), body.as_str()), (500, "broken"));
    }

    #[tokio::test]
    async fn each_page_for_people_on_call_shows_its_own() {
        for (path, expected) in
            [("/debug/providers", "[\"of providers\"]"), ("/debug/suspicions", "[\"of suspicions\"]")]
        {
            let (status, body) = ask(metrics(sources()), path).await;
            assert_eq!((status.as_u16(), body.as_str()), (200, expected), "{path}");
        }
    }

    fn sources() -> Sources {
        Sources {
            metrics: Arc::new(|| Err("broken".to_owned())),
            providers: Arc::new(|| json!(["of providers"])),
            suspicions: Arc::new(|| json!(["of suspicions"])),
        }
    }
}
