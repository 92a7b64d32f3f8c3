//! What is waited for, for how long, and what is not.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tower::BoxError;

use super::*;

/// What the API server does when it is asked.
#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    /// What is no JSON, as a load balancer says it.
    Page(u16),
    /// JSON that is no Status.
    Text(u16),
    Refused,
    Distrusted,
}

/// An API server that does this some times and then answers well; and how often it was asked.
struct Failing {
    client: Client,
    asked: std::sync::Arc<AtomicU32>,
}

impl Failing {
    fn new(answer: Answer, times: u32) -> Self {
        let asked = std::sync::Arc::new(AtomicU32::new(0));
        let count = std::sync::Arc::clone(&asked);
        let service = tower::service_fn(move |_: Request<Body>| {
            let fails = count.fetch_add(1, Ordering::SeqCst) < times;
            async move { if fails { failure(answer) } else { Ok(good()) } }
        });
        Self { client: Client::new(service, "default"), asked }
    }

    async fn name(&self) -> anyhow::Result<String> {
        let ask = async || {
            let found = Api::<Namespace>::all(self.client.clone()).get("kube-system").await;
            Ok(found.context("it was not read")?.metadata.uid.unwrap_or_default())
        };
        until_answered("https://192.0.2.1", ask).await
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

fn good() -> Response<Body> {
    let body = json!({"metadata": {"name": "kube-system", "uid": "u1"}});
    Response::new(Body::from(body.to_string().into_bytes()))
}

fn failure(answer: Answer) -> Result<Response<Body>, BoxError> {
    match answer {
        Answer::Status(code) => {
            let body = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": if code == 404 { "NotFound" } else { "no" }});
            Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
        }
        Answer::Page(code) => {
            Ok(Response::builder().status(code).body(Body::from(b"<html>later</html>".to_vec()))?)
        }
        Answer::Text(code) => {
            Ok(Response::builder().status(code).body(Body::from(b"{\"message\":\"no\"}".to_vec()))?)
        }
        Answer::Refused => Err(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused))),
        Answer::Distrusted => {
            let error = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
            Err(Box::new(io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error))))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_waited_for() {
    for answer in [
        Answer::Refused,
        Answer::Status(500),
        Answer::Status(503),
        Answer::Status(429),
        Answer::Page(502),
        Answer::Page(404),
        Answer::Text(404),
        Answer::Text(403),
        Answer::Page(400),
    ] {
        let server = Failing::new(answer, 40);
        let began = Instant::now();
        assert_eq!(server.name().await.unwrap(), "u1");
        assert_eq!(server.asked(), 41);
        // 1, 2, 4 and 8 s, then 36 times 10 s, each less by up to a fifth.
        let most = Duration::from_secs(15 + 360);
        assert!((most * 4 / 5..=most).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_waiting_cannot_mend_ends_the_start_at_once() {
    let server = Failing::new(Answer::Distrusted, 1);
    let error = server.name().await.unwrap_err();
    assert!(format!("{error:#}").starts_with("it was not read: "), "{error:#}");
    assert_eq!(server.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_borne_for_a_while_as_the_election_does() {
    for answer in [Answer::Status(401), Answer::Status(403), Answer::Status(404)] {
        // 1, 2, 4, 8 and 10 s, and at most that again.
        let server = Failing::new(answer, 5);
        assert_eq!(server.name().await.unwrap(), "u1", "a server that starts, or rights that come");

        let server = Failing::new(answer, u32::MAX);
        let began = Instant::now();
        let error = server.name().await.unwrap_err();
        assert!(format!("{error:#}").starts_with("it was not read: "), "{error:#}");
        assert!((REFUSED..REFUSED + MOST).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_asked_for_as_long_as_somebody_waits() {
    let server = Failing::new(Answer::Refused, u32::MAX);
    assert!(tokio::time::timeout(Duration::from_hours(1), server.name()).await.is_err());
    assert!((360..500).contains(&server.asked()), "{}", server.asked());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_may_resolve_later() {
    let unknown = tokio::net::lookup_host(("name.invalid", 443)).await.map(|_| ());
    let error = unknown.context("the name was not resolved").unwrap_err();
    assert_eq!(meaning(&error), Meaning::Later);
}
