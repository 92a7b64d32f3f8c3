//! The API server and etcd are killed and come back.

use std::time::Duration;

use tokio::time::Instant;

use super::relay::Relay;
use super::{stays_ready, with_two_ready};
use crate::cloud::Verb;
use crate::operator::{Bench, is_ready, managed};
use crate::support::api_server::ApiServer;

/// The longest wait between two tries of a watch is 30 s.
const CAUGHT_UP: Duration = Duration::from_secs(40);

#[tokio::test]
async fn a_restarted_api_server_that_forgot_the_version_is_listed_once_and_no_deletion_is_missed() {
    let Some(server) = ApiServer::start().await else { return };
    let relay = Relay::to(&server.url).await;
    let bench = Bench::on(&server, "forgot").await.through(relay.address());
    let operator = bench.operator();
    with_two_ready(&bench).await;
    relay.refuse();
    bench.delete("goes").await;
    bench.create("comes", managed()).await;
    // A new server starts its history with what it reads: the version that the operator goes on from is gone.
    server.kill_api();
    server.start_api().await;
    let (lists, writes) = (operator.spy.lists(), operator.spy.proxy_writes().len());
    relay.admit();
    let caught_up = async {
        bench.until_gone("goes").await;
        bench.until_ready("comes").await;
    };
    tokio::select! {
        () = caught_up => {}
        () = stays_ready(&bench, "stays") => unreachable!(),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lists = operator.spy.lists() - lists;
    assert!((1..=3).contains(&lists), "{lists} lists of three kinds");
    let unchanged: Vec<_> = operator.spy.proxy_writes().split_off(writes);
    assert!(!unchanged.iter().any(|write| write.contains("/stays")), "{unchanged:?}");
    assert_eq!((bench.cloud.born(), bench.cloud.machines().len()), (3, 2));
    operator.stop().await;
}

#[tokio::test]
async fn an_api_server_or_an_etcd_that_is_killed_and_comes_back_is_worked_with_again() {
    let Some(server) = ApiServer::start().await else { return };
    let bench = Bench::on(&server, "killed").await;
    let operator = bench.operator();
    with_two_ready(&bench).await;
    let writes = operator.spy.proxy_writes().len();

    server.kill_api();
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.start_api().await;
    let back = Instant::now();
    bench.create("one", managed()).await;
    bench.until_ready("one").await;
    let after_api = back.elapsed();

    server.kill_etcd();
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.start_etcd().await;
    let back = Instant::now();
    create_when_it_can(&bench, "two").await;
    bench.until_ready("two").await;
    let after_etcd = back.elapsed();

    bench.delete("goes").await;
    bench.until_gone("goes").await;
    assert!(after_api < CAUGHT_UP, "{after_api:?} after the API server");
    assert!(after_etcd < CAUGHT_UP, "{after_etcd:?} after etcd");
    assert!(is_ready(&bench.get("stays").await.unwrap()));
    let of_others: Vec<_> = operator.spy.proxy_writes().split_off(writes);
    assert!(!of_others.iter().any(|write| write.contains("/stays")), "{of_others:?}");
    assert_eq!(
        (bench.cloud.born(), bench.cloud.count(Verb::Create), bench.cloud.machines().len()),
        (4, 4, 3)
    );
    operator.stop().await;
}

/// The API server may need a moment until it talks to its etcd again.
async fn create_when_it_can(bench: &Bench, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let proxy = serde_json::from_value(serde_json::json!({
        "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
        "metadata": {"name": name}, "spec": managed()
    }))
    .unwrap();
    while let Err(error) = bench.proxies().create(&kube::api::PostParams::default(), &proxy).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
