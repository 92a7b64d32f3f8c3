//! What tests of the lifecycle loop share: waits short enough for tests, and health without probes.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use egress_proxies_core::facts::{Fleet, Verdict, Verdicts};
use egress_proxies_core::ids::Incarnation;
use egress_proxies_core::lifecycle::{Caps, Policy};
use tokio::sync::watch;

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
