//! A node that is lost: its pods are told to go, and nobody can say that they have gone. No second machine beside one
//! that may live; the Proxy says why; it goes on when the pod is gone.

use std::net::Ipv4Addr;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use egress_proxies_core::lifecycle::Policy;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::Instant;

use super::node::{NODE, Node, is_going};
use super::world::{World, writes_nothing_for};
use crate::operator::{has_reason, is_ready, provisioned, quick};

/// The controller that watches nodes says that this one does not report.
async fn lose(node: &Node, pod: &Pod) {
    let lost = json!({"conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    ]});
    node.reports(pod, lost).await;
}

fn hidden(proxy: &Proxy) -> bool {
    proxy.status.as_ref().is_some_and(|status| status.ip.is_none()) && !is_ready(proxy)
}

/// The very pod is there, told to go with the time that it was given, and it is the only one.
async fn is_left_alone(node: &Node, proxy: &Proxy, pod: &Pod) {
    let now = node.pod(proxy).await.expect("nobody has confirmed that it has gone");
    assert_eq!(now.metadata.uid, pod.metadata.uid);
    assert_eq!(now.metadata.deletion_grace_period_seconds, pod.metadata.deletion_grace_period_seconds);
    assert!(now.metadata.deletion_grace_period_seconds > Some(0), "it is not forced away");
}

#[tokio::test]
async fn a_pod_on_a_lost_node_is_waited_for_and_nothing_is_made_beside_it() {
    let Some(world) = World::open("lost-node").await else { return };
    let node = world.node("lost-node-pods").await;
    let run = world.start(&[("pods", &node, "")]).await;
    let bench = &world.bench;
    let mut pods = Vec::new();
    for (number, name) in (1..).zip(["goes-on", "deleted"]) {
        let proxy = bench.create(name, json!({"mode": "Managed", "provider": "pods"})).await;
        node.runs(&proxy, Ipv4Addr::new(10, 1, 0, number)).await;
        bench.until_ready(name).await;
        pods.push(proxy);
    }
    let [goes_on, deleted] = &pods[..] else { panic!("two") };

    // The node does not report: nobody knows whether they live.
    let says_lost = |proxy: &Proxy| {
        let told = provisioned(proxy).unwrap_or_default();
        hidden(proxy) && told.1.contains(&format!("node {NODE} does not report"))
    };
    for (name, proxy) in [("goes-on", goes_on), ("deleted", deleted)] {
        lose(&node, &node.pod(proxy).await.unwrap()).await;
        bench.until(name, "hidden, for its node does not report", says_lost).await;
        assert!(!is_going(&node.pod(proxy).await.unwrap()), "it may come back");
    }

    // They are told to go, and no kubelet confirms.
    for proxy in [goes_on, deleted] {
        node.deletes(&node.pod(proxy).await.unwrap()).await;
    }
    let stuck = [node.pod(goes_on).await.unwrap(), node.pod(deleted).await.unwrap()];
    assert!(stuck.iter().all(is_going), "the API server keeps a pod that has a node");
    bench.until("goes-on", "Replacing", |proxy| has_reason(proxy, "Replacing") && says_lost(proxy)).await;
    bench.delete("deleted").await;
    let deleting = |proxy: &Proxy| proxy.status.as_ref().is_some_and(|it| it.phase == Phase::Deleting);
    bench.until("deleted", "Deleting", deleting).await;
    writes_nothing_for(bench, &["goes-on", "deleted"], Duration::from_secs(3)).await;
    is_left_alone(&node, goes_on, &stuck[0]).await;
    is_left_alone(&node, deleted, &stuck[1]).await;
    // Somebody says that this one is gone.
    node.confirms(&stuck[1]).await;
    bench.until_gone("deleted").await;
    is_left_alone(&node, goes_on, &stuck[0]).await;
    run.stop().await;

    // Nor does a process that knows nothing of all that make one.
    let run = world.start(&[("pods", &node, "")]).await;
    bench.until("goes-on", "Replacing", |proxy| has_reason(proxy, "Replacing") && hidden(proxy)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    is_left_alone(&node, goes_on, &stuck[0]).await;

    // The node is back.
    node.confirms(&stuck[0]).await;
    let next = node.runs(goes_on, Ipv4Addr::new(10, 2, 0, 1)).await;
    assert_ne!(next.metadata.uid, stuck[0].metadata.uid);
    let ready = bench.until_ready("goes-on").await.status.unwrap();
    assert_eq!((ready.ip.as_deref(), ready.incarnation), (Some("10.2.0.1"), next.metadata.uid));
    assert_eq!(node.pods().await.len(), 1);
    run.stop().await;
}

#[tokio::test]
async fn a_pod_that_no_kubelet_confirms_is_forced_away_two_minutes_after_its_time_and_made_anew() {
    let Some(world) = World::open("never-confirmed").await else { return };
    let node = world.node("never-confirmed-pods").await;
    let policy = Policy { delete_repeat: Duration::from_secs(5), ..quick() };
    let run = world.start_with(&[("pods", &node, "")], policy).await;
    let proxy = world.bench.create("a", json!({"mode": "Managed", "provider": "pods"})).await;
    let pod = node.runs(&proxy, Ipv4Addr::new(10, 1, 0, 1)).await;
    world.bench.until_ready("a").await;
    lose(&node, &pod).await;
    let told = Instant::now();
    node.deletes_within(&pod, Some(1)).await;
    let next = loop {
        match node.pod(&proxy).await {
            Some(next) if next.metadata.uid != pod.metadata.uid => break next,
            Some(_) | None => tokio::time::sleep(Duration::from_millis(250)).await,
        }
        assert!(told.elapsed() < Duration::from_mins(4), "it waits for ever");
    };
    assert!(
        told.elapsed() >= Duration::from_mins(2),
        "after {:?} its node may still come back",
        told.elapsed()
    );
    assert!(!is_going(&next));
    node.runs(&proxy, Ipv4Addr::new(10, 2, 0, 1)).await;
    let ready = world.bench.until_ready("a").await.status.unwrap();
    assert_eq!(ready.incarnation, next.metadata.uid);
    run.stop().await;
}
