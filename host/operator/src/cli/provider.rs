//! `provider inspect`: loads providers as the operator would, without a cluster being touched or needed, and
//! shows what became of each.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use egress_proxies_wasm::ProviderHost;
use egress_proxies_wasm::config::ProvidersConfig;
use egress_proxies_wasm::gate::kubernetes::{
    KubernetesTransport, KubernetesTransportFactory, SendLimits, Sending, TransportError,
};
use egress_proxies_wasm::report::ProviderState;
use serde_json::json;
use tokio::runtime::Builder;

use crate::app::host_config;
use crate::config::ComponentStore;

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
    host.kubernetes = Some(Arc::new(NoCluster));
    let host = ProviderHost::start(host, config).context("the provider host could not start")?;
    host.loaded().await;
    let reports = host.reports();
    let ready = reports.iter().all(|report| report.state == ProviderState::Ready);
    let text = serde_json::to_string_pretty(&json!({ "providers": reports }))?;
    Ok((text + "\n", ready))
}

/// Loading asks the cluster nothing: this is there so that a config with `kubernetes` can be loaded, and
/// answers what is asked all the same.
struct NoCluster;

impl KubernetesTransportFactory for NoCluster {
    fn for_service_account(&self, _: &str, _: &str) -> Result<Arc<dyn KubernetesTransport>, String> {
        Ok(Arc::new(Self))
    }
}

impl KubernetesTransport for NoCluster {
    fn send(&self, _: http::Request<Bytes>, _: SendLimits) -> Sending<'_> {
        Box::pin(async { Err(TransportError::Connect("an inspection asks no cluster".to_owned())) })
    }
}

/// A config with this one provider, and nothing granted or set.
fn of_component(file: &Path) -> anyhow::Result<ProvidersConfig> {
    let path = std::path::absolute(file).with_context(|| format!("{} cannot be found", file.display()))?;
    let path = path.to_str().with_context(|| {
        format!("the path {} is not UTF-8, which a providers config needs; rename the file", path.display())
    })?;
    let config = json!({
        "apiVersion": "crawl.example.com/v1alpha1",
        "kind": "ProvidersConfig",
        "providers": { "inspected": { "source": { "file": path } } },
    });
    // YAML takes JSON as it is.
    Ok(ProvidersConfig::parse(&config.to_string(), file)?)
}
