//! A process that is elected and may not read Secrets: it leaves the lead to one that may.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::time::Instant;

use super::processes::external;
use super::replica::{Answering, Replica};
use crate::operator::Bench;

/// What takes seconds on a machine that is idle.
const SOON: Duration = Duration::from_secs(40);
/// A minute in which it may act, and its end.
const ENDS: Duration = Duration::from_secs(110);

/// All rights that a leader needs but for those to read Secrets.
async fn grant(bench: &Bench, user: &str) {
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": user},
        "rules": [
            {"apiGroups": ["crawl.example.com"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        ]
    }))
    .unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    }))
    .unwrap();
    let params = PostParams::default();
    Api::all(bench.client.clone()).create(&params, &role).await.unwrap();
    Api::all(bench.client.clone()).create(&params, &binding).await.unwrap();
}

#[tokio::test]
async fn a_leader_that_may_not_read_secrets_ends_after_a_minute_and_leaves_the_lead_to_another_one() {
    let Some(bench) = Bench::open("blind").await else { return };
    let proxy = Answering::start().await;
    let user = format!("half-{}", bench.namespace);
    grant(&bench, &user).await;
    let blind = Replica::start_as(&bench, "blind", &user).await;
    blind.says("elected: this process leads", SOON).await;
    let elected = Instant::now();
    let other = Replica::start(&bench, "other").await;
    bench.create("a", external(proxy.port)).await;
    other.ready().await;
    assert_eq!(other.lease().await.unwrap().0, 503, "it stands by");

    assert_eq!(blind.exit_code(ENDS).await, 1);
    assert!(elected.elapsed() > Duration::from_secs(50), "a moment without an answer is no reason");
    let log = blind.log();
    let last = log.lines().last().unwrap();
    assert!(
        last.contains("leads and cannot begin") && last.contains("the watch of secrets labelled"),
        "{log}"
    );
    assert!(!last.contains("the watch of proxies in") && last.contains("2-rbac.yaml"), "{log}");
    assert!(log.contains("gave the lead up"), "nothing of it is under way: {log}");
    other.leases(SOON).await;
    bench.until_ready("a").await;
}
