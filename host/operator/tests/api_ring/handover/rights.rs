//! The rights that `deploy/base` gives the operator, tried by its ServiceAccount: they are enough to lead, on
//! the Lease of the usual name and on no other.

use std::time::Duration;

use egress_proxies_core::leader::Timing;
use egress_proxies_operator::clock::BootClock;
use egress_proxies_operator::kubernetes_client;
use egress_proxies_operator::leader::{Election, ElectionSetup};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::contender::{config, link};
use crate::support::api_server::ApiServer;

const SYSTEM: &str = "egress-proxies-operator-system";
const NAME: &str = "egress-proxies-operator";

/// The objects of this kind in `deploy/base` that are about the election.
fn objects<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    let text = include_str!("../../../../../deploy/base/2-rbac.yaml");
    let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    let ours = documents.filter(|object| object["kind"] == kind && object["metadata"]["namespace"] == SYSTEM);
    ours.map(|object| serde_json::from_value(object).unwrap()).collect()
}

async fn install(client: &Client) {
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(SYSTEM.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let params = PostParams::default();
    Api::all(client.clone()).create(&params, &namespace).await.unwrap();
    let (roles, bindings) = (objects::<Role>("Role"), objects::<RoleBinding>("RoleBinding"));
    assert_eq!((roles.len(), bindings.len()), (1, 1));
    for role in roles {
        Api::namespaced(client.clone(), SYSTEM).create(&params, &role).await.unwrap();
    }
    for binding in bindings {
        Api::namespaced(client.clone(), SYSTEM).create(&params, &binding).await.unwrap();
    }
}

fn candidate(config: Config, name: &str) -> Election {
    Election::new(ElectionSetup {
        client: kubernetes_client::client(config).unwrap(),
        namespace: SYSTEM.to_owned(),
        name: name.to_owned(),
        identity: "candidate".to_owned(),
        timing: Timing::default(),
        clock: BootClock::start(),
    })
}

/// Whether it is elected, and then renews at least once.
async fn leads(election: &mut Election) -> bool {
    let leadership = election.leadership();
    let time = tokio::time::sleep(Duration::from_secs(12));
    tokio::select! {
        _error = election.run() => false,
        () = time => *leadership.elected.borrow() && (leadership.may_act)(),
    }
}

#[tokio::test]
async fn the_rights_of_the_manifests_are_enough_to_lead_by_the_usual_lease_and_by_no_other() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client();
    install(&client).await;
    let link = link().await;
    let mut config = config(&link).await;
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{SYSTEM}:{NAME}"));
    let mut usual = candidate(config.clone(), NAME);
    let mut other = candidate(config, "other");
    assert_eq!(tokio::join!(leads(&mut usual), leads(&mut other)), (true, false));
    usual.release().await;
    let leases = Api::<Lease>::namespaced(client, SYSTEM);
    let lease = leases.get(NAME).await.unwrap().spec.unwrap();
    assert_eq!((lease.holder_identity, lease.lease_transitions), (None, Some(0)));
    assert!(lease.renew_time > lease.acquire_time, "it was renewed");
}
