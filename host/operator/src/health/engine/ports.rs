//! What the engine is connected to.

use std::future::Future;
use std::time::Duration;

use egress_proxies_core::facts::{Fleet, GoodProbe, ProbeRequest, Suspicions, Verdicts};
use egress_proxies_core::health::{Outcome, ProbeReason};
use egress_proxies_core::ids::ProxyKey;
use tokio::sync::{mpsc, watch};

use crate::health::probe::ProbeTarget;

/// Channels to the other loops; `app` connects them.
#[derive(Debug)]
pub struct Ports {
    /// All Proxies.
    pub fleet: watch::Receiver<Fleet>,
    /// Probes asked for out of turn.
    pub requests: mpsc::Receiver<ProbeRequest>,
    /// Where verdicts go; sent only when one has changed.
    pub verdicts: watch::Sender<Verdicts>,
    /// Where suspicions of probe targets go; sent only when one is raised or cleared.
    pub suspicions: watch::Sender<Suspicions>,
    /// Where good probes that were asked for go; never waited for.
    pub good: mpsc::Sender<GoodProbe>,
}

/// Numbers of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSettings {
    /// Probes at the same time, at least 1.
    pub max_in_flight: usize,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { max_in_flight: 256 }
    }
}

/// Probes one proxy.
pub trait Prober: Send + Sync + 'static {
    /// Ends within the plan's timeout, with a reason of its own for each kind of failure. May be dropped at
    /// any await.
    fn probe(&self, target: ProbeTarget) -> impl Future<Output = Outcome> + Send;
}

/// Sees every probe, also those that change no verdict.
pub trait ProbeMetrics: Send + Sync + 'static {
    /// A probe of this Proxy ended; `failure` is none if it passed.
    fn observe(&self, key: &ProxyKey, duration: Duration, failure: Option<ProbeReason>);
    /// The Proxy is not probed any more: its series go.
    fn forget(&self, key: &ProxyKey);
    /// So many probe targets are suspected now.
    fn suspected_targets(&self, count: usize);
}

/// Records nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetrics;

impl ProbeMetrics for NoMetrics {
    fn observe(&self, _key: &ProxyKey, _duration: Duration, _failure: Option<ProbeReason>) {}
    fn forget(&self, _key: &ProxyKey) {}
    fn suspected_targets(&self, _count: usize) {}
}
