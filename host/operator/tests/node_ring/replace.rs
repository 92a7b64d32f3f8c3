//! Machines that vanish and specs that change.

use serde_json::Value;

use super::cluster::wait_for;
use super::operator::{Namespace, PODS, ring};

fn secret(space: &Namespace, text: &str) {
    space.ring.cluster.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: extra\n  namespace: {}\n  labels: {{ crawl.example.com/cloud-init: \"true\" }}\nstringData:\n  squid.conf: |\n    {text}\n",
        space.name
    ));
}

fn wait_for_another(space: &Namespace, name: &str, before: &Value) -> Value {
    wait_for("another machine is Ready", || {
        let proxy = space.get(name);
        let ready = super::cluster::condition(&proxy, "Ready").0 == "True";
        if ready && proxy["status"]["incarnation"] != before["status"]["incarnation"] {
            Ok(proxy)
        } else {
            Err(proxy["status"].to_string())
        }
    })
}

#[test]
fn a_pod_deleted_by_hand_comes_back_and_the_new_address_is_reported() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("vanished");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n");
    let before = space.wait("one", "Ready", "True");
    let uid = before["metadata"]["uid"].as_str().expect("a uid");
    ring.cluster.kubectl(&["-n", PODS, "delete", "pod", &format!("px-{uid}")]);
    let after = wait_for_another(&space, "one", &before);
    let pod = ring.pod(&after).expect("a new pod");
    assert_eq!(after["status"]["ip"], pod["status"]["podIP"]);
    assert_eq!(after["status"]["incarnation"], pod["metadata"]["uid"]);
}

#[test]
fn a_rotated_cloud_init_secret_makes_a_new_machine_and_an_attribute_does_not() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("rotated");
    secret(&space, "via off");
    let spec = "  mode: Managed\n  provider: kubernetes\n  cloudInit: { secretRef: { name: extra, key: squid.conf } }\n";
    space.proxy("one", spec);
    let before = space.wait("one", "Ready", "True");

    space.proxy("one", &format!("{spec}  attributes: {{ colour: blue }}\n"));
    wait_for("the edit is observed", || {
        let proxy = space.get("one");
        let seen = proxy["status"]["observedGeneration"] == proxy["metadata"]["generation"];
        if seen { Ok(()) } else { Err(proxy["status"].to_string()) }
    });
    assert_eq!(space.get("one")["status"]["incarnation"], before["status"]["incarnation"]);

    secret(&space, "forwarded_for delete");
    wait_for_another(&space, "one", &before);
}

#[test]
fn a_missing_secret_is_named_with_the_label_that_it_needs() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("no-secret");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n  cloudInit: { secretRef: { name: extra, key: squid.conf } }\n");
    let proxy = space.wait("one", "Provisioned", "False");
    let (_, reason, message) = super::cluster::condition(&proxy, "Provisioned");
    assert_eq!(reason, "CloudInitError");
    assert!(message.contains("extra") && message.contains("crawl.example.com/cloud-init"), "{message}");
    // It goes on by itself as soon as the Secret is there.
    secret(&space, "via off");
    space.wait("one", "Ready", "True");
}
