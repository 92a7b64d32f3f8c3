//! Two providers of one component, each with a namespace of its own, and a providers config that is edited so that
//! one of them points elsewhere.

use std::net::Ipv4Addr;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use serde_json::{Value, json};

use super::node::Node;
use super::world::World;
use crate::operator::{Bench, has_reason, is_ready, provisioned};

/// Longer than what waits for a person waits between two looks.
const A_FEW_LOOKS: Duration = Duration::from_millis(4500);

fn on(provider: &str) -> Value {
    json!({"mode": "Managed", "provider": provider})
}

async fn made(bench: &Bench, name: &str, provider: &str, node: &Node, address: Ipv4Addr) -> Proxy {
    let proxy = bench.create(name, on(provider)).await;
    node.runs(&proxy, address).await;
    bench.until_ready(name).await;
    proxy
}

#[tokio::test]
async fn pods_are_made_looked_for_and_deleted_where_their_provider_has_them_and_nowhere_else() {
    let Some(world) = World::open("pod-accounts").await else { return };
    let [north, south, east] =
        [world.node("north").await, world.node("south").await, world.node("east").await];
    let bench = &world.bench;
    let run = world.start(&[("north", &north, ""), ("south", &south, "")]).await;
    let a = made(bench, "a", "north", &north, Ipv4Addr::new(10, 1, 0, 1)).await;
    let b = made(bench, "b", "south", &south, Ipv4Addr::new(10, 1, 0, 2)).await;
    let c = made(bench, "c", "south", &south, Ipv4Addr::new(10, 1, 0, 3)).await;
    assert_eq!((north.pods().await.len(), south.pods().await.len()), (1, 2));
    let untouched = north.pod(&a).await.expect("in the namespace of its provider");

    bench.delete("b").await;
    let pod = south.until(&b, "told to go", super::node::is_going).await;
    assert!(bench.get("b").await.is_some(), "its pod is still there");
    south.confirms(&pod).await;
    bench.until_gone("b").await;
    assert_eq!(south.pods().await.len(), 1);
    run.stop().await;

    // The config of the second one points elsewhere.
    let run = world.start(&[("north", &north, ""), ("south", &east, "")]).await;
    let told = bench.until("c", "OutOfScope", |proxy| has_reason(proxy, "OutOfScope")).await;
    assert!(is_ready(&told), "it goes on: {:?}", told.status);
    let (_, message) = provisioned(&told).unwrap();
    for part in [format!("namespaces/{}", south.namespace), format!("namespaces/{}", east.namespace)] {
        assert!(message.contains(&part), "{message}");
    }
    bench.delete("c").await;
    let waits = |proxy: &Proxy| {
        let deleting = proxy.status.as_ref().is_some_and(|status| status.phase == Phase::Deleting);
        deleting && has_reason(proxy, "OutOfScope")
    };
    bench.until("c", "waiting for its namespace", waits).await;
    tokio::time::sleep(A_FEW_LOOKS).await;
    assert!(bench.get("c").await.is_some());
    let pod = south.pod(&c).await.expect("nobody deletes it from elsewhere");
    assert_eq!((pod.metadata.deletion_timestamp.as_ref(), east.pods().await.len()), (None, 0));
    run.stop().await;

    // Back, for deletions alone.
    let run = world.start(&[("north", &north, ""), ("south", &south, "mode: deleteOnly")]).await;
    let d = bench.create("d", on("south")).await;
    let told =
        bench.until("d", "ProviderUnavailable", |proxy| has_reason(proxy, "ProviderUnavailable")).await;
    assert!(provisioned(&told).unwrap().1.contains("mode: deleteOnly"), "{told:?}");
    let pod = south.until(&c, "told to go", super::node::is_going).await;
    south.confirms(&pod).await;
    // From here on it waits for the second look: this process has not seen what was made.
    bench.until("c", "rid of its pod", |proxy| has_reason(proxy, "Deleting")).await;
    assert!(south.pod(&d).await.is_none() && south.pods().await.is_empty());
    let now = north.pod(&a).await.unwrap();
    assert_eq!(now.metadata.resource_version, untouched.metadata.resource_version, "nobody touched it");
    assert!(is_ready(&bench.get("a").await.unwrap()));
    run.stop().await;
}
