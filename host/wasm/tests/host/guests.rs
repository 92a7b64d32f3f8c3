//! Real guests, where they have been built: `EPO_GUESTS_DIR` names a folder with `*.wasm`. Without it these
//! tests say that they are skipped, since a plain `cargo test` has no wasm toolchain. `EPO_GUESTS` names
//! those that must be there, so that a run that is meant to load them cannot pass without.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::cluster::{Cluster, Factory};
use crate::support::{compile_command, create_request};
use egress_proxies_core::ids::{InstanceId, ProviderName};
use egress_proxies_core::provider::{
    CreateRequest, Deletion, InstanceRef, InstanceState, Lookup, Observation, Providers, Secret, Tags,
};
use egress_proxies_wasm::config::ProvidersConfig;
use egress_proxies_wasm::{HostConfig, ProviderHost};

#[expect(clippy::disallowed_methods, reason = "the folder with built guests is a setting of this test alone")]
fn guests(name: &str) -> Option<PathBuf> {
    let Ok(folder) = std::env::var("EPO_GUESTS_DIR") else {
        say_skipped(name, "EPO_GUESTS_DIR is not set; `make guests` builds it and sets that");
        return None;
    };
    let path = PathBuf::from(folder).join(format!("{name}.wasm"));
    if !path.exists() {
        let wanted = std::env::var("EPO_GUESTS").unwrap_or_default();
        assert!(!wanted.split(',').any(|guest| guest == name), "{} is not built", path.display());
        say_skipped(name, &format!("{} is not built", path.display()));
        return None;
    }
    Some(path)
}

/// Not with `eprintln!`: what that says is shown only of tests that fail.
fn say_skipped(guest: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: the guest {guest} is not loaded: {why}")
        .expect("standard error takes a line");
}

/// Starts a host with one real guest. A large one compiles for half a minute and more.
async fn host(
    guest: &std::path::Path,
    lines: &str,
    cluster: &Arc<Cluster>,
) -> (Arc<ProviderHost>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n  p:\n    source: {{ file: {} }}\n{lines}",
        guest.display()
    );
    let config = ProvidersConfig::parse(&text, &folder.path().join("providers.yaml")).unwrap();
    let settings = HostConfig::new(folder.path().join("compiled"), compile_command());
    let settings = HostConfig { kubernetes: Some(Arc::new(Factory(Arc::clone(cluster)))), ..settings };
    let host = ProviderHost::start(settings, config).unwrap();
    tokio::time::timeout(Duration::from_mins(10), host.loaded()).await.unwrap();
    (host, folder)
}

const UID: &str = "3f0c2a4e-0000-4000-8000-000000000001";

fn owner() -> Tags {
    [
        ("proxy-operator-uid".to_owned(), UID.to_owned()),
        ("proxy-operator-cluster".to_owned(), "c-1".to_owned()),
    ]
    .into()
}

fn request() -> CreateRequest {
    let mut tags = owner();
    tags.insert("proxy-operator-spec".into(), format!("v1-{}", "0".repeat(32)));
    CreateRequest {
        name: format!("px-{UID}"),
        bootstrap: Some(Secret::new("# extra squid configuration\nvisible_hostname secretive\n".into())),
        tags,
        ..create_request()
    }
}

