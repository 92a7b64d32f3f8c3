//! The rights in `deploy/base` are those that the operator uses: no call is missing, none is granted for nothing.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::operator::{Bench, merge};
use crate::spy::Right;

/// Used elsewhere than in the lifecycle, or kept on purpose; the file says why.
const OTHERS: &[(&str, &str, &str)] = &[
    ("", "namespaces", "get"),
    ("", "services", "get"),
    ("discovery.k8s.io", "endpointslices", "get"),
    ("crawl.example.com", "proxies/finalizers", "update"),
];

/// What the operator's own ClusterRole grants.
fn granted() -> BTreeSet<Right> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/base/2-rbac.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    let mut roles = documents.filter(|document| document["kind"] == "ClusterRole");
    let role = roles.next().unwrap();
    assert!(roles.next().is_none(), "one ClusterRole");
    let words = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut found = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    found.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    found
}

#[tokio::test]
async fn the_rights_of_the_operator_are_those_that_it_uses() {
    let Some(bench) = Bench::open("rights").await else { return };
    let operator = bench.operator();
    // A write that meets another version is followed by a live read.
    let theirs = json!({"metadata": {"labels": {"team": "x"}}});
    operator.spy.before("/proxies/a/status", merge(bench.proxies(), "a".to_owned(), theirs));
    bench.secret("boot", json!({"crawl.example.com/cloud-init": "true"}), json!({"text": "one"})).await;
    let cloud_init = json!({"secretRef": {"name": "boot", "key": "text"}});
    bench.create("a", json!({"mode": "Managed", "provider": "fake", "cloudInit": cloud_init})).await;
    bench.until_ready("a").await;
    bench.delete("a").await;
    bench.until_gone("a").await;
    let mut used = operator.spy.rights();
    operator.stop().await;
    used.extend(
        OTHERS
            .iter()
            .map(|(group, resource, verb)| ((*group).to_owned(), (*resource).to_owned(), (*verb).to_owned())),
    );
    assert_eq!(used, granted());
}
