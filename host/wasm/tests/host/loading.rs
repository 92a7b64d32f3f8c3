//! From a config file to a provider or to `Failed` with a stage and a reason that says what to do.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::guest::{About, Guest};
use crate::support::{compile_command, create_request, machine, owner, start, start_with};
use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::{Lookup, Observation, Providers};
use egress_proxies_wasm::report::ProviderState;
use egress_proxies_wasm::{CompileCommand, HostConfig, ProviderHost, config::ProvidersConfig};

#[tokio::test]
async fn a_component_from_a_file_takes_all_calls() {
    let started = start(&[("sample", &Guest::default().component(), "config: {}")]).await;
    let provider = started.ready("sample");
    assert_eq!(provider.info().scope, "scope-1");
    assert!(provider.info().digest.starts_with("sha256:"), "{}", provider.info().digest);
    let plan = provider.validate_create(&create_request()).await.unwrap();
    assert_eq!(plan.id.unwrap().as_str(), "m-1");
    let made = provider.create(&create_request()).await.unwrap();
    assert_eq!((made.name.as_str(), made.endpoints[0].port), ("px-u-1", 3128));
    let Observation::Found(seen) = provider.get(&machine()).await.unwrap() else { panic!("found") };
    assert_eq!(seen.created_at.unwrap().to_string(), "2026-01-02T03:04:05Z");
    provider.delete(&machine()).await.unwrap();
    assert!(provider.list_owned(&owner()).await.unwrap().is_complete());
}

