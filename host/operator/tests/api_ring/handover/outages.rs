//! etcd and kube-apiserver are killed and come back, for one process of the built binary: what each restart of a
//! control plane is to it.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::alone::{PAUSES, RESUMES, SOON, lists_as_healthy, long_lease};
use super::processes::external;
use super::replica::{Answering, Replica};
use crate::operator::Bench;
use crate::support::api_server::ApiServer;

#[tokio::test]
async fn an_etcd_or_an_api_server_that_is_killed_and_comes_back_costs_no_restart_and_no_lease() {
    let Some(server) = ApiServer::start().await else { return };
    let bench = Bench::on(&server, "control-plane").await;
    let proxy = Answering::start().await;
    let operator = Replica::start(&bench, "operator").await;
    bench.create("a", external(proxy.port)).await;
    bench.until_ready("a").await;
    let lease = long_lease(&operator).await;
    let (pid, before) = (operator.pid(), bench.get("a").await.unwrap());
    let renew = format!("/v1/leases/{lease}/renew");
    for (number, etcd) in [(1, true), (2, false)] {
        // A machine that is busy elsewhere may have paused it before.
        let before = operator.said(PAUSES);
        if etcd {
            server.kill_etcd();
        } else {
            server.kill_api();
        }
        operator.says_again(PAUSES, before, SOON).await;
        sleep(Duration::from_secs(5)).await;
        lists_as_healthy(&operator, "a").await;
        let refused = async || (operator.lease().await?.0 == 503).then_some(());
        operator.until("it gives no lease", SOON, refused).await;
        let (paused, resumed) = (operator.said(PAUSES), operator.said(RESUMES));
        assert!(resumed < paused, "{}", operator.log());
        if etcd {
            server.start_etcd().await;
        } else {
            server.start_api().await;
        }
        operator.says_again(RESUMES, resumed, SOON).await;
        let body = json!({"ttlSeconds": 600}).to_string();
        let renewed = async || (operator.api("POST", &renew, &body).await?.0 == 200).then_some(());
        operator.until("it has kept its lease", SOON, renewed).await;
        let name = format!("after-{number}");
        bench.create(&name, external(proxy.port)).await;
        bench.until_ready(&name).await;
    }
    operator.leases(SOON).await;
    assert_eq!(bench.get("a").await.unwrap(), before, "what is as it was needs no write");
    assert_eq!((operator.pid(), operator.has_ended()), (pid, None));
}

#[tokio::test]
async fn an_etcd_that_is_restored_from_a_backup_ends_the_leader_and_the_next_one_knows_nothing_of_the_lost_time()
 {
    let Some(server) = ApiServer::start().await else { return };
    let bench = Bench::on(&server, "restored").await;
    let proxy = Answering::start().await;
    let operator = Replica::start(&bench, "operator").await;
    bench.create("a", external(proxy.port)).await;
    bench.until_ready("a").await;
    server.save().await;
    operator.leases(SOON).await;
    bench.create("lost", external(proxy.port)).await;
    bench.until_ready("lost").await;
    // It has renewed its Lease since.
    sleep(Duration::from_secs(5)).await;

    server.restore().await;
    assert_eq!(operator.exit_code(SOON).await, 1, "{}", operator.log());
    assert!(operator.log().contains("etcd was restored from a backup"), "{}", operator.log());

    let next = Replica::start(&bench, "next").await;
    next.leases(SOON).await;
    lists_as_healthy(&next, "a").await;
    let (_, list) = next.list().await.unwrap();
    assert!(!list.contains("/lost\""), "{list}");
    bench.delete("a").await;
    bench.until_gone("a").await;
}
