//! What readiness waits for.

use egress_proxies_core::facts::Fleet;
use tokio::sync::watch;

use super::providers::LoadedProviders;
use super::supervisor::{Ending, Supervisor};
use crate::http::ops::Gate;

/// All gates. The servers have none: they listen before the first gate could be asked for.
pub(super) struct Gates {
    caches: Gate,
    providers: Gate,
}

impl Gates {
    /// Gates that open as the fleet and the providers become known.
    pub(super) fn watch(
        tasks: &mut Supervisor,
        ending: &Ending,
        mut fleet: watch::Receiver<Fleet>,
        providers: &LoadedProviders,
    ) -> Self {
        let gates = Self {
            caches: Gate::shut("the caches of Proxies and Secrets are being filled"),
            providers: Gate::shut("providers are being loaded, see /debug/providers"),
        };
        let (gate, stop) = (gates.caches.clone(), ending.stop.clone());
        tasks.spawn("readiness of the caches", async move {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                filled = fleet.wait_for(|fleet| fleet.ready) => { filled?; }
            }
            gate.set(true);
            stop.cancelled().await;
            Ok(())
        });
        let (gate, stop) = (gates.providers.clone(), ending.stop.clone());
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
        gates
    }

    pub(super) fn all(&self) -> Vec<Gate> {
        vec![self.caches.clone(), self.providers.clone()]
    }
}
