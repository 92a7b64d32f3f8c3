//! Series of single proxies: how long their probes take, and how many failed.
//!
//! A histogram and a counter of the library cost 3 KiB a proxy, most of it its name and description again and
//! again, and a fleet has thousands. Here is what differs; the rest is put together when somebody looks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egress_proxies_core::ids::ProxyKey;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::families::{self, Family, PROBE_SECONDS};

/// All of them; clones are the same.
#[derive(Debug, Clone)]
pub(super) struct ProxySeries {
    seconds: Desc,
    failures: Desc,
    probes: Arc<Mutex<BTreeMap<ProxyKey, Probes>>>,
}

/// The probes of one proxy.
#[derive(Debug, Clone, Copy, Default)]
struct Probes {
    /// By the first bound that is not less; those above the last bound are in no bucket.
    buckets: [u64; PROBE_SECONDS.len()],
    count: u64,
    seconds: f64,
    failures: u64,
}

impl Probes {
    fn histogram(&self) -> Histogram {
        let mut below = 0;
        let buckets = PROBE_SECONDS.iter().zip(self.buckets).map(|(bound, count)| {
            below += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(below);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(self.count);
        histogram.set_sample_sum(self.seconds);
        histogram
    }

    fn failed(&self) -> Counter {
        let mut counter = Counter::default();
        #[expect(clippy::cast_precision_loss, reason = "what Prometheus counts in; exact up to 2^53")]
        #[expect(clippy::as_conversions, reason = "there is no other conversion")]
        counter.set_value(self.failures as f64);
        counter
    }
}

impl ProxySeries {
    /// None yet.
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            seconds: described(&families::HEALTHCHECK_SECONDS)?,
            failures: described(&families::HEALTHCHECK_FAILURES)?,
            probes: Arc::default(),
        })
    }

    fn probes(&self) -> MutexGuard<'_, BTreeMap<ProxyKey, Probes>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A probe of this proxy ended.
    pub(super) fn observe(&self, key: &ProxyKey, duration: Duration, failed: bool) {
        let seconds = duration.as_secs_f64();
        let mut all = self.probes();
        let probes = all.entry(key.clone()).or_default();
        probes.count += 1;
        probes.seconds += seconds;
        probes.failures += u64::from(failed);
        let mut at = PROBE_SECONDS.iter().zip(&mut probes.buckets);
        if let Some((_, bucket)) = at.find(|(bound, _)| seconds <= **bound) {
            *bucket += 1;
        }
    }

    /// The series of this proxy go.
    pub(super) fn forget(&self, key: &ProxyKey) {
        self.probes().remove(key);
    }
}

impl Collector for ProxySeries {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.seconds, &self.failures]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let all = self.probes();
        let seconds = all.iter().map(|(key, probes)| {
            let mut metric = Metric::from_label(labels(&families::HEALTHCHECK_SECONDS, key));
            metric.set_histogram(probes.histogram());
            metric
        });
        let failures = all.iter().map(|(key, probes)| {
            let mut metric = Metric::from_label(labels(&families::HEALTHCHECK_FAILURES, key));
            metric.set_counter(probes.failed());
            metric
        });
        vec![
            shown(&families::HEALTHCHECK_SECONDS, MetricType::HISTOGRAM, seconds.collect()),
            shown(&families::HEALTHCHECK_FAILURES, MetricType::COUNTER, failures.collect()),
        ]
    }
}

fn described(family: &Family) -> Result<Desc, prometheus::Error> {
    let labels = family.labels.iter().map(|&label| label.to_owned()).collect();
    Desc::new(family.full_name(), family.help.to_owned(), labels, Default::default())
}

fn labels(family: &Family, key: &ProxyKey) -> Vec<LabelPair> {
    let label = |name: &&str| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value(key.to_string());
        label
    };
    family.labels.iter().map(label).collect()
}

fn shown(family: &Family, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut shown = MetricFamily::default();
    shown.set_name(family.full_name());
    shown.set_help(family.help.to_owned());
    shown.set_field_type(kind);
    shown.set_metric(metrics);
    shown
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder, HistogramOpts, HistogramVec, Registry, TextEncoder};

    use super::*;

    fn text(collector: impl Collector + 'static) -> String {
        let registry = Registry::new();
        registry.register(Box::new(collector)).unwrap();
        let mut buffer = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut buffer).unwrap();
        String::from_utf8(buffer).unwrap()
    }

    #[test]
    fn the_histogram_is_the_one_that_the_library_would_show() {
        let family = &families::HEALTHCHECK_SECONDS;
        let opts = HistogramOpts::new(family.full_name(), family.help).buckets(PROBE_SECONDS.to_vec());
        let theirs = HistogramVec::new(opts, family.labels).unwrap();
        let ours = ProxySeries::new().unwrap();
        for millis in [0, 49, 50, 51, 999, 1_000, 9_999, 10_000, 10_001, 60_000] {
            let duration = Duration::from_millis(millis);
            for name in ["b\"\\", "a"] {
                let key = ProxyKey::new("ns", name);
                ours.observe(&key, duration, false);
                theirs.with_label_values(&[key.to_string()]).observe(duration.as_secs_f64());
            }
        }
        let ours = text(ours);
        let theirs = text(theirs);
        assert!(ours.contains(&theirs), "{ours}\n{theirs}");
    }

    #[test]
    fn failures_are_counted_and_begin_at_zero() {
        let series = ProxySeries::new().unwrap();
        let (good, bad) = (ProxyKey::new("ns", "good"), ProxyKey::new("ns", "bad"));
        series.observe(&good, Duration::ZERO, false);
        series.observe(&bad, Duration::ZERO, true);
        series.observe(&bad, Duration::ZERO, true);
        let shown = text(series);
        for line in ["failures_total{proxy=\"ns/good\"} 0\n", "failures_total{proxy=\"ns/bad\"} 2\n"] {
            assert!(shown.contains(line), "{shown}");
        }
    }
}
