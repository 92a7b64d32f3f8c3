//! What a fault of ours looks like from outside, and what the log never holds.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use egress_proxies_core::facts::LeaseCounts;
use egress_proxies_core::ids::{LeaseId, ProxyUid};
use egress_proxies_core::pool::{Granted, LeasePort, Order, Refusal, Reply, Report, Target, Usage};
use egress_proxies_operator::clock::SystemClock;
use egress_proxies_operator::http::{Api, LeaseOutcome, NoMetrics, TokenSources, Tokens, router};
use http::Request;
use tokio::sync::watch;
use tower::ServiceExt;
use tracing::subscriber::DefaultGuard;

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
        leads: Arc::new(|| true),
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

/// A pool that can keep no further lease.
struct Full;

impl LeasePort for Full {
    fn acquire(&self, _: Order) -> Reply<'_, Result<Granted, Refusal>> {
        Box::pin(async { Err(Refusal::TooManyLeases(Duration::from_millis(41_500))) })
    }

    fn renew(&self, _: LeaseId, _: Option<Duration>) -> Reply<'_, Result<Granted, Refusal>> {
        Box::pin(async { Err(Refusal::UnknownLease) })
    }

    fn release(&self, _: LeaseId) -> Reply<'_, ()> {
        Box::pin(async {})
    }

    fn report(&self, _: LeaseId, _: Report) -> Reply<'_, Result<(), Refusal>> {
        Box::pin(async { Err(Refusal::UnknownLease) })
    }

    fn counts(&self) -> Reply<'_, LeaseCounts> {
        Box::pin(async { LeaseCounts::default() })
    }

    fn usage(&self, _: ProxyUid) -> Reply<'_, Usage> {
        Box::pin(async { Usage::default() })
    }

    fn clear_cooldowns(&self, _: ProxyUid, _: Option<Target>) -> Reply<'_, ()> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn a_full_operator_says_so_and_when_to_come_again() {
    let world = World::over(Arc::new(Full)).await;
    let answer = world.post("/v1/leases", "{}").await;
    assert_eq!(answer.error(), (503, "too_many_leases".to_owned()));
    assert_eq!(answer.headers["retry-after"], "42");
    assert!(answer.message().contains("release those not in use"), "{}", answer.message());
    assert_eq!(*world.counted.0.lock().unwrap(), [LeaseOutcome::TooManyLeases]);
}

/// A log in memory.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Everything that this thread logs goes here while the guard lives.
    pub(crate) fn start(&self) -> DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// What is there so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

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
    let guard = log.start();
    let world = World::new([with("p", |f| f.auth = credentials("some-user", "hunter2"))]).await;
    let lease = world.lease(r#"{"session":"session-of-mine"}"#).await;
    world.post(&format!("/v1/leases/{lease}/renew"), "{}").await;
    world.get("/v1/proxies?attr.secret=in-the-query").await;
    world.get("/v1/proxies?wrong=in-the-query").await;
    world.get("/unknown/in-the-path").await;
    drop(guard);
    let text = log.text();
    for part in ["/v1/leases/{id}/renew", "status=201", "status=200", "status=400", "(no route)", "POST"] {
        assert!(text.contains(part), "{part:?} is not in the log:\n{text}");
    }
    for secret in [TOKEN, &lease, "in-the-query", "in-the-path", "hunter2", "some-user", "session-of-mine"] {
        assert!(!text.contains(secret), "{secret:?} is in the log:\n{text}");
    }
}
