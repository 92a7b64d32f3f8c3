//! What a Proxy refers to: Secrets that are missing, unlabelled or rotated, providers that do not exist.

use egress_proxies_core::facts::{CaPem, Fleet};
use egress_proxies_core::provider::{Failure, Reason};
use serde_json::json;

use crate::cloud::{Fault, Verb};
use crate::operator::{Bench, is_ready, managed, provisioned};

fn with_cloud_init() -> serde_json::Value {
    json!({
        "mode": "Managed", "provider": "fake",
        "cloudInit": {"secretRef": {"name": "boot", "key": "text"}}
    })
}

#[tokio::test]
async fn a_missing_secret_is_named_with_its_label_and_the_machine_is_made_once_it_is_there() {
    let Some(bench) = Bench::open("missing-secret").await else { return };
    let operator = bench.operator();
    bench.create("a", with_cloud_init()).await;
    let failed = bench.until("a", "CloudInitError", |proxy| {
        provisioned(proxy).is_some_and(|(reason, _)| reason == "CloudInitError")
    });
    let (_, message) = provisioned(&failed.await).unwrap();
    for part in ["boot", "crawl.example.com/cloud-init", "\"true\""] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(bench.cloud.born(), 0);

    // There, but without the label: it is as if it were not there, and what is said stays as it is.
    bench.secret("boot", json!({}), json!({"text": "acl all"})).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let unlabelled = provisioned(&bench.get("a").await.unwrap()).unwrap();
    assert_eq!(unlabelled, ("CloudInitError".to_owned(), message));
    assert_eq!(bench.cloud.born(), 0);

    bench
        .patch_secret("boot", json!({"metadata": {"labels": {"crawl.example.com/cloud-init": "true"}}}))
        .await;
    bench.until_ready("a").await;
    assert_eq!(bench.cloud.bootstraps(), [Some("acl all".to_owned())]);
    operator.stop().await;
}