#[tokio::test]
async fn bad_files_fail_with_stage_and_reason_and_the_others_run() {
    let good = Guest::default().component();
    let module = wat::parse_str(Guest::default().wat()).unwrap();
    let wrong_contract = wat::parse_str("(component)").unwrap();
    let unknown_import =
        wat::parse_str(r#"(component (import "acme:door/lock@1.0.0" (instance (export "open" (func)))))"#)
            .unwrap();
    let future = wat::parse_str(r#"(component (import "wasi:clocks/types@0.3.0" (instance)))"#).unwrap();
    let started = start(&[
        ("good", &good, ""),
        ("absent", &good, "source: { file: nowhere.wasm }"),
        ("folder", &good, "source: { file: . }"),
        ("truncated", &good[..good.len() / 2], ""),
        ("stub", &good[..6], ""),
        ("module", &module, ""),
        ("text", b"apiVersion: v1\nkind: Pod\n", ""),
        ("empty", b"", ""),
        ("contract", &wrong_contract, ""),
        ("import", &unknown_import, ""),
        ("future", &future, ""),
        ("digest", &good, "source: { file: good.wasm, sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa }"),
        ("https", &good, "source: { https: \"https://example.com/p.wasm\", sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa }"),
        ("oci", &good, "source: { oci: registry.example.com/p@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa }"),
        ("bounds", &good, "limits: { memoryMiB: 1 }"),
        ("cluster", &good, "kubernetes: { namespace: a, serviceAccount: b, resources: [pods] }"),
    ])
    .await;
    for (name, stage, word) in [
        ("absent", "read", "no such file"),
        ("folder", "read", "not a file"),
        ("truncated", "kind", "truncated or damaged"),
        ("stub", "kind", "truncated"),
        ("module", "kind", "wasm-tools component new"),
        ("text", "kind", "text file"),
        ("empty", "kind", "empty"),
        ("contract", "audit", "does not export egress-proxies:provider/meta"),
        ("import", "audit", "acme:door/lock@1.0.0"),
        ("future", "audit", "0.2 only"),
        ("digest", "read", "source.sha256"),
        ("https", "source", "not supported yet in this release"),
        ("oci", "source", "not supported yet in this release"),
        ("bounds", "config", "limits.memoryMiB is 1"),
        ("cluster", "kubernetes", "no connection to a cluster"),
    ] {
        let (found, reason) = started.failed(name);
        assert_eq!(found, stage, "{name}: {reason}");
        assert!(reason.contains(word), "{name}: {reason}");
    }
    assert!(started.ready("good").get(&machine()).await.is_ok());
    let unknown = started.host.lookup(&ProviderName::parse("nobody").unwrap());
    let Lookup::Unknown { configured } = unknown else { panic!("{unknown:?}") };
    assert_eq!(configured.len(), 16);
}

#[tokio::test]
async fn what_a_guest_says_of_itself_is_judged() {
    let describing = |about: About<'_>| Guest::about(&about).component();
    let with_schema = describing(About {
        config_schema: Some(
            r#"{"type":"object","properties":{"project":{"type":"string"}},"required":["project"]}"#,
        ),
        ..About::default()
    });
    let started = start(&[
        ("trap", &Guest { describe: "unreachable".into(), ..Guest::default() }.component(), ""),
        ("name", &describing(About { name: "Not A Name", ..About::default() }), ""),
        ("schema", &describing(About { config_schema: Some("{"), ..About::default() }), ""),
        (
            "remote",
            &describing(About {
                config_schema: Some(r#"{"$ref":"https://example.com/s"}"#),
                ..About::default()
            }),
            "",
        ),
        ("project", &with_schema, "config: { project: 3 }"),
        ("none", &with_schema, ""),
        ("extra", &Guest::default().component(), "config: { anything: 1 }"),
        ("fits", &with_schema, "config: { project: mine }"),
    ])
    .await;
    for (name, stage, word) in [
        ("trap", "describe", "unreachable"),
        ("name", "describe", "Not A Name"),
        ("schema", "schema", "config-schema is not JSON"),
        ("remote", "schema", "only references inside"),
        ("project", "validate", "/config/project: "),
        ("none", "validate", "project"),
        ("extra", "validate", "/config/anything: "),
    ] {
        let (found, reason) = started.failed(name);
        assert_eq!(found, stage, "{name}: {reason}");
        assert!(reason.contains(word), "{name}: {reason}");
    }
    assert!(started.ready("fits").get(&machine()).await.is_ok());
}

#[tokio::test]
async fn a_component_is_compiled_once_and_its_store_is_private() {
    let bytes = Guest::default().component();
    let first = start(&[("a", &bytes, ""), ("b", &bytes, "")]).await;
    let store = first.folder.path().join("compiled");
    assert_eq!(std::fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o700);
    let files: Vec<_> = std::fs::read_dir(&store).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "one artefact for one digest, nothing unfinished: {files:?}");
    assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o077, 0);

    // A second host finds the artefact: its compiler, which does not exist, is never started.
    let config = ProvidersConfig::load(&first.folder.path().join("providers.yaml")).unwrap();
    let nothing = CompileCommand { program: "/nonexistent/compiler".into(), args: Vec::new() };
    let second = ProviderHost::start(HostConfig::new(store.clone(), nothing), config.clone()).unwrap();
    second.loaded().await;
    assert!(
        second.reports().iter().all(|report| report.state == ProviderState::Ready),
        "{:?}",
        second.reports()
    );

    // A damaged artefact is made again.
    let damaged = store.join("damaged");
    std::fs::write(&damaged, b"not code").unwrap();
    std::fs::set_permissions(&damaged, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&damaged, &files[0]).unwrap();
    let third = ProviderHost::start(HostConfig::new(store, compile_command()), config).unwrap();
    third.loaded().await;
    assert!(
        third.reports().iter().all(|report| report.state == ProviderState::Ready),
        "{:?}",
        third.reports()
    );
}

#[tokio::test]
async fn a_compiler_that_cannot_start_fails_the_provider_only() {
    let bytes = Guest::default().component();
    let command = CompileCommand { program: "/nonexistent/compiler".into(), args: Vec::new() };
    let started =
        start_with(&[("p", &bytes, "")], |host| HostConfig { compile_command: command, ..host }).await;
    let (stage, reason) = started.failed("p");
    assert_eq!(stage, "compile");
    assert!(reason.contains("/nonexistent/compiler"), "{reason}");
}

#[tokio::test]
async fn a_store_that_others_can_write_is_refused() {
    let bytes = Guest::default().component();
    let shared = tempfile::tempdir().unwrap();
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let started =
        start_with(&[("p", &bytes, "")], |host| HostConfig { store_dir: shared.path().to_owned(), ..host })
            .await;
    let (stage, reason) = started.failed("p");
    assert_eq!(stage, "compile");
    assert!(reason.contains("remove it, or use another folder"), "{reason}");
}

#[tokio::test]
async fn a_provider_is_loading_first_and_the_change_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.wasm"), Guest::default().component()).unwrap();
    let text = "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders: { p: { source: { file: p.wasm } } }\n";
    let config = ProvidersConfig::parse(text, &folder.path().join("providers.yaml")).unwrap();
    let host =
        ProviderHost::start(HostConfig::new(folder.path().join("c"), compile_command()), config).unwrap();
    let name = ProviderName::parse("p").unwrap();
    assert!(matches!(host.lookup(&name), Lookup::Loading));
    let mut changed = host.changed();
    loop {
        if let Lookup::Ready(_) = host.lookup(&name) {
            break;
        }
        tokio::time::timeout(Duration::from_mins(1), changed.changed()).await.unwrap().unwrap();
    }
    let report = serde_json::to_value(host.reports()).unwrap();
    assert_eq!(report[0]["state"], "Ready", "{report}");
    assert_eq!(report[0]["scope"], "scope-1", "{report}");
    assert_eq!(report[0]["limits"]["memoryMiB"], 128, "{report}");
    host.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_the_config_says_of_a_provider_is_known_however_loading_ends() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.wasm"), Guest::default().component()).unwrap();
    let usual = "healthCheck: { url: \"http://probe.example/\" }, attributes: { geo: eu }";
    let text = format!(
        "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n  \
         good: {{ source: {{ file: p.wasm }}, {usual} }}\n  \
         absent: {{ source: {{ file: nowhere.wasm }}, {usual} }}\n  \
         faulty: {{ source: {{ file: p.wasm }}, limits: {{ memoryMiB: 1 }}, {usual} }}\n"
    );
    let config = ProvidersConfig::parse(&text, &folder.path().join("providers.yaml")).unwrap();
    let host =
        ProviderHost::start(HostConfig::new(folder.path().join("c"), compile_command()), config).unwrap();
    let settings = |name: &str| host.settings(&ProviderName::parse(name).unwrap());
    let all_known = || {
        for name in ["good", "absent", "faulty"] {
            let settings = settings(name).unwrap();
            assert_eq!(settings.probe_url.as_deref(), Some("http://probe.example/"), "{name}");
            assert_eq!(settings.attributes.get("geo").map(String::as_str), Some("eu"), "{name}");
        }
        assert_eq!(settings("unknown"), None);
    };
    assert!(matches!(host.lookup(&ProviderName::parse("good").unwrap()), Lookup::Loading));
    all_known();
    let mut changed = host.changed();
    while host.reports().iter().any(|report| report.state == ProviderState::Loading) {
        tokio::time::timeout(Duration::from_mins(1), changed.changed()).await.unwrap().unwrap();
    }
    let states = host.reports().into_iter().map(|report| report.state).collect::<Vec<_>>();
    assert_eq!(states, [ProviderState::Failed, ProviderState::Failed, ProviderState::Ready]);
    all_known();
    host.shutdown(Duration::from_secs(5)).await;
}
