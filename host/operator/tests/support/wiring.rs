//! A lifecycle loop under test: what it is connected to, waits short enough for tests, and health without probes.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use egress_proxies_core::facts::{Fleet, LeaseCounts, Verdict, Verdicts};
use egress_proxies_core::ids::Incarnation;
use egress_proxies_core::lifecycle::{Caps, Policy};
use egress_proxies_core::provider::Providers;
use egress_proxies_operator::clock::SystemClock;
use egress_proxies_operator::leadership::Leadership;
use egress_proxies_operator::lifecycle::{LifecycleSetup, Namespaces, Silent};
use kube::Client;
use tokio::sync::watch;

/// A loop that is not run yet, and the other ends of its channels.
pub(crate) struct Wiring {
    /// Alone in its election, with [`quick`] waits and no measures; to be changed before it is run.
    pub(crate) setup: LifecycleSetup,
    /// What it publishes.
    pub(crate) fleet: watch::Receiver<Fleet>,
    /// What health would say; see [`judge`].
    pub(crate) verdicts: watch::Sender<Verdicts>,
}

impl Wiring {
    /// For the Proxies of one namespace.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        providers: Arc<dyn Providers>,
        provider_changes: watch::Receiver<u64>,
    ) -> Self {
        let (fleet, seen) = watch::channel(Fleet::default());
        let (verdicts, judged) = watch::channel(Verdicts::default());
        let setup = LifecycleSetup {
            client,
            namespaces: Namespaces::Only(vec![namespace.to_owned()]),
            providers,
            provider_changes,
            verdicts: judged,
            leases: watch::channel(LeaseCounts::default()).1,
            fleet,
            clock: SystemClock::start(),
            policy: quick(),
            cluster: "test-cluster".to_owned(),
            default_probe_url: Some("http://probe.invalid/".to_owned()),
            instance: "test".to_owned(),
            leadership: Leadership::alone(),
            acting: watch::channel(false).0,
            metrics: Arc::new(Silent),
        };
        Self { setup, fleet: seen, verdicts }
    }
}

/// Waits short enough for tests.
pub(crate) fn quick() -> Policy {
    let millis = Duration::from_millis;
    Policy {
        provisioning_poll: millis(200),
        deletion_poll: millis(200),
        drift_poll: millis(1000),
        quota_poll: millis(1000),
        slow_poll: millis(2000),
        backoff_first: millis(100),
        backoff_most: millis(1000),
        vanish_most: millis(1000),
        verdict_wait: millis(300),
        drain_floor: millis(300),
        caps: Caps {
            room_poll: millis(300),
            suspect_poll: millis(300),
            replacements_per_minute: 6000,
            deletions_per_minute: 6000,
            ..Caps::default()
        },
        ..Policy::default()
    }
}

/// Health without probes: each machine that the fleet shows is healthy, unless it is sick.
pub(crate) async fn judge(
    mut fleet: watch::Receiver<Fleet>,
    verdicts: watch::Sender<Verdicts>,
    is_sick: impl Fn(&Incarnation) -> bool,
) {
    while fleet.changed().await.is_ok() {
        let fleet = fleet.borrow_and_update().clone();
        let judged = fleet.proxies.iter().filter_map(|(uid, facts)| {
            let machine = facts.machine.clone()?;
            let healthy = !is_sick(&machine.incarnation);
            let verdict = Verdict {
                machine,
                healthy,
                reason: if healthy { "ProbeSucceeded" } else { "Refused" },
                message: "as the probes said".to_owned(),
                latency: healthy.then(|| Duration::from_millis(12)),
                probed_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            };
            Some((uid.clone(), verdict))
        });
        let judged = Arc::new(judged.collect());
        verdicts.send_if_modified(|known| {
            let new = *known != judged;
            *known = judged;
            new
        });
    }
    std::future::pending::<()>().await;
}

pub(crate) fn is_ready(proxy: &Proxy) -> bool {
    proxy.status.as_ref().is_some_and(|status| status.phase == Phase::Ready)
}
