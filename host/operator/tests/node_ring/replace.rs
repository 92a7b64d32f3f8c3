//! Machines that vanish and specs that change.

use serde_json::Value;

use super::cluster::{condition, curl, wait_for};
use super::operator::{Namespace, PODS, ring};

/// Credentials and a configuration of one's own, as users find them.
const SAMPLE: &str = include_str!("../../../../deploy/samples/proxy-with-secrets.yaml");

/// A Secret of cloud-init, with these lines as its `squid.conf`.
fn secret(space: &Namespace, name: &str, lines: &[&str]) {
    space.ring.cluster.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  namespace: {}\n  labels: {{ crawl.example.com/cloud-init: \"true\" }}\nstringData:\n  squid.conf: |\n    {}\n",
        space.name,
        lines.join("\n    ")
    ));
}

/// The status of a page behind the probes' one, fetched through a Proxy of the sample.
fn fetched(proxy: &Value, page: &str) -> u16 {
    let address = proxy["status"]["ip"].as_str().expect("an address");
    let answer = curl(&["-x", &format!("http://crawler:change-me@{address}:3128"), page]);
    assert_ne!(answer.status, 0, "{page}: {}", answer.body);
    answer.status
}

#[test]
fn a_pod_deleted_by_hand_comes_back_and_the_new_address_is_reported() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("vanished");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n");
    let before = space.wait("one", "Ready", "True");
    let uid = before["metadata"]["uid"].as_str().expect("a uid");
    ring.cluster.kubectl(&["-n", PODS, "delete", "pod", &format!("px-{uid}")]);
    let after = space.wait_for_another("one", &before);
    let pod = ring.pod(&after).expect("a new pod");
    assert_eq!(after["status"]["ip"], pod["status"]["podIP"]);
    assert_eq!(after["status"]["incarnation"], pod["metadata"]["uid"]);
}

#[test]
fn a_rotated_cloud_init_secret_makes_a_new_machine_and_an_attribute_does_not() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("rotated");
    let sample = SAMPLE.replace("namespace: default", &format!("namespace: {}", space.name));
    ring.cluster.apply(&sample);
    let before = space.wait("proxy-with-secrets", "Ready", "True");
    // What the sample refuses, Squid refuses; the rest is fetched.
    let pages = ["big.iso", "status/418"].map(|path| format!("{}{path}", ring.page));
    assert_eq!(pages.each_ref().map(|page| fetched(&before, page)), [403, 418]);

    ring.cluster.apply(&sample.replace("maxLeases: 4", "maxLeases: 4\n  attributes: { colour: blue }"));
    wait_for("the edit is observed", || {
        let proxy = space.get("proxy-with-secrets");
        let seen = proxy["metadata"]["generation"] != before["metadata"]["generation"]
            && proxy["status"]["observedGeneration"] == proxy["metadata"]["generation"];
        if seen { Ok(()) } else { Err(proxy["status"].to_string()) }
    });
    let edited = space.get("proxy-with-secrets");
    assert_eq!(edited["status"]["incarnation"], before["status"]["incarnation"]);

    secret(&space, "squid-extra", &["acl teapots urlpath_regex ^/status/418$", "http_access deny teapots"]);
    let after = space.wait_for_another("proxy-with-secrets", &before);
    assert_eq!(pages.each_ref().map(|page| fetched(&after, page)), [404, 403]);
    assert!(!ring.log_text().contains("teapots"), "the operator logged a cloud-init text");
}

#[test]
fn a_missing_secret_is_named_with_the_label_that_it_needs() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("no-secret");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n  cloudInit: { secretRef: { name: extra, key: squid.conf } }\n");
    let proxy = space.wait("one", "Provisioned", "False");
    let (_, reason, message) = condition(&proxy, "Provisioned");
    assert_eq!(reason, "CloudInitError");
    assert!(message.contains("extra") && message.contains("crawl.example.com/cloud-init"), "{message}");
    // It goes on by itself as soon as the Secret is there.
    secret(&space, "extra", &["connect_timeout 5 seconds"]);
    space.wait("one", "Ready", "True");
}
