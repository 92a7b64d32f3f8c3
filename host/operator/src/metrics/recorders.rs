//! The fed metrics: one implementation of each loop's recorder.

use std::time::Duration;

use egress_proxies_core::health::{PROBE_SUCCEEDED, ProbeReason};
use egress_proxies_core::ids::{ProviderName, ProxyKey};
use egress_proxies_wasm::registry::{CallRecord, CallRecorder};
use prometheus::core::Collector;
use prometheus::{
    CounterVec, Encoder, Gauge, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use super::families::{self, Family, Kind};
use super::gc::GcSeries;
use super::per_proxy::ProxySeries;
use super::scrape::{ScrapeCollector, ScrapeSources};
use crate::health::ProbeMetrics;
use crate::http::{LeaseMetrics, LeaseOutcome};
use crate::lifecycle::{LifecycleMetrics, Outcome, Write};

/// Whether each proxy has series of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerProxy {
    /// It has.
    On,
    /// For large fleets.
    Off,
}

/// All that is fed, and the registry of everything that is shown. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    per_proxy: PerProxy,
    lease_requests: IntCounterVec,
    proxies: ProxySeries,
    probes: IntCounterVec,
    suspected_targets: IntGauge,
    provider_requests: IntCounterVec,
    provider_seconds: HistogramVec,
    provider_cpu: CounterVec,
    provider_memory: IntGaugeVec,
    provider_http: IntCounterVec,
    provider_denied: IntCounterVec,
    provider_no_permit: IntCounterVec,
    reconcile_seconds: HistogramVec,
    api_writes: IntCounterVec,
    queue_depth: IntGauge,
    queue_running: IntGauge,
    queue_longest_wait: Gauge,
    pub(super) gc: GcSeries,
}

impl Metrics {
    /// Registers every fed family, in a registry of its own.
    ///
    /// # Errors
    /// If a family of the table is not a valid one; a test sees to it that none is.
    pub fn new(per_proxy: PerProxy) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let build =
            register(&registry, IntGaugeVec::new(opts(&families::BUILD_INFO), families::BUILD_INFO.labels)?)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let lease_requests = counters(&registry, &families::LEASE_REQUESTS)?;
        for outcome in LeaseOutcome::ALL {
            // Shown from the start: a rate over a counter that appears with its first 1 misses it.
            lease_requests.with_label_values(&[outcome.as_str()]).inc_by(0);
        }
        Ok(Self {
            per_proxy,
            lease_requests,
            proxies: register(&registry, ProxySeries::new()?)?,
            probes: counters(&registry, &families::PROBES)?,
            suspected_targets: gauge(&registry, &families::SUSPECTED_TARGETS)?,
            provider_requests: counters(&registry, &families::PROVIDER_REQUESTS)?,
            provider_seconds: histograms(&registry, &families::PROVIDER_CALL_SECONDS)?,
            provider_cpu: register(
                &registry,
                CounterVec::new(
                    opts(&families::PROVIDER_CPU_SECONDS),
                    families::PROVIDER_CPU_SECONDS.labels,
                )?,
            )?,
            provider_memory: register(
                &registry,
                IntGaugeVec::new(opts(&families::PROVIDER_MEMORY), families::PROVIDER_MEMORY.labels)?,
            )?,
            provider_http: counters(&registry, &families::PROVIDER_HTTP)?,
            provider_denied: counters(&registry, &families::PROVIDER_DENIED)?,
            provider_no_permit: counters(&registry, &families::PROVIDER_NO_PERMIT)?,
            reconcile_seconds: histograms(&registry, &families::RECONCILE_SECONDS_FAMILY)?,
            api_writes: counters(&registry, &families::API_WRITES)?,
            queue_depth: gauge(&registry, &families::QUEUE_DEPTH)?,
            queue_running: gauge(&registry, &families::QUEUE_RUNNING)?,
            queue_longest_wait: register(&registry, Gauge::with_opts(opts(&families::QUEUE_LONGEST_WAIT))?)?,
            gc: GcSeries::new(&registry)?,
            registry,
        })
    }

    /// Adds what is read at scrape time.
    ///
    /// # Errors
    /// If it was added before.
    pub fn scrape(&self, sources: ScrapeSources) -> Result<(), prometheus::Error> {
        self.registry.register(Box::new(ScrapeCollector::new(sources)?))
    }

    /// The text that `/metrics` answers with.
    ///
    /// # Errors
    /// If the encoder fails; it writes to memory.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut buffer = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }
}

