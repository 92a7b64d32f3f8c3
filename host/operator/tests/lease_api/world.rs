//! A fleet, a clock that stands still, the store and the router.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use egress_proxies_core::crd::{Mode, Phase};
use egress_proxies_core::facts::{Auth, Fleet, Machine, ProxyFacts};
use egress_proxies_core::ids::{Incarnation, ProxyKey, ProxyUid};
use egress_proxies_core::pool::{DEFAULT_COOLDOWN, LeasePort};
use egress_proxies_core::provider::{Credentials, Secret};
use egress_proxies_core::time::{Moment, Now};
use egress_proxies_operator::clock::Clock;
use egress_proxies_operator::http::{Api, LeaseMetrics, LeaseOutcome, TokenSources, Tokens, router};
use egress_proxies_operator::pool::MemoryStore;
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::described;

pub(crate) const TOKEN: &str = "a-long-token-of-the-tests";

/// Time that only the test moves.
pub(crate) struct TestClock(Mutex<Duration>);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let elapsed = *self.0.lock().unwrap();
        Now {
            wall: jiff::Timestamp::from_second(1_800_000_000).unwrap() + elapsed,
            mono: Moment::after_start(elapsed),
        }
    }
}

#[derive(Default)]
pub(crate) struct Counted(pub(crate) Mutex<Vec<LeaseOutcome>>);

impl LeaseMetrics for Counted {
    fn lease_request(&self, outcome: LeaseOutcome) {
        self.0.lock().unwrap().push(outcome);
    }
}

pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) fleet: watch::Sender<Fleet>,
    pub(crate) counted: Arc<Counted>,
    /// Whether this replica leads.
    pub(crate) leads: Arc<AtomicBool>,
    clock: Arc<TestClock>,
    token: Option<String>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {:?}", self.text))
    }

    /// Status and code of an error; checks that it has the shape that all errors have.
    pub(crate) fn error(&self) -> (u16, String) {
        let body = self.json();
        let message = body["message"].as_str().expect("a message");
        assert!(message.len() > 10, "{body}");
        (self.status.as_u16(), body["error"].as_str().expect("a code").to_owned())
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().expect("a message").to_owned()
    }
}

impl World {
    /// An API that wants [`TOKEN`]; calls show it.
    pub(crate) async fn new(proxies: impl IntoIterator<Item = ProxyFacts>) -> Self {
        let token = Some(Secret::new(TOKEN.to_owned()));
        let mut world = Self::with_tokens(proxies, TokenSources { token, file: None }).await;
        world.token = Some(TOKEN.to_owned());
        world
    }

    /// An API with these tokens; calls show none.
    pub(crate) async fn with_tokens(
        proxies: impl IntoIterator<Item = ProxyFacts>,
        tokens: TokenSources,
    ) -> Self {
        Self::build(proxies, Tokens::load(tokens).await)
    }

    pub(crate) fn build(proxies: impl IntoIterator<Item = ProxyFacts>, tokens: Arc<Tokens>) -> Self {
        let clock = Arc::new(TestClock(Mutex::default()));
        let (fleet, watched) = watch::channel(fleet(proxies));
        let pool = MemoryStore::new(watched.clone(), Arc::<TestClock>::clone(&clock), DEFAULT_COOLDOWN);
        Self::assemble(Arc::new(pool), (fleet, watched), tokens, clock)
    }

    /// An open API over this pool.
    pub(crate) async fn over(pool: Arc<dyn LeasePort>) -> Self {
        let clock = Arc::new(TestClock(Mutex::default()));
        Self::assemble(pool, watch::channel(fleet([])), Tokens::load(TokenSources::default()).await, clock)
    }

    fn assemble(
        pool: Arc<dyn LeasePort>,
        (fleet, watched): (watch::Sender<Fleet>, watch::Receiver<Fleet>),
        tokens: Arc<Tokens>,
        clock: Arc<TestClock>,
    ) -> Self {
        let counted = Arc::new(Counted::default());
        let leads = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&leads);
        let api = Api {
            pool,
            fleet: watched,
            tokens,
            metrics: Arc::<Counted>::clone(&counted),
            clock: Arc::<TestClock>::clone(&clock),
            leads: Arc::new(move || asked.load(Ordering::SeqCst)),
        };
        Self { router: router(api), fleet, counted, leads, clock, token: None }
    }

    pub(crate) fn wait(&self, seconds: u64) {
        *self.clock.0.lock().unwrap() += Duration::from_secs(seconds);
    }

    pub(crate) fn set(&self, proxies: impl IntoIterator<Item = ProxyFacts>) {
        self.fleet.send_replace(fleet(proxies));
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().to_string());
        let response = self.router.clone().oneshot(request).await.expect("routers do not fail");
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.expect("a whole body");
        let answer = Answer { status, headers, text: String::from_utf8(bytes.to_vec()).expect("UTF-8") };
        described::check(&method, &path, &answer);
        answer
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.send(request.body(body.into()).expect("a request")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.call(Method::POST, path, body.to_owned()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, "").await
    }

    /// Takes a lease that must be granted; its id.
    pub(crate) async fn lease(&self, body: &str) -> String {
        let answer = self.post("/v1/leases", body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        answer.json()["leaseID"].as_str().expect("an id").to_owned()
    }
}

pub(crate) fn fleet(proxies: impl IntoIterator<Item = ProxyFacts>) -> Fleet {
    let proxies = proxies.into_iter().map(|facts| (facts.uid.clone(), Arc::new(facts))).collect();
    Fleet { ready: true, proxies: Arc::new(proxies) }
}

/// A healthy Proxy `default/<name>`.
pub(crate) fn proxy(name: &str) -> ProxyFacts {
    let uid = ProxyUid::parse(format!("uid-{name}")).unwrap();
    ProxyFacts {
        attributes: BTreeMap::from([("geo".to_owned(), "local".to_owned())]),
        phase: Phase::Ready,
        machine: Some(Machine {
            incarnation: Incarnation::parse(format!("{name}-1")).unwrap(),
            address: "192.0.2.1".to_owned(),
            port: 3128,
        }),
        healthy: Some(true),
        latency: Some(Duration::from_millis(12)),
        ..ProxyFacts::new(ProxyKey::new("default", name), uid, Mode::External)
    }
}

pub(crate) fn with(name: &str, change: impl FnOnce(&mut ProxyFacts)) -> ProxyFacts {
    let mut facts = proxy(name);
    change(&mut facts);
    facts
}

pub(crate) fn credentials(user: &str, password: &str) -> Auth {
    Auth::Known(Credentials {
        username: Secret::new(user.to_owned()),
        password: Secret::new(password.to_owned()),
    })
}
