//! Deletions whose provider, Secrets or namespace went first: none hangs for ever.

use egress_proxies_core::crd::Proxy;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::cloud::Verb;
use crate::operator::{Bench, managed, provisioned};
use crate::provider::Component;

#[tokio::test]
async fn a_proxy_whose_provider_is_gone_is_let_go_without_its_machine_when_a_person_says_so() {
    let Some(bench) = Bench::open("abandon").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let ready = bench.until_ready("a").await;
    let machine = ready.status.unwrap().provider_id.unwrap();
    bench.shelf.put(Component::Failed);
    let annotation = json!({"metadata": {"annotations": {"crawl.example.com/abandon": "true"}}});
    bench.patch("a", annotation.clone()).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(bench.get("a").await.is_some(), "it counts only while the Proxy is being deleted");
    bench.patch("a", json!({"metadata": {"annotations": {"crawl.example.com/abandon": null}}})).await;

    bench.delete("a").await;
    let waits = |proxy: &Proxy| {
        let deleting = proxy.metadata.deletion_timestamp.is_some();
        deleting && provisioned(proxy).is_some_and(|(reason, _)| reason == "ProviderUnavailable")
    };
    bench.until("a", "waiting for its provider", waits).await;
    bench.patch("a", annotation).await;
    bench.until_gone("a").await;
    // Whoever still has the Proxy in a cache finds that its provider is back.
    bench.shelf.put(Component::Ready("sha256:00"));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!((bench.cloud.machines().len(), bench.cloud.count(Verb::Delete)), (1, 0));
    let told = bench.told("a").await;
    let warnings = told.iter().filter(|(_, reason, _)| reason == "Abandoned");
    let [(kind, _, note)] = warnings.collect::<Vec<_>>()[..] else { panic!("not told once: {told:?}") };
    assert_eq!(kind, "Warning");
    assert!(note.contains(&machine), "{note}");
    operator.stop().await;
}

#[tokio::test]
async fn a_proxy_that_says_abandon_is_deleted_with_its_machine_while_its_provider_works() {
    let Some(bench) = Bench::open("no-abandon").await else { return };
    let operator = bench.operator();
    let annotations = json!({"annotations": {"crawl.example.com/abandon": "true"}});
    bench.create_with("a", annotations, managed()).await;
    bench.until_ready("a").await;
    bench.delete("a").await;
    bench.until_gone("a").await;
    assert_eq!(bench.cloud.machines(), []);
    operator.stop().await;
}

#[tokio::test]
async fn a_namespace_that_is_deleted_with_all_it_holds_does_not_hang() {
    let Some(bench) = Bench::open("namespace").await else { return };
    let operator = bench.operator();
    let label = json!({"crawl.example.com/cloud-init": "true"});
    bench.secret("boot", label, json!({"text": "one"})).await;
    let with_secret = json!({
        "mode": "Managed", "provider": "fake",
        "cloudInit": {"secretRef": {"name": "boot", "key": "text"}}
    });
    for name in ["a", "b", "c"] {
        bench.create(name, with_secret.clone()).await;
    }
    bench
        .create("external", json!({"mode": "External", "endpoint": {"host": "203.0.113.9", "port": 1}}))
        .await;
    for name in ["a", "b", "c", "external"] {
        bench.until_ready(name).await;
    }
    // Nothing can be created in it from here on, Events included.
    let namespaces = Api::<Namespace>::all(bench.client.clone());
    drop(namespaces.delete(&bench.namespace, &DeleteParams::default()).await.unwrap());
    // What the namespace controller does, Secrets first.
    let secrets = Api::<Secret>::namespaced(bench.client.clone(), &bench.namespace);
    let all = (DeleteParams::default(), ListParams::default());
    drop(secrets.delete_collection(&all.0, &all.1).await.unwrap());
    drop(bench.proxies().delete_collection(&all.0, &all.1).await.unwrap());
    for name in ["a", "b", "c", "external"] {
        bench.until_gone(name).await;
    }
    assert_eq!(bench.cloud.machines(), []);
    operator.stop().await;
}
