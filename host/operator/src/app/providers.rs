//! The provider host: started from the settings, shown to metrics and people.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use egress_proxies_core::ids::ProviderName;
use egress_proxies_wasm::config::ProvidersConfig;
use egress_proxies_wasm::gate::Fence;
use egress_proxies_wasm::report::{ProviderReport, ProviderState};
use egress_proxies_wasm::{CompileCommand, HostConfig, ProviderHost};
use serde_json::json;
use tokio::sync::watch;

use super::cluster::Cluster;
use crate::config::{ComponentStore, Settings};
use crate::http::ops::JsonSource;
use crate::kubernetes_route::KubernetesRoute;
use crate::leadership::Leadership;
use crate::metrics::{Metrics, ProviderSeries};

/// Subcommand of this program that compiles one component.
pub const COMPILE_COMMAND: &str = "compile-component";

/// What the settings say about providers, read and checked as far as this machine goes.
pub(super) struct ProviderPlan {
    config: ProvidersConfig,
    host: HostConfig,
}

impl ProviderPlan {
    /// Reads the providers config. A fault of one provider is its own; a file that cannot be read as a whole
    /// is an error.
    pub(super) fn read(settings: &Settings) -> anyhow::Result<Self> {
        let config = ProvidersConfig::load(&settings.providers_config)?;
        if config.entries.is_empty() {
            tracing::warn!("the providers config names no provider: only External proxies work");
        }
        let host = host_config(&settings.store, settings.provider_memory_mib)?;
        Ok(Self { config, host })
    }

    /// Begins to load.
    pub(super) fn start(
        mut self,
        cluster: &Cluster,
        metrics: &Arc<Metrics>,
        leadership: &Leadership,
    ) -> anyhow::Result<LoadedProviders> {
        self.host.kubernetes = Some(Arc::new(KubernetesRoute::new(cluster.config.clone())));
        self.host.fence = Fence::new(Arc::clone(&leadership.may_act));
        self.host.recorder = Arc::<Metrics>::clone(metrics);
        let host =
            ProviderHost::start(self.host, self.config).context("the provider host could not start")?;
        Ok(LoadedProviders { host })
    }
}

/// All configured providers.
#[derive(Debug)]
pub(super) struct LoadedProviders {
    host: Arc<ProviderHost>,
}

impl LoadedProviders {
    pub(super) fn host(&self) -> Arc<ProviderHost> {
        Arc::clone(&self.host)
    }

    /// The names in the providers config.
    pub(super) fn names(&self) -> Arc<dyn Fn() -> Vec<ProviderName> + Send + Sync> {
        let host = self.host();
        Arc::new(move || host.reports().into_iter().map(|report| report.name).collect())
    }

    /// A number that changes with each change of a provider.
    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.host.changed()
    }

    /// No provider is being loaded any more.
    pub(super) fn settled(host: &ProviderHost) -> bool {
        host.reports().iter().all(|report| report.state != ProviderState::Loading)
    }

    /// For the metrics.
    pub(super) fn series(&self) -> Box<dyn Fn() -> Vec<ProviderSeries> + Send + Sync> {
        let host = self.host();
        Box::new(move || host.reports().iter().map(series).collect())
    }

    /// For `/debug/providers`.
    pub(super) fn debug(&self) -> JsonSource {
        let host = self.host();
        Arc::new(move || json!({ "providers": host.reports() }))
    }

    /// True if every call had ended by itself.
    pub(super) async fn shutdown(&self, grace: Duration) -> bool {
        self.host.shutdown(grace).await
    }
}

/// The host's settings for this process.
pub(crate) fn host_config(store: &ComponentStore, memory_mib: u32) -> anyhow::Result<HostConfig> {
    let command = CompileCommand::current_program(COMPILE_COMMAND)
        .context("the path of this program, which compiles components, could not be found")?;
    let mut host = HostConfig::new(store.folder()?, command);
    host.memory_mib = memory_mib;
    Ok(host)
}

fn series(report: &ProviderReport) -> ProviderSeries {
    let state = match report.state {
        ProviderState::Loading => "loading",
        ProviderState::Ready => "ready",
        ProviderState::Failed => "failed",
    };
    let loaded = report
        .ready
        .as_ref()
        .map(|ready| [ready.digest.clone(), ready.version.clone(), ready.contract.clone()]);
    ProviderSeries { provider: report.name.to_string(), state, loaded }
}