#[tokio::test]
async fn credentials_that_cannot_be_read_are_named_with_label_or_key_until_they_can() {
    let Some(bench) = Bench::open("auth-secret").await else { return };
    let operator = bench.operator();
    let label = "crawl.example.com/proxy-auth";
    bench
        .create("a", json!({"mode": "Managed", "provider": "fake", "auth": {"secretRef": {"name": "user"}}}))
        .await;
    let failed = bench
        .until("a", "AuthError", |proxy| provisioned(proxy).is_some_and(|(reason, _)| reason == "AuthError"));
    let (_, message) = provisioned(&failed.await).unwrap();
    for part in ["Secret user", label, "\"true\"", &bench.namespace, "kubectl"] {
        assert!(message.contains(part), "{message}");
    }

    // There, but without the label: it is as if it were not there.
    bench.secret("user", json!({}), json!({"username": "ann"})).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let unlabelled = provisioned(&bench.get("a").await.unwrap()).unwrap();
    assert_eq!(unlabelled, ("AuthError".to_owned(), message));

    // With the label it is seen, and what it lacks is the key of the password.
    bench.patch_secret("user", json!({"metadata": {"labels": {label: "true"}}})).await;
    let lacking = bench.until("a", "AuthError about the key", |proxy| {
        provisioned(proxy)
            .is_some_and(|(reason, said)| reason == "AuthError" && said.contains("has no key password"))
    });
    let (_, message) = provisioned(&lacking.await).unwrap();
    assert!(message.contains("/user ") && !message.contains("ann"), "{message}");
    assert_eq!(bench.cloud.born(), 0, "no machine without the credentials that it has to ask for");

    bench.patch_secret("user", json!({"stringData": {"password": "secret"}})).await;
    bench.until_ready("a").await;
    assert_eq!(bench.cloud.born(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn rotating_the_cloud_init_secret_replaces_the_machine() {
    let Some(bench) = Bench::open("rotation").await else { return };
    let operator = bench.operator();
    let label = json!({"crawl.example.com/cloud-init": "true"});
    bench.secret("boot", label, json!({"text": "one"})).await;
    bench.create("a", with_cloud_init()).await;
    let first = bench.until_ready("a").await.status.unwrap().incarnation;
    bench.patch_secret("boot", json!({"stringData": {"text": "two"}})).await;
    let replaced = bench.until("a", "Ready with another machine", move |proxy| {
        is_ready(proxy) && proxy.status.as_ref().unwrap().incarnation != first
    });
    replaced.await;
    assert_eq!(bench.cloud.bootstraps(), [Some("one".to_owned()), Some("two".to_owned())]);
    assert_eq!(bench.cloud.most_at_once(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_secret_that_goes_away_harms_no_machine() {
    let Some(bench) = Bench::open("secret-gone").await else { return };
    let operator = bench.operator();
    bench.secret("boot", json!({"crawl.example.com/cloud-init": "true"}), json!({"text": "one"})).await;
    bench.create("a", with_cloud_init()).await;
    bench.until_ready("a").await;
    bench.patch_secret("boot", json!({"metadata": {"labels": {"crawl.example.com/cloud-init": null}}})).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(is_ready(&bench.get("a").await.unwrap()));
    assert_eq!(bench.cloud.born(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn certificates_that_cannot_be_read_any_more_are_told_to_the_probe_as_missing() {
    let Some(bench) = Bench::open("ca-secret").await else { return };
    let operator = bench.operator();
    let mut fleet = operator.fleet.clone();
    let label = "crawl.example.com/proxy-auth";
    bench.secret("ca", json!({label: "true"}), json!({"ca.crt": "PEM"})).await;
    let reference = json!({"name": "ca", "key": "ca.crt"});
    bench
        .create(
            "a",
            json!({"mode": "Managed", "provider": "fake", "healthCheck": {"caSecretRef": reference}}),
        )
        .await;
    let seen = |fleet: &Fleet| fleet.proxies.values().next()?.probe.as_ref()?.ca_pem.clone();
    let read = Some(CaPem::Read("PEM".to_owned()));
    fleet.wait_for(|fleet| seen(fleet) == read).await.unwrap();
    bench.patch_secret("ca", json!({"metadata": {"labels": {label: null}}})).await;
    let changed = fleet.wait_for(|fleet| seen(fleet) != read).await.unwrap();
    let Some(CaPem::Missing(why)) = seen(&changed) else { panic!("{:?}", seen(&changed)) };
    for part in ["Secret ca", label, &bench.namespace] {
        assert!(why.contains(part), "{why}");
    }
    drop(changed);
    operator.stop().await;
}

#[tokio::test]
async fn an_unknown_provider_is_told_with_the_names_that_are_configured() {
    let Some(bench) = Bench::open("unknown-provider").await else { return };
    let operator = bench.operator();
    bench.create("a", json!({"mode": "Managed", "provider": "azure"})).await;
    let told = bench.until("a", "ProviderUnavailable", |proxy| {
        provisioned(proxy).is_some_and(|(reason, _)| reason == "ProviderUnavailable")
    });
    let told = told.await;
    let (_, message) = provisioned(&told).unwrap();
    assert!(message.contains("azure") && message.contains("fake"), "{message}");
    assert_eq!(told.metadata.finalizers, None, "nothing was made that would have to be cleaned up");
    bench.delete("a").await;
    bench.until_gone("a").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_proxy_that_is_edited_to_another_port_gets_another_machine() {
    let Some(bench) = Bench::open("edited").await else { return };
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let first = bench.until_ready("a").await.status.unwrap().incarnation;
    bench.patch("a", json!({"spec": {"port": 8888}})).await;
    bench
        .until("a", "Ready with another machine", move |proxy| {
            is_ready(proxy) && proxy.status.as_ref().unwrap().incarnation != first
        })
        .await;
    assert_eq!(bench.cloud.most_at_once(), 1);
    assert_eq!(bench.cloud.machines().len(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_lack_of_quota_is_told_and_tried_again() {
    let Some(bench) = Bench::open("quota").await else { return };
    let full = Failure::new(Reason::Quota, "the account may have 8 machines and has 8");
    bench.cloud.next(Verb::Create, Fault::Refuse(full));
    let operator = bench.operator();
    bench.create("a", managed()).await;
    let told = bench.until("a", "QuotaExceeded", |proxy| {
        provisioned(proxy).is_some_and(|(reason, _)| reason == "QuotaExceeded")
    });
    assert!(provisioned(&told.await).unwrap().1.contains("8 machines"));
    bench.until_ready("a").await;
    assert_eq!(bench.cloud.born(), 1);
    operator.stop().await;
}
