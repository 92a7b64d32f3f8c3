//! `provider inspect`: loads providers as the operator would, without a cluster being touched, and shows
//! what became of each.

use std::path::Path;

use anyhow::Context;
use egress_proxies_wasm::ProviderHost;
use egress_proxies_wasm::config::ProvidersConfig;
use egress_proxies_wasm::report::ProviderState;
use serde_json::json;
use tokio::runtime::Builder;

use crate::app::host_config;
use crate::config::ComponentStore;
use crate::kubernetes_route::KubernetesRoute;

/// Memory for the few calls of a load, in MiB; a provider may have a quarter of it.
const MEMORY_MIB: u32 = 2304;

/// Loads what `file` names, a component or a whole providers config, and gives a JSON report on each provider
/// and whether all of them are ready.
///
/// # Errors
/// If the file cannot be read, or the host cannot start.
pub fn inspect(file: &Path, store: &ComponentStore) -> anyhow::Result<(String, bool)> {
    let config = match file.extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml" | "json") => ProvidersConfig::load(file)?,
        Some(_) | None => of_component(file)?,
    };
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let runtime = Builder::new_multi_thread().enable_all().build().context("no threads to run on")?;
    runtime.block_on(report(config, store))
}

async fn report(config: ProvidersConfig, store: &ComponentStore) -> anyhow::Result<(String, bool)> {
    let mut host = host_config(store, MEMORY_MIB)?;
    // Loading asks the cluster nothing; the address is needed only to make the route.
    if let Ok(cluster) = crate::kubernetes_client::infer_config().await {
        host.kubernetes = Some(std::sync::Arc::new(KubernetesRoute::new(cluster)));
    }
    let host = ProviderHost::start(host, config).context("the provider host could not start")?;
    host.loaded().await;
    let reports = host.reports();
    let ready = reports.iter().all(|report| report.state == ProviderState::Ready);
    let text = serde_json::to_string_pretty(&json!({ "providers": reports }))?;
    Ok((text + "\n", ready))
}

/// A config with this one provider, and nothing granted or set.
fn of_component(file: &Path) -> anyhow::Result<ProvidersConfig> {
    let path = std::path::absolute(file).with_context(|| format!("{} cannot be found", file.display()))?;
    let config = json!({
        "apiVersion": "crawl.example.com/v1alpha1",
        "kind": "ProvidersConfig",
        "providers": { "inspected": { "source": { "file": path } } },
    });
    // YAML takes JSON as it is.
    Ok(ProvidersConfig::parse(&config.to_string(), file)?)
}
