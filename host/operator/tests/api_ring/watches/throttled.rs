//! An API server that asks for patience, or that does not know the version asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::with_two_ready;
use crate::operator::{Bench, is_ready, managed};
use crate::support::api_server::ApiServer;

fn failure(code: u16, message: &str, retry_after: u32) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
        "details": {"retryAfterSeconds": retry_after}
    })
}

#[tokio::test]
async fn the_first_proxy_after_the_crd_was_installed_is_ready_within_seconds() {
    let Some(server) = ApiServer::start().await else { return };
    let bench = Bench::on(&server, "first").await;
    let started = Instant::now();
    let operator = bench.operator();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    operator.stop().await;
}

/// Waits until so many were counted.
async fn reached(count: &AtomicUsize, wanted: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while count.load(Ordering::SeqCst) < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted}", count.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn storage_that_is_being_set_up_is_asked_again_after_the_second_it_asks_for() {
    let Some(bench) = Bench::open("storage").await else { return };
    let operator = bench.operator();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    operator.spy.answer(move |read| {
        let watch = read.starts_with("WATCH") && read.ends_with("/proxies");
        let more = watch && count.fetch_add(1, Ordering::SeqCst) < 3;
        more.then(|| (429, failure(429, "storage is (re)initializing", 1)))
    });
    let started = Instant::now();
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    // A list that comes late enough shows the Proxy before the watch is let in.
    reached(&refused, 3).await;
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    operator.stop().await;
}

#[tokio::test]
async fn a_server_with_too_many_requests_gets_fewer_of_them() {
    let Some(bench) = Bench::open("too-many").await else { return };
    let operator = bench.operator();
    operator.spy.answer(|_| Some((429, json!("Too many requests, please try again later."))));
    tokio::time::sleep(Duration::from_secs(8)).await;
    let asked = operator.spy.lists() + operator.spy.watches();
    // Three kinds at 0, 0.25, 0.75, 1.75, 3.75 and 7.75 s, and what was under way before.
    assert!((3..=3 * 8).contains(&asked), "{asked} requests in 8 s");
    operator.spy.answer(|_| None);
    bench.create("a", managed()).await;
    bench.until_ready("a").await;
    operator.stop().await;
}

/// As an event of the watch and as an answer to it; too old, and from a history that was taken back.
#[tokio::test]
async fn a_version_that_the_server_does_not_know_costs_one_list_and_harms_nobody() {
    for (round, (code, in_the_watch)) in
        [(410, true), (410, false), (504, true), (504, false)].into_iter().enumerate()
    {
        let Some(bench) = Bench::open("unknown-version").await else { return };
        let operator = bench.operator();
        let status = failure(code, "too old resource version, or too large", 0);
        let event = json!({"type": "ERROR", "object": status.clone()});
        let answers = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&answers);
        operator.spy.answer(move |read| {
            let watch = read.starts_with("WATCH") && read.ends_with("/proxies");
            let now = watch && left.fetch_add(1, Ordering::SeqCst) < 2;
            now.then(|| if in_the_watch { (200, event.clone()) } else { (code, status.clone()) })
        });
        with_two_ready(&bench).await;
        reached(&answers, 3).await; // the watch came back
        let lists = operator.spy.lists();
        assert!((4..=6).contains(&lists), "round {round}: {lists} lists, three at the start");
        bench.delete("goes").await;
        bench.until_gone("goes").await;
        assert!(is_ready(&bench.get("stays").await.unwrap()));
        assert_eq!(bench.cloud.born(), 2);
        operator.stop().await;
    }
}
