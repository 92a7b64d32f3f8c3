//! What the tests of the provider host share: components made on the spot, and a host with a config file
//! on disk, as the operator starts it.

pub(crate) mod cluster;
pub(crate) mod guest;
pub(crate) mod image;
pub(crate) mod lines;
pub(crate) mod recorder;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::ids::{Incarnation, InstanceId, ProviderName};
use egress_proxies_core::provider::{CreateRequest, InstanceRef, Lookup, Provider, Providers, Tags};
use egress_proxies_wasm::config::ProvidersConfig;
use egress_proxies_wasm::{CompileCommand, HostConfig, ProviderHost};
use tempfile::TempDir;

/// How tests compile: by the same child as the operator's, in a program of its own.
pub(crate) fn compile_command() -> CompileCommand {
    CompileCommand { program: env!("CARGO_BIN_EXE_compile-component").into(), args: Vec::new() }
}

/// A host with its folder.
pub(crate) struct Started {
    pub(crate) host: Arc<ProviderHost>,
    pub(crate) folder: TempDir,
}

/// Starts a host with one provider per entry: name, bytes of its file, further lines of its config.
pub(crate) async fn start(providers: &[(&str, &[u8], &str)]) -> Started {
    start_with(providers, |config| config).await
}

/// The same with changes of the host's settings.
pub(crate) async fn start_with(
    providers: &[(&str, &[u8], &str)],
    settings: impl FnOnce(HostConfig) -> HostConfig,
) -> Started {
    let folder = TempDir::new().unwrap();
    let mut text = "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n".to_owned();
    for (name, bytes, lines) in providers {
        std::fs::write(folder.path().join(format!("{name}.wasm")), bytes).unwrap();
        let source = if lines.contains("source:") {
            String::new()
        } else {
            format!("    source: {{ file: {name}.wasm }}\n")
        };
        write!(text, "  {name}:\n{source}").unwrap();
        for line in lines.lines() {
            writeln!(text, "    {line}").unwrap();
        }
    }
    let path = folder.path().join("providers.yaml");
    std::fs::write(&path, text).unwrap();
    let host = started(&path, folder.path(), settings);
    tokio::time::timeout(Duration::from_mins(2), host.loaded()).await.expect("loading ends");
    Started { host, folder }
}

fn started(path: &Path, folder: &Path, settings: impl FnOnce(HostConfig) -> HostConfig) -> Arc<ProviderHost> {
    let config = ProvidersConfig::load(path).unwrap();
    let host = HostConfig::new(folder.join("compiled"), compile_command());
    ProviderHost::start(settings(host), config).unwrap()
}

impl Started {
    /// A provider that must be ready.
    pub(crate) fn ready(&self, name: &str) -> Arc<dyn Provider> {
        match self.host.lookup(&ProviderName::parse(name).unwrap()) {
            Lookup::Ready(provider) => provider,
            other => panic!("{name} is not ready: {other:?}"),
        }
    }

    /// Stage and reason of a provider that must have failed.
    pub(crate) fn failed(&self, name: &str) -> (&'static str, String) {
        match self.host.lookup(&ProviderName::parse(name).unwrap()) {
            Lookup::Failed { stage, reason } => (stage, reason),
            other => panic!("{name} has not failed: {other:?}"),
        }
    }
}

/// Tags that prove ownership.
pub(crate) fn owner() -> Tags {
    image::OWNER.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A request to make the sample's machine.
pub(crate) fn create_request() -> CreateRequest {
    CreateRequest {
        name: "px-u-1".into(),
        attempt_key: "3f0c2a4e-0000-4000-8000-000000000001".into(),
        port: 3128,
        placement: serde_json::Map::new(),
        parameters: serde_json::Map::new(),
        bootstrap: None,
        access: None,
        tags: owner(),
    }
}

/// The sample's machine.
pub(crate) fn machine() -> InstanceRef {
    InstanceRef {
        id: InstanceId::parse("m-1").unwrap(),
        incarnation: Some(Incarnation::parse("i-1").unwrap()),
        owner: owner(),
    }
}
