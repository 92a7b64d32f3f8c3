//! Gauges that are read when somebody looks.

use std::sync::{Arc, Mutex, PoisonError};

use egress_proxies_core::crd::Phase;
use egress_proxies_core::facts::{Fleet, LeaseCounts};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec};
use tokio::sync::watch;

use super::families;
use super::recorders::{opts, whole};

/// A provider as its series show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSeries {
    /// Name in the providers config.
    pub provider: String,
    /// `loading`, `ready` or `failed`.
    pub state: &'static str,
    /// Digest, version and contract of a loaded one.
    pub loaded: Option<[String; 3]>,
}

/// Where the gauges are read.
pub struct ScrapeSources {
    /// The Proxies.
    pub fleet: watch::Receiver<Fleet>,
    /// Live leases.
    pub leases: watch::Receiver<LeaseCounts>,
    /// The providers.
    pub providers: Box<dyn Fn() -> Vec<ProviderSeries> + Send + Sync>,
    /// Whether this process leads.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for ScrapeSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScrapeSources")
    }
}

/// Reads the sources at each scrape. One scrape at a time: of two that mix, one would see a series gone that
/// the other is about to set.
pub(super) struct ScrapeCollector {
    sources: ScrapeSources,
    described: Vec<Desc>,
    gauges: Mutex<Gauges>,
}

struct Gauges {
    proxies: IntGaugeVec,
    leases: IntGauge,
    leader: IntGauge,
    provider_state: IntGaugeVec,
    provider_info: IntGaugeVec,
}

impl ScrapeCollector {
    pub(super) fn new(sources: ScrapeSources) -> Result<Self, prometheus::Error> {
        let vec = |family: &families::Family| IntGaugeVec::new(opts(family), family.labels);
        let gauges = Gauges {
            proxies: vec(&families::PROXIES)?,
            leases: IntGauge::with_opts(opts(&families::LEASES_ACTIVE))?,
            leader: IntGauge::with_opts(opts(&families::LEADER))?,
            provider_state: vec(&families::PROVIDER_STATE)?,
            provider_info: vec(&families::PROVIDER_INFO)?,
        };
        let described = gauges.all().iter().flat_map(|gauge| gauge.desc()).cloned().collect();
        Ok(Self { sources, described, gauges: Mutex::new(gauges) })
    }
}

impl Gauges {
    fn all(&self) -> [&dyn Collector; 5] {
        [&self.proxies, &self.leases, &self.leader, &self.provider_state, &self.provider_info]
    }

    fn read(&self, sources: &ScrapeSources) {
        let fleet = sources.fleet.borrow().clone();
        for phase in Phase::ALL {
            let count = fleet.proxies.values().filter(|proxy| proxy.phase == phase).count();
            self.proxies.with_label_values(&[phase.as_str()]).set(whole(count));
        }
        let leases: u32 = sources.leases.borrow().values().sum();
        self.leases.set(i64::from(leases));
        self.leader.set(i64::from((sources.leads)()));
        self.provider_state.reset();
        self.provider_info.reset();
        for series in (sources.providers)() {
            self.provider_state.with_label_values(&[series.provider.as_str(), series.state]).set(1);
            if let Some([digest, version, contract]) = &series.loaded {
                let labels = [series.provider.as_str(), digest.as_str(), version.as_str(), contract.as_str()];
                self.provider_info.with_label_values(&labels).set(1);
            }
        }
    }
}

impl Collector for ScrapeCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.described.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.read(&self.sources);
        gauges.all().iter().flat_map(|gauge| gauge.collect()).collect()
    }
}
