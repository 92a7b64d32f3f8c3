//! The series of garbage collection.

use egress_proxies_core::gc::{Finding, Seen};
use egress_proxies_core::ids::ProviderName;
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::families;
use super::recorders::{Metrics, counters, gauges, whole};
use crate::gc::{GcMetrics, PassOutcome, Removed};

/// Abandoned, and its delete hangs.
const STUCK: &str = "stuck";

/// All of them.
#[derive(Debug, Clone)]
pub(super) struct GcSeries {
    passes: IntCounterVec,
    abandoned: IntGaugeVec,
    untagged: IntGaugeVec,
    suspected: IntGaugeVec,
    deletes: IntCounterVec,
}

impl GcSeries {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let passes = counters(registry, &families::GC_PASSES)?;
        for outcome in PassOutcome::ALL {
            // Shown from the start: an alert on a rate of 0 is silent about a series that does not exist.
            passes.with_label_values(&[outcome.as_str()]).inc_by(0);
        }
        Ok(Self {
            passes,
            abandoned: gauges(registry, &families::GC_ABANDONED)?,
            untagged: gauges(registry, &families::GC_UNTAGGED)?,
            suspected: gauges(registry, &families::GC_SUSPECTED)?,
            deletes: counters(registry, &families::GC_DELETES)?,
        })
    }

    /// An error of a removal says that there is no such series, which is what is wanted.
    fn forget(&self, provider: &str) {
        for finding in [Finding::Orphan.as_str(), Finding::Surplus.as_str(), STUCK] {
            let _absent = self.abandoned.remove_label_values(&[provider, finding]);
        }
        let _absent = self.untagged.remove_label_values(&[provider]);
        let _absent = self.suspected.remove_label_values(&[provider]);
    }
}

impl GcMetrics for Metrics {
    fn pass(&self, outcome: PassOutcome) {
        self.gc.passes.with_label_values(&[outcome.as_str()]).inc();
    }

    fn seen(&self, provider: &ProviderName, seen: Option<(&Seen, Option<usize>)>) {
        let (gc, provider) = (&self.gc, provider.as_str());
        gc.forget(provider);
        let Some((seen, untagged)) = seen else { return };
        for removed in Removed::ALL {
            gc.deletes.with_label_values(&[provider, removed.as_str()]).inc_by(0);
        }
        for (finding, count) in [
            (Finding::Orphan.as_str(), seen.orphans),
            (Finding::Surplus.as_str(), seen.surplus),
            (STUCK, seen.stuck),
        ] {
            gc.abandoned.with_label_values(&[provider, finding]).set(whole(count));
        }
        gc.suspected.with_label_values(&[provider]).set(i64::from(seen.suspected));
        if let Some(untagged) = untagged {
            gc.untagged.with_label_values(&[provider]).set(whole(untagged));
        }
    }

    fn removed(&self, provider: &ProviderName, removed: Removed) {
        self.gc.deletes.with_label_values(&[provider.as_str(), removed.as_str()]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::super::PerProxy;
    use super::*;

    #[test]
    fn every_outcome_of_a_pass_and_of_a_removal_begins_at_zero() {
        let metrics = Metrics::new(PerProxy::On).unwrap();
        metrics.seen(&ProviderName::parse("gcp").unwrap(), Some((&Seen::default(), None)));
        let text = metrics.text().unwrap();
        for outcome in PassOutcome::ALL {
            let line = format!("gc_passes_total{{outcome=\"{}\"}} 0", outcome.as_str());
            assert!(text.contains(&line), "{line} is not in:\n{text}");
        }
        for result in Removed::ALL {
            let line = format!("gc_deletes_total{{provider=\"gcp\",result=\"{}\"}} 0", result.as_str());
            assert!(text.contains(&line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn a_provider_that_could_not_be_listed_has_no_series_of_an_earlier_pass() {
        let metrics = Metrics::new(PerProxy::On).unwrap();
        let provider = ProviderName::parse("gcp").unwrap();
        let seen = Seen { owned: 9, orphans: 8, surplus: 0, stuck: 2, suspected: true, partial: false };
        metrics.seen(&provider, Some((&seen, Some(3))));
        metrics.removed(&provider, Removed::DryRun);
        metrics.pass(PassOutcome::Complete);
        let text = metrics.text().unwrap();
        for line in [
            "gc_abandoned_machines{finding=\"orphan\",provider=\"gcp\"} 8",
            "gc_abandoned_machines{finding=\"surplus\",provider=\"gcp\"} 0",
            "gc_abandoned_machines{finding=\"stuck\",provider=\"gcp\"} 2",
            "gc_suspected{provider=\"gcp\"} 1",
            "gc_untagged_machines{provider=\"gcp\"} 3",
            "gc_deletes_total{provider=\"gcp\",result=\"dry_run\"} 1",
            "gc_passes_total{outcome=\"complete\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        metrics.seen(&provider, None);
        let text = metrics.text().unwrap();
        assert!(!text.contains("gc_abandoned_machines{") && !text.contains("gc_suspected{"), "{text}");
        assert!(text.contains("gc_deletes_total{"), "counters stay");
    }
}