#[tokio::test]
async fn the_kubernetes_provider_goes_the_whole_way() {
    let Some(guest) = guests("kubernetes") else { return };
    let cluster = Arc::new(Cluster::default());
    let lines = "    kubernetes: { namespace: proxies, serviceAccount: provider, resources: [pods, secrets] }\n    config: { image: \"docker.io/ubuntu/squid:latest\" }\n    addressCidrs: [10.0.0.0/8]\n";
    let (host, _folder) = host(&guest, lines, &cluster).await;
    let Lookup::Ready(provider) = host.lookup(&ProviderName::parse("p").unwrap()) else {
        panic!("{:?}", host.reports());
    };
    assert_eq!(cluster.identity(), Some(("proxies".into(), "provider".into())));
    let report = host.reports().remove(0).ready.unwrap();
    assert_eq!(report.missing_grants, [""; 0], "{report:?}");

    let request = request();
    let plan = provider.validate_create(&request).await.unwrap();
    assert!(cluster.requests().is_empty(), "validation asks nobody");
    let made = provider.create(&request).await.unwrap();
    assert_eq!((made.state.clone(), plan.id.as_ref()), (InstanceState::Provisioning, Some(&made.id)));
    assert!(cluster.secret(&request.name).is_some() && cluster.pod(&request.name).is_some());
    assert!(!format!("{made:?}").contains("secretive"));

    let target = InstanceRef { id: made.id.clone(), incarnation: made.incarnation.clone(), owner: owner() };
    cluster.run(&request.name, "10.1.2.3");
    let Observation::Found(seen) = provider.get(&target).await.unwrap() else { panic!("found") };
    assert_eq!(
        (seen.state.clone(), seen.endpoints[0].address.as_str()),
        (InstanceState::Running, "10.1.2.3")
    );
    assert_eq!(seen.endpoints[0].port, 3128);

    let again = provider.create(&request).await.unwrap();
    assert_eq!(again.incarnation, made.incarnation, "create is idempotent");
    assert_eq!(provider.list_owned(&owner()).await.unwrap().items.len(), 1);
    let others = [("proxy-operator-uid".to_owned(), "other".to_owned())].into();
    assert!(provider.list_owned(&others).await.unwrap().items.is_empty());
    let of_cluster = |id: &str| [("proxy-operator-cluster".to_owned(), id.to_owned())].into();
    let ours = of_cluster(&owner()["proxy-operator-cluster"]);
    assert_eq!(provider.list_owned(&ours).await.unwrap().items.len(), 1, "as garbage collection lists");
    assert!(provider.list_untagged(&ours, "px-").await.unwrap().items.is_empty());
    let untagged = provider.list_untagged(&of_cluster("another"), "px-").await.unwrap();
    assert_eq!(untagged.items.len(), 1, "it lacks the tag of that cluster");
    assert!(provider.list_untagged(&of_cluster("another"), "vm-").await.unwrap().items.is_empty());

    assert!(matches!(provider.delete(&target).await.unwrap(), Deletion::InProgress(_)));
    let Observation::Found(seen) = provider.get(&target).await.unwrap() else { panic!("found") };
    assert_eq!(seen.state, InstanceState::Deleting);
    cluster.finish_deletes();
    assert_eq!(provider.get(&target).await.unwrap(), Observation::Absent(None));
    assert_eq!(provider.delete(&target).await.unwrap(), Deletion::Gone);
    assert!(cluster.secret(&request.name).is_none());
}

#[tokio::test]
async fn the_kubernetes_provider_without_a_grant_says_what_to_write() {
    let Some(guest) = guests("kubernetes") else { return };
    let (host, _folder) = host(&guest, "", &Arc::default()).await;
    let Lookup::Failed { stage, reason } = host.lookup(&ProviderName::parse("p").unwrap()) else {
        panic!("failed")
    };
    assert_eq!(stage, "validate");
    assert!(reason.contains("kubernetes: {"), "{reason}");
}

#[tokio::test]
async fn a_guest_in_javascript_loads_and_answers() {
    loads_and_answers("javascript").await;
}

#[tokio::test]
async fn a_guest_in_python_loads_and_answers() {
    loads_and_answers("python").await;
}

/// Loaded by this host once, it answers a call without network.
async fn loads_and_answers(language: &str) {
    if let Some(guest) = guests(language) {
        let (host, _folder) = host(&guest, "", &Arc::default()).await;
        let Lookup::Ready(provider) = host.lookup(&ProviderName::parse("p").unwrap()) else {
            panic!("{language}: {:?}", host.reports());
        };
        let request = CreateRequest { bootstrap: None, ..request() };
        let plan = provider.validate_create(&request).await;
        assert!(plan.is_ok(), "{language}: {plan:?}");
        let id = InstanceId::parse("nobody").unwrap();
        // Without its upstream a guest fails in its own words or by ours, and the host lives on.
        let _any = provider.get(&InstanceRef { id, incarnation: None, owner: owner() }).await;
        assert!(provider.validate_create(&request).await.is_ok(), "{language}");
    }
}
