//! What a fault of ours looks like from outside, and what the log never holds.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use egress_proxies_core::facts::LeaseCounts;
use egress_proxies_core::ids::{LeaseId, ProxyUid};
use egress_proxies_core::pool::{Granted, LeasePort, Order, Refusal, Reply, Report, Target, Usage};
use egress_proxies_operator::clock::SystemClock;
use egress_proxies_operator::http::{Api, NoMetrics, TokenSources, Tokens, router};
use http::Request;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::world::{TOKEN, World, credentials, fleet, with};

/// A pool with a fault in every operation but one.
struct Broken;

impl LeasePort for Broken {
    fn acquire(&self, _: Order) -> Reply<'_, Result<Granted, Refusal>> {
        Box::pin(async { panic!("the books do not balance") })
    }

    fn renew(&self, _: LeaseId, _: Option<Duration>) -> Reply<'_, Result<Granted, Refusal>> {
        Box::pin(async { panic!("the books do not balance") })
    }

    fn release(&self, _: LeaseId) -> Reply<'_, ()> {
        Box::pin(async { panic!("the books do not balance") })
    }

    fn report(&self, _: LeaseId, _: Report) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(async { panic!("the books do not balance") })
    }

    fn counts(&self) -> Reply<'_, LeaseCounts> {
        Box::pin(async { LeaseCounts::default() })
    }

    fn usage(&self, _: ProxyUid) -> Reply<'_, Usage> {
        Box::pin(async { panic!("the books do not balance") })
    }

    fn clear_cooldowns(&self, _: ProxyUid, _: Option<Target>) -> Reply<'_, ()> {
        Box::pin(async { panic!("the books do not balance") })
    }
}

#[tokio::test]
async fn a_panic_is_an_answer_without_details_and_the_next_request_works() {
    let (_keep, watched) = watch::channel(fleet([]));
    let router = router(Api {
        pool: Arc::new(Broken),
        fleet: watched,
        tokens: Tokens::load(TokenSources::default()).await,
        metrics: Arc::new(NoMetrics),
        clock: SystemClock::start(),
    });
    let request = Request::post("/v1/leases").body(Body::from("{}")).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 500);
    let text = to_bytes(response.into_body(), 4096).await.unwrap();
    let body: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(body["error"], "internal");
    assert!(!body["message"].as_str().unwrap().contains("books"));
    let request = Request::get("/v1/proxies").body(Body::empty()).unwrap();
    assert_eq!(router.oneshot(request).await.unwrap().status(), 200);
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_names_the_route_and_holds_no_token_lease_id_query_or_password() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let world = World::new([with("p", |f| f.auth = credentials("some-user", "hunter2"))]).await;
    let lease = world.lease(r#"{"session":"session-of-mine"}"#).await;
    world.post(&format!("/v1/leases/{lease}/renew"), "{}").await;
    world.get("/v1/proxies?attr.secret=in-the-query").await;
    world.get("/v1/proxies?wrong=in-the-query").await;
    world.get("/unknown/in-the-path").await;
    drop(guard);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for part in ["/v1/leases/{id}/renew", "status=201", "status=200", "status=400", "(no route)", "POST"] {
        assert!(text.contains(part), "{part:?} is not in the log:\n{text}");
    }
    for secret in [TOKEN, &lease, "in-the-query", "in-the-path", "hunter2", "some-user", "session-of-mine"] {
        assert!(!text.contains(secret), "{secret:?} is in the log:\n{text}");
    }
}
