//! Pods that come to an end by themselves, as their kubelet reports it: hidden at once, with the kubelet's words, and
//! made anew when they are gone.

use std::net::Ipv4Addr;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use serde_json::{Value, json};

use super::node::{Node, container, is_going};
use super::world::{World, writes_nothing_for};
use crate::operator::{Bench, has_reason, is_ready, provisioned};

fn on_pods() -> Value {
    json!({"mode": "Managed", "provider": "pods"})
}

/// What the kubelet writes of a pod that it threw out, or never took; what of it has to stand in the Proxy.
fn endings() -> [(&'static str, Value, &'static str); 3] {
    let dead =
        container(false, &json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}));
    [
        (
            "evicted",
            json!({
                "phase": "Failed", "reason": "Evicted", "containerStatuses": [dead],
                "message": "The node was low on resource: memory.",
                "conditions": [{
                    "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"
                }]
            }),
            "Evicted The node was low on resource: memory.",
        ),
        (
            "failed",
            json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}),
            "OutOfcpu Node didn't have enough resource: cpu",
        ),
        ("shut-down", json!({"phase": "Succeeded", "containerStatuses": [dead]}), "the pod has ended"),
    ]
}

#[tokio::test]
async fn a_pod_that_ended_is_hidden_with_the_kubelets_words_and_made_anew_when_it_is_gone() {
    let Some(world) = World::open("pod-ends").await else { return };
    let node = world.node("pod-ends-pods").await;
    let run = world.start(&[("pods", &node, "")]).await;
    let bench = &world.bench;
    for (number, (name, report, words)) in (1..).zip(endings()) {
        let proxy = bench.create(name, on_pods()).await;
        let pod = node.runs(&proxy, Ipv4Addr::new(10, 1, 0, number)).await;
        let ready = bench.until_ready(name).await;
        assert_eq!(ready.status.unwrap().ip, Some(format!("10.1.0.{number}")));

        // Its object stays for a while, so that what comes before the next one can be seen.
        node.holds(&pod, true).await;
        node.reports(&pod, report).await;
        node.until(&proxy, "being deleted", is_going).await;
        let hidden = bench.get(name).await.unwrap();
        let told = provisioned(&hidden).unwrap();
        assert!(told.0 == "Replacing" && told.1.contains(words), "{name}: {told:?}");
        let status = hidden.status.unwrap();
        assert_eq!((status.phase, status.ip), (Phase::Replacing, None), "hidden before it was deleted");
        let settled = |proxy: &Proxy| {
            let (_, message) = provisioned(proxy).unwrap();
            message.starts_with("the machine is being deleted") && message.contains(words)
        };
        bench.until(name, "waiting for it to be gone", settled).await;
        waits(bench, &node, name, &proxy).await;
        let events = bench.until_told(name, "Replacing").await;
        let replacing =
            events.iter().filter(|(_, reason, note)| reason == "Replacing" && note.contains(words));
        assert_eq!(replacing.count(), 1, "{name}: {events:#?}");

        node.holds(&pod, false).await;
        let next = node.runs(&proxy, Ipv4Addr::new(10, 2, 0, number)).await;
        assert_ne!(next.metadata.uid, pod.metadata.uid);
        let again = bench.until(name, "Ready with another pod", |proxy| {
            let incarnation = proxy.status.as_ref().and_then(|status| status.incarnation.as_ref());
            is_ready(proxy) && incarnation == next.metadata.uid.as_ref()
        });
        assert_eq!(again.await.status.unwrap().ip, Some(format!("10.2.0.{number}")));
    }
    run.stop().await;
}

/// While the pod is there nothing is made, and nothing is written either.
async fn waits(bench: &Bench, node: &Node, name: &str, proxy: &Proxy) {
    let pod = node.pod(proxy).await.unwrap();
    writes_nothing_for(bench, &[name], Duration::from_secs(1)).await;
    let now = node.pod(proxy).await.unwrap();
    assert_eq!(now.metadata.uid, pod.metadata.uid);
}

#[tokio::test]
async fn an_image_that_is_not_there_is_named_and_another_one_in_the_spec_mends_it() {
    let Some(world) = World::open("pod-image").await else { return };
    let node = world.node("pod-image-pods").await;
    let run = world.start(&[("pods", &node, "")]).await;
    let bench = &world.bench;
    let proxy = bench.create("a", on_pods()).await;
    let pod = node.until(&proxy, "made", |_| true).await;
    let waiting = |reason: &str, message: &str| {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        json!({"phase": "Pending", "containerStatuses": [container(false, &state)]})
    };
    node.reports(&pod, waiting("ErrImagePull", "rpc error: code = NotFound")).await;
    let names = |proxy: &Proxy| {
        let (reason, message) = provisioned(proxy).unwrap_or_default();
        reason == "Provisioning" && message.contains("registry.invalid/squid:1 cannot be pulled")
    };
    bench.until("a", "telling which image", names).await;
    // Other words for the same are no news.
    let writes = run.operator.spy.proxy_writes().len();
    for (reason, message) in [("ImagePullBackOff", "Back-off pulling image"), ("ErrImagePull", "i/o timeout")]
    {
        node.reports(&pod, waiting(reason, message)).await;
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    assert_eq!(run.operator.spy.proxy_writes().len(), writes);
    assert_eq!(
        node.pod(&proxy).await.unwrap().metadata.uid,
        pod.metadata.uid,
        "it is not made again and again"
    );

    bench.patch("a", json!({"spec": {"placement": {"image": "registry.invalid/squid:2"}}})).await;
    let image = |pod: &k8s_openapi::api::core::v1::Pod| pod.spec.clone().unwrap().containers[0].image.clone();
    let next = node.until(&proxy, "made from the other image", |pod| {
        image(pod).as_deref() == Some("registry.invalid/squid:2")
    });
    assert_ne!(next.await.metadata.uid, pod.metadata.uid);
    node.runs(&proxy, Ipv4Addr::new(10, 1, 0, 1)).await;
    let ready = bench.until_ready("a").await;
    assert!(has_reason(&ready, "Created"));
    assert_eq!(node.pods().await.len(), 1);
    run.stop().await;
}
