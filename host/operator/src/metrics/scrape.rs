//! Gauges that are read when somebody looks.

use std::sync::Arc;

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

/// Reads the sources at each scrape.
pub(super) struct ScrapeCollector {
    sources: ScrapeSources,
    proxies: IntGaugeVec,
    leases: IntGauge,
    leader: IntGauge,
    provider_state: IntGaugeVec,
    provider_info: IntGaugeVec,
}

impl ScrapeCollector {
    pub(super) fn new(sources: ScrapeSources) -> Result<Self, prometheus::Error> {
        let vec = |family: &families::Family| IntGaugeVec::new(opts(family), family.labels);
        Ok(Self {
            sources,
            proxies: vec(&families::PROXIES)?,
            leases: IntGauge::with_opts(opts(&families::LEASES_ACTIVE))?,
            leader: IntGauge::with_opts(opts(&families::LEADER))?,
            provider_state: vec(&families::PROVIDER_STATE)?,
            provider_info: vec(&families::PROVIDER_INFO)?,
        })
    }

    fn read(&self) {
        for phase in PHASES {
            let count =
                self.sources.fleet.borrow().proxies.values().filter(|proxy| proxy.phase == phase).count();
            self.proxies.with_label_values(&[word(phase)]).set(whole(count));
        }
        let leases: u32 = self.sources.leases.borrow().values().sum();
        self.leases.set(i64::from(leases));
        self.leader.set(i64::from((self.sources.leads)()));
        self.provider_state.reset();
        self.provider_info.reset();
        for series in (self.sources.providers)() {
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
        [
            self.proxies.desc(),
            self.leases.desc(),
            self.leader.desc(),
            self.provider_state.desc(),
            self.provider_info.desc(),
        ]
        .concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        [
            self.proxies.collect(),
            self.leases.collect(),
            self.leader.collect(),
            self.provider_state.collect(),
            self.provider_info.collect(),
        ]
        .concat()
    }
}

const PHASES: [Phase; 7] = [
    Phase::Pending,
    Phase::Provisioning,
    Phase::Ready,
    Phase::Unhealthy,
    Phase::Replacing,
    Phase::Deleting,
    Phase::Failed,
];

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Provisioning => "Provisioning",
        Phase::Ready => "Ready",
        Phase::Unhealthy => "Unhealthy",
        Phase::Replacing => "Replacing",
        Phase::Deleting => "Deleting",
        Phase::Failed => "Failed",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use egress_proxies_core::ids::ProxyUid;

    use super::super::recorders::{Metrics, PerProxy};
    use super::*;

    #[test]
    fn every_family_of_the_table_is_shown_and_no_other() {
        let metrics = Metrics::new(PerProxy::On).unwrap();
        let leases = Arc::new(BTreeMap::from([
            (ProxyUid::parse("a").unwrap(), 2),
            (ProxyUid::parse("b").unwrap(), 3),
        ]));
        let sources = ScrapeSources {
            fleet: watch::channel(Fleet::default()).1,
            leases: watch::channel(leases).1,
            providers: Box::new(|| {
                let loaded = Some(["sha256:0".to_owned(), "1.0.0".to_owned(), "0.1.0".to_owned()]);
                vec![ProviderSeries { provider: "p".to_owned(), state: "ready", loaded }]
            }),
            leads: Arc::new(|| true),
        };
        metrics.scrape(sources).unwrap();
        let text = metrics.text().unwrap();
        assert!(text.contains("proxy_operator_leases_active 5"), "{text}");
        assert!(text.contains("proxy_operator_leader 1"), "{text}");
        assert!(text.contains("proxy_operator_proxies{phase=\"Ready\"} 0"), "{text}");
        assert!(text.contains("provider_state{provider=\"p\",state=\"ready\"} 1"), "{text}");
        let known: Vec<String> = families::all().iter().map(families::Family::full_name).collect();
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let name = line.split(' ').nth(2).unwrap();
            assert!(known.iter().any(|known| known == name), "{name} is not in the table");
        }
    }
}