pub(super) fn opts(family: &Family) -> Opts {
    Opts::new(family.full_name(), family.help)
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

pub(super) fn counters(registry: &Registry, family: &Family) -> Result<IntCounterVec, prometheus::Error> {
    register(registry, IntCounterVec::new(opts(family), family.labels)?)
}

pub(super) fn gauges(registry: &Registry, family: &Family) -> Result<IntGaugeVec, prometheus::Error> {
    register(registry, IntGaugeVec::new(opts(family), family.labels)?)
}

fn gauge(registry: &Registry, family: &Family) -> Result<IntGauge, prometheus::Error> {
    register(registry, IntGauge::with_opts(opts(family))?)
}

fn histograms(registry: &Registry, family: &Family) -> Result<HistogramVec, prometheus::Error> {
    let buckets = match family.kind {
        Kind::Histogram(buckets) => buckets.to_vec(),
        Kind::Counter | Kind::Gauge => Vec::new(),
    };
    let opts = HistogramOpts::new(family.full_name(), family.help).buckets(buckets);
    register(registry, HistogramVec::new(opts, family.labels)?)
}

impl LeaseMetrics for Metrics {
    fn lease_request(&self, outcome: LeaseOutcome) {
        self.lease_requests.with_label_values(&[outcome.as_str()]).inc();
    }
}

impl ProbeMetrics for Metrics {
    fn observe(&self, key: &ProxyKey, duration: Duration, failure: Option<ProbeReason>) {
        self.probes.with_label_values(&[failure.map_or(PROBE_SUCCEEDED, ProbeReason::as_str)]).inc();
        match self.per_proxy {
            PerProxy::On => self.proxies.observe(key, duration, failure.is_some()),
            PerProxy::Off => {}
        }
    }

    fn forget(&self, key: &ProxyKey) {
        self.proxies.forget(key);
    }

    fn suspected_targets(&self, count: usize) {
        self.suspected_targets.set(whole(count));
    }
}

impl CallRecorder for Metrics {
    fn call(&self, record: &CallRecord<'_>) {
        let provider = record.provider.as_str();
        self.provider_requests.with_label_values(&[provider, record.op, record.outcome]).inc();
        self.provider_seconds.with_label_values(&[provider, record.op]).observe(record.elapsed.as_secs_f64());
        self.provider_cpu.with_label_values(&[provider]).inc_by(record.cpu.as_secs_f64());
        let peak = self.provider_memory.with_label_values(&[provider]);
        peak.set(peak.get().max(whole(record.memory_bytes)));
        self.provider_http.with_label_values(&[provider]).inc_by(u64::from(record.requests));
        let denied = self.provider_denied.with_label_values(&[provider]);
        if record.denied {
            denied.inc();
        }
    }

    fn no_permit(&self, provider: &ProviderName) {
        self.provider_no_permit.with_label_values(&[provider.as_str()]).inc();
    }
}

impl LifecycleMetrics for Metrics {
    fn reconciled(&self, outcome: Outcome, took: Duration) {
        self.reconcile_seconds.with_label_values(&[outcome.as_str()]).observe(took.as_secs_f64());
    }

    fn wrote(&self, what: Write, outcome: Outcome) {
        self.api_writes.with_label_values(&[what.as_str(), outcome.as_str()]).inc();
    }

    fn queue(&self, planned: usize, running: usize, longest_wait: Duration) {
        self.queue_depth.set(whole(planned));
        self.queue_running.set(whole(running));
        self.queue_longest_wait.set(longest_wait.as_secs_f64());
    }
}

pub(super) fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_forgotten_proxy_are_gone() {
        let metrics = Metrics::new(PerProxy::On).unwrap();
        let key = ProxyKey::new("ns", "one");
        metrics.observe(&key, Duration::from_millis(20), Some(ProbeReason::Refused));
        assert!(metrics.text().unwrap().contains("healthcheck_failures_total{proxy=\"ns/one\"} 1"));
        metrics.forget(&key);
        let text = metrics.text().unwrap();
        assert!(!text.contains("ns/one"), "{text}");
        assert!(text.contains("proxy_operator_probes_total{result=\"Refused\"} 1"));
    }

    #[test]
    fn without_per_proxy_metrics_no_series_names_a_proxy() {
        let metrics = Metrics::new(PerProxy::Off).unwrap();
        metrics.observe(&ProxyKey::new("ns", "one"), Duration::from_millis(20), None);
        let text = metrics.text().unwrap();
        assert!(!text.contains("ns/one") && text.contains("result=\"ProbeSucceeded\"} 1"), "{text}");
    }

    #[test]
    fn the_peak_of_memory_never_goes_down() {
        let metrics = Metrics::new(PerProxy::On).unwrap();
        let provider = ProviderName::parse("p").unwrap();
        for memory_bytes in [10, 30, 20] {
            metrics.call(&CallRecord {
                provider: &provider,
                op: "get",
                outcome: "answered",
                elapsed: Duration::from_millis(1),
                cpu: Duration::from_millis(1),
                memory_bytes,
                requests: 1,
                denied: false,
            });
        }
        let text = metrics.text().unwrap();
        assert!(text.contains("provider_memory_peak_bytes{provider=\"p\"} 30"), "{text}");
        assert!(
            text.contains("provider_requests_total{op=\"get\",provider=\"p\",result=\"answered\"} 3"),
            "{text}"
        );
    }
}
