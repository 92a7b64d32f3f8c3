//! Connections that died: without a word, or all at once.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::relay::Relay;
use super::{stays_ready, with_two_ready};
use crate::operator::{Bench, is_ready, managed};
use crate::support::api_server::ApiServer;

/// A watch lasts 60 s, and 5 s more without a sign of life; then a request or two may be tried on
/// connections that died as well, 10 s each.
const NOTICED: Duration = Duration::from_secs(60 + 5 + 2 * 10 + 5);

#[tokio::test]
async fn connections_that_died_without_a_word_are_noticed_and_what_they_missed_is_made_good() {
    let Some(server) = ApiServer::shared().await else { return };
    let relay = Relay::to(&server.url).await;
    let bench = Bench::on(server, "half-open").await.through(relay.address());
    let operator = bench.operator();
    with_two_ready(&bench).await;
    let lists = operator.spy.lists();
    relay.forget_all();
    let forgotten = Instant::now();
    bench.delete("goes").await;
    bench.create("comes", managed()).await;
    let caught_up = async {
        let deadline = forgotten + NOTICED;
        loop {
            let gone = bench.get("goes").await.is_none();
            let come = bench.get("comes").await.is_some_and(|proxy| is_ready(&proxy));
            if gone && come {
                return;
            }
            assert!(Instant::now() < deadline, "not noticed in time: gone {gone}, come {come}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = caught_up => {}
        () = stays_ready(&bench, "stays") => unreachable!(),
    }
    assert_eq!(operator.spy.lists(), lists, "the watches go on from where they were");
    assert_eq!((bench.cloud.born(), bench.cloud.machines().len()), (3, 2));
    operator.stop().await;
}

#[tokio::test]
async fn connections_that_are_closed_again_and_again_cost_a_few_watches_and_no_list() {
    let Some(server) = ApiServer::shared().await else { return };
    let relay = Relay::to(&server.url).await;
    let bench = Bench::on(server, "closed").await.through(relay.address());
    let operator = bench.operator();
    with_two_ready(&bench).await;
    let (lists, watches) = (operator.spy.lists(), operator.spy.watches());
    let writes = operator.spy.proxy_writes().len();
    let closed = async {
        for _ in 0..4 {
            relay.close_all();
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    tokio::select! {
        () = closed => {}
        () = stays_ready(&bench, "stays") => unreachable!(),
    }
    bench.create("comes", managed()).await;
    bench.until_ready("comes").await;
    assert_eq!(operator.spy.lists(), lists);
    let watches = operator.spy.watches() - watches;
    assert!((3..=3 * 6).contains(&watches), "{watches} watches of three kinds after four breaks");
    let of_others: Vec<_> = operator.spy.proxy_writes().split_off(writes);
    assert!(of_others.iter().all(|write| write.contains("/comes")), "{of_others:?}");
    operator.stop().await;
}

#[tokio::test]
async fn while_nobody_gets_through_few_requests_are_tried_and_then_all_is_well_again() {
    let Some(server) = ApiServer::shared().await else { return };
    let relay = Relay::to(&server.url).await;
    let bench = Bench::on(server, "refused").await.through(relay.address());
    let operator = bench.operator();
    with_two_ready(&bench).await;
    let opened = relay.opened();
    relay.refuse();
    bench.delete("goes").await;
    bench.create("comes", managed()).await;
    let away = tokio::time::sleep(Duration::from_secs(8));
    tokio::select! {
        () = away => {}
        () = stays_ready(&bench, "stays") => unreachable!(),
    }
    // Three watches at 0, 0.25, 0.75, 1.75, 3.75 and 7.75 s.
    let tries = relay.opened() - opened;
    assert!((3..=3 * 7).contains(&tries), "{tries} connections in 8 s");
    relay.admit();
    bench.until_gone("goes").await;
    bench.until_ready("comes").await;
    assert!(is_ready(&bench.get("stays").await.unwrap()));
    assert_eq!((bench.cloud.born(), bench.cloud.machines().len()), (3, 2));
    operator.stop().await;
}

#[tokio::test]
async fn an_object_applied_anew_under_its_name_while_nobody_looked_is_another_one() {
    let Some(server) = ApiServer::shared().await else { return };
    let relay = Relay::to(&server.url).await;
    let bench = Bench::on(server, "anew").await.through(relay.address());
    let operator = bench.operator();
    let at = |host: &str| json!({"mode": "External", "endpoint": {"host": host, "port": 8080}});
    let first = bench.create("a", at("192.0.2.1")).await.metadata.uid.unwrap();
    bench.until_ready("a").await;
    relay.refuse();
    bench.delete("a").await;
    bench.until_gone("a").await;
    let second = bench.create("a", at("192.0.2.2")).await.metadata.uid.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    relay.admit();
    bench.until_ready("a").await;
    let fleet = operator.fleet.borrow().clone();
    let known: Vec<_> = fleet.proxies.iter().map(|(uid, facts)| (uid.as_str(), &facts.machine)).collect();
    let [(uid, Some(machine))] = known.as_slice() else { panic!("{known:?} after {first}") };
    assert_eq!((*uid, machine.address.as_str()), (second.as_str(), "192.0.2.2"));
    operator.stop().await;
}
