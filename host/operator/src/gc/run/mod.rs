//! The loop: waits to be elected, then one pass per interval, the first after a whole one.
//!
//! Passes never overlap and are never repeated early: the next pass is the retry. But a pass that failed, or was
//! not allowed to go on, comes soon after the end of a pause of the lead, which may be why.

mod pass;
mod proxies;
mod removal;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::gc::{Policy, Sightings, View};
use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::Providers;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::pass::Collector;
pub use self::proxies::{LiveProxies, LiveProxy, ProxyApi, ProxySource};
use super::recorder::GcMetrics;
use crate::clock::SharedClock;
use crate::leadership::Leadership;

/// From the end of a pause to the next pass, if the one before came to nothing. The lifecycle goes on first.
const AGAIN: Duration = Duration::from_secs(30);

/// All that the loop is connected to.
pub struct GcSetup {
    /// Where the Proxies are.
    pub proxies: Arc<dyn ProxySource>,
    /// The namespaces that `proxies` sees.
    pub view: View,
    /// The configured providers.
    pub providers: Arc<dyn Providers>,
    /// Their names.
    pub names: Arc<dyn Fn() -> Vec<ProviderName> + Send + Sync>,
    /// Identity of this cluster in the tags of machines.
    pub cluster: String,
    /// Limits.
    pub policy: Policy,
    /// Between two passes.
    pub interval: Duration,
    /// Everything but the deletes.
    pub dry_run: bool,
    /// Who may act.
    pub leadership: Leadership,
    /// The clock.
    pub clock: SharedClock,
    /// Measures.
    pub metrics: Arc<dyn GcMetrics>,
}

impl std::fmt::Debug for GcSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GcSetup")
            .field("view", &self.view)
            .field("cluster", &self.cluster)
            .field("policy", &self.policy)
            .field("interval", &self.interval)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// Why the loop ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The election is over for this process.
    #[error("the leader election ended")]
    Election,
}

/// Runs until told to end. A delete that was sent is waited for.
///
/// # Errors
/// If there is no election any more.
pub async fn run(setup: GcSetup, cancel: CancellationToken) -> Result<(), GcError> {
    let (mut elected, mut resumed) = (setup.leadership.elected.clone(), setup.leadership.resumed.clone());
    match cancel.run_until_cancelled(elected.wait_for(|elected| *elected)).await {
        None => return Ok(()),
        Some(Err(_)) => return Err(GcError::Election),
        Some(Ok(_)) => {}
    }
    let interval = setup.interval;
    let collector = Collector::new(setup, cancel.clone());
    let mut sightings = Sightings::default();
    let mut ticks = interval_at(tokio::time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut came_to_nothing = false;
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(()),
            Ok(()) = resumed.changed(), if came_to_nothing => {
                came_to_nothing = false; // once: pauses that come often must not put the pass off for ever
                ticks.reset_after(interval.min(AGAIN));
            }
            _ = ticks.tick() => {
                resumed.mark_unchanged();
                let passed = collector.pass(sightings).await;
                (sightings, came_to_nothing) = (passed.sightings, passed.came_to_nothing);
            }
        }
    }
}
