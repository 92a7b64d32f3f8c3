//! What is shown, against the table of families.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::facts::{Auth, Fleet};
use egress_proxies_core::gc::Seen;
use egress_proxies_core::health::ProbeReason;
use egress_proxies_core::ids::{ProviderName, ProxyKey, ProxyUid};
use egress_proxies_core::lifecycle::{FactsInput, facts_of};
use egress_proxies_wasm::registry::{CallRecord, CallRecorder};
use serde_json::json;
use tokio::sync::watch;

use super::families::{self, Family};
use super::{Metrics, PerProxy, ProviderSeries, ScrapeSources};
use crate::gc::{GcMetrics, PassOutcome, Removed};
use crate::health::ProbeMetrics;
use crate::http::{LeaseMetrics, LeaseOutcome};
use crate::lifecycle::{LifecycleMetrics, Outcome, Write};

/// Metrics over a pool with five leases and a provider that is ready.
fn metrics() -> Metrics {
    metrics_of(watch::channel(Fleet::default()).1)
}

fn metrics_of(fleet: watch::Receiver<Fleet>) -> Metrics {
    let metrics = Metrics::new(PerProxy::On).unwrap();
    let leases =
        Arc::new(BTreeMap::from([(ProxyUid::parse("a").unwrap(), 2), (ProxyUid::parse("b").unwrap(), 3)]));
    let sources = ScrapeSources {
        fleet,
        leases: watch::channel(leases).1,
        providers: Box::new(|| {
            let loaded = Some(["sha256:0".to_owned(), "1.0.0".to_owned(), "0.1.0".to_owned()]);
            vec![ProviderSeries { provider: "p".to_owned(), state: "ready", loaded }]
        }),
        leads: Arc::new(|| true),
    };
    metrics.scrape(sources).unwrap();
    metrics
}

/// Something of everything that is fed.
fn feed(metrics: &Metrics) {
    let provider = ProviderName::parse("p").unwrap();
    metrics.lease_request(LeaseOutcome::Granted);
    metrics.observe(&ProxyKey::new("ns", "one"), Duration::from_millis(20), Some(ProbeReason::Refused));
    metrics.suspected_targets(1);
    metrics.call(&CallRecord {
        provider: &provider,
        op: "get",
        outcome: "answered",
        elapsed: Duration::from_millis(1),
        cpu: Duration::from_millis(1),
        memory_bytes: 1,
        requests: 1,
        denied: true,
    });
    metrics.no_permit(&provider);
    metrics.reconciled(Outcome::Done, Duration::from_millis(1));
    metrics.wrote(Write::Status, Outcome::Done);
    metrics.queue(1, 1, Duration::from_millis(1500));
    metrics.pass(PassOutcome::Complete);
    let seen = Seen { owned: 1, orphans: 1, surplus: 0, stuck: 0, suspected: false, partial: false };
    metrics.seen(&provider, Some((&seen, Some(1))));
    metrics.removed(&provider, Removed::DryRun);
}

#[test]
fn every_family_of_the_table_is_shown_and_no_other() {
    let metrics = metrics();
    feed(&metrics);
    let text = metrics.text().unwrap();
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let shown: BTreeSet<String> = shown.map(str::to_owned).collect();
    let table: BTreeSet<String> = families::all().iter().map(Family::full_name).collect();
    assert_eq!(shown, table);
}

#[test]
fn gauges_are_read_when_somebody_looks() {
    let text = metrics().text().unwrap();
    for line in [
        "proxy_operator_leases_active 5",
        "proxy_operator_leader 1",
        "proxy_operator_proxies{phase=\"Ready\"} 0",
        "proxy_operator_provider_state{provider=\"p\",state=\"ready\"} 1",
        "proxy_operator_provider_info{contract=\"0.1.0\",digest=\"sha256:0\",provider=\"p\",version=\"1.0.0\"} 1",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} is missing in {text}");
    }
}

/// A fleet with a Proxy in each of these phases.
fn fleet_of(phases: &[&str]) -> Fleet {
    let facts = phases.iter().enumerate().map(|(number, phase)| {
        let proxy: Proxy = serde_json::from_value(json!({
            "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
            "metadata": {"namespace": "ns", "name": format!("p{number}"), "uid": format!("u{number}")},
            "spec": {"mode": "Managed", "provider": "p"}, "status": {"phase": phase}
        }))
        .unwrap();
        let input = FactsInput {
            auth: Auth::None,
            provider: None,
            default_probe_url: None,
            ca_pem: None,
            running: None,
        };
        let facts = facts_of(&proxy, input).unwrap();
        (facts.uid.clone(), Arc::new(facts))
    });
    Fleet { proxies: Arc::new(facts.collect()), ..Fleet::default() }
}

#[test]
fn proxies_are_counted_by_phase_and_those_that_are_gone_no_more() {
    let (fleet, seen) = watch::channel(fleet_of(&["Ready", "Ready", "Unhealthy"]));
    let metrics = metrics_of(seen);
    let count = |phase: &str| {
        let text = metrics.text().unwrap();
        let start = format!("proxy_operator_proxies{{phase=\"{phase}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u32>().ok()).unwrap()
    };
    assert_eq!(["Ready", "Unhealthy", "Pending", "Deleting"].map(count), [2, 1, 0, 0]);
    fleet.send_replace(fleet_of(&["Deleting"]));
    assert_eq!(["Ready", "Unhealthy", "Pending", "Deleting"].map(count), [0, 0, 0, 1]);
}

#[test]
fn every_outcome_of_a_lease_request_begins_at_zero() {
    let text = metrics().text().unwrap();
    for outcome in LeaseOutcome::ALL {
        let line = format!("proxy_operator_lease_requests_total{{outcome=\"{}\"}} 0", outcome.as_str());
        assert!(text.lines().any(|shown| shown == line), "{line} is missing in {text}");
    }
}

#[test]
fn scrapes_at_the_same_time_see_the_same() {
    let metrics = metrics();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let text = metrics.text().unwrap();
                    for part in ["provider_state{provider=\"p\",state=\"ready\"} 1", "provider_info{"] {
                        assert!(text.contains(part), "{part} is missing in {text}");
                    }
                }
            });
        }
    });
}
