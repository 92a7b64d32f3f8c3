//! Keeps the pool in step with the fleet, and tells the others about it.
//!
//! Nothing depends on how often it runs: every operation of the pool ends by itself what is over. It
//! publishes lease counts only when they changed, and never waits for a receiver: a probe request that
//! finds its channel full comes again with the next sweep.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::facts::{Fleet, GoodProbe, LeaseCounts, ProbeRequest};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::PoolStore;

/// A sweep at least this often: leases end without anybody calling.
const PERIOD: Duration = Duration::from_secs(1);
/// Shortest time between two sweeps, so that many calls at once cost one sweep.
const PAUSE: Duration = Duration::from_millis(50);

/// What the sweeper listens to and speaks on.
#[derive(Debug)]
pub struct SweeperChannels {
    /// The Proxies.
    pub fleet: watch::Receiver<Fleet>,
    /// Forced probes that succeeded, from health.
    pub good_probes: mpsc::Receiver<GoodProbe>,
    /// Probes to force, to health.
    pub probe_requests: mpsc::Sender<ProbeRequest>,
    /// Live leases by Proxy, to whoever drains machines.
    pub counts: watch::Sender<LeaseCounts>,
}

/// The loop of the pool.
pub struct Sweeper {
    store: Arc<dyn PoolStore>,
    channels: SweeperChannels,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// A sweeper of this store.
    pub fn new(store: Arc<dyn PoolStore>, channels: SweeperChannels) -> Self {
        Self { store, channels }
    }

    /// Runs until cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            self.sweep().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(PAUSE) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(PERIOD) => {}
                () = self.store.touched() => {}
                // A closed channel disables its branch; the others go on.
                Ok(()) = self.channels.fleet.changed() => {}
                Some(probe) = self.channels.good_probes.recv() => self.store.probed(probe).await,
            }
            while let Ok(probe) = self.channels.good_probes.try_recv() {
                self.store.probed(probe).await;
            }
        }
    }

    async fn sweep(&self) {
        let swept = self.store.sweep().await;
        self.channels.counts.send_if_modified(|known| {
            let changed = *known != swept.counts;
            if changed {
                *known = Arc::clone(&swept.counts);
            }
            changed
        });
        let mut refused = Vec::new();
        for request in swept.probes {
            debug!(uid = %request.uid, "asking for a probe: a client reported the proxy as unreachable");
            match self.channels.probe_requests.try_send(request) {
                Ok(()) => {}
                Err(TrySendError::Full(request) | TrySendError::Closed(request)) => refused.push(request),
            }
        }
        if !refused.is_empty() {
            let waiting = refused.len();
            debug!(waiting, "probes of proxies reported as unreachable have to wait for the health loop");
            self.store.put_off(refused).await;
        }
    }
}
