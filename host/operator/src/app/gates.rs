//! What readiness waits for.

use egress_proxies_core::facts::Fleet;
use tokio::sync::watch;

use super::providers::LoadedProviders;
use super::supervisor::{Ending, Supervisor};
use crate::http::ops::Gate;

/// All gates. The servers have none: those of the pages listen before the last gate opens.
pub(super) struct Gates {
    api_server: Gate,
    caches: Gate,
    providers: Gate,
}

impl Gates {
    /// Nothing is known yet.
    pub(super) fn shut() -> Self {
        Self {
            api_server: Gate::shut("waiting for the API server, see the log"),
            caches: Gate::shut("the caches of Proxies and Secrets are being filled"),
            providers: Gate::shut("providers are being loaded, see /debug/providers"),
        }
    }

    /// The API server has answered. The others open as the fleet and the providers become known.
    pub(super) fn watch(
        &self,
        tasks: &mut Supervisor,
        ending: &Ending,
        mut fleet: watch::Receiver<Fleet>,
        providers: &LoadedProviders,
    ) {
        self.api_server.set(true);
        let (gate, stop) = (self.caches.clone(), ending.stop.clone());
        tasks.spawn("readiness of the caches", async move {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                filled = fleet.wait_for(|fleet| fleet.ready) => { filled?; }
            }
            gate.set(true);
            stop.cancelled().await;
            Ok(())
        });
        let (gate, stop) = (self.providers.clone(), ending.stop.clone());
        let (host, mut changed) = (providers.host(), providers.changed());
        tasks.spawn("readiness of the providers", async move {
            loop {
                changed.mark_unchanged();
                gate.set(LoadedProviders::settled(&host));
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    more = changed.changed() => more?,
                }
            }
        });
    }

    pub(super) fn all(&self) -> Vec<Gate> {
        vec![self.api_server.clone(), self.caches.clone(), self.providers.clone()]
    }
}
