//! Decides when each machine is probed, and turns results into verdicts.
//!
//! One task owns all state; probes run beside it on a task set, as many at once as the settings allow, and
//! hand their results back. A result counts only for the machine and the attempt it was started for: a late
//! "ok" never revives a Proxy that is gone. Verdicts go out over a watch channel when one has changed;
//! nothing here writes status, and nothing waits for whoever reads.

mod groups;
mod machines;
mod ports;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::facts::{ProbeRequest, Verdict, Verdicts};
use egress_proxies_core::health::{Outcome, ProbeReason};
use egress_proxies_core::ids::ProxyUid;
use egress_proxies_core::time::Moment;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::machines::{Attempt, Machines, Publish};
pub use self::ports::{EngineSettings, NoMetrics, Ports, ProbeMetrics, Prober};
use super::probe::ProbeTarget;
use crate::clock::SharedClock;

/// Sleep when nothing is due: any event ends it.
const IDLE: Duration = Duration::from_hours(1);
/// So long after its own timeout a probe is broken off.
const GRACE: Duration = Duration::from_secs(5);

/// The health loop.
pub struct Engine<P> {
    ports: Ports,
    prober: Arc<P>,
    clock: SharedClock,
    metrics: Arc<dyn ProbeMetrics>,
    settings: EngineSettings,
    machines: Machines,
    verdicts: Verdicts,
    probes: JoinSet<(Moment, Outcome)>,
    running: HashMap<Id, Attempt>,
    requests_open: bool,
}

impl<P> std::fmt::Debug for Engine<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<P: Prober> Engine<P> {
    /// An engine that has not started yet.
    pub fn new(
        ports: Ports,
        prober: P,
        clock: SharedClock,
        metrics: Arc<dyn ProbeMetrics>,
        settings: EngineSettings,
    ) -> Self {
        let settings = EngineSettings { max_in_flight: settings.max_in_flight.max(1) };
        let verdicts = ports.verdicts.borrow().clone();
        Self {
            ports,
            prober: Arc::new(prober),
            clock,
            metrics,
            settings,
            machines: Machines::default(),
            verdicts,
            probes: JoinSet::new(),
            running: HashMap::new(),
            requests_open: true,
        }
    }

    /// Runs until `stop` is cancelled or the fleet's publisher is gone. Probes in flight are abandoned then.
    pub async fn run(mut self, stop: CancellationToken) {
        self.sync();
        loop {
            self.flush();
            self.start_due();
            let idle = self.until_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                changed = self.ports.fleet.changed() => {
                    if changed.is_err() {
                        tracing::warn!("health stops: nobody publishes the fleet any more");
                        break;
                    }
                    self.sync();
                }
                request = self.ports.requests.recv(), if self.requests_open => self.requested(request),
                Some(done) = self.probes.join_next_with_id() => self.finished(done),
                () = tokio::time::sleep(idle) => {}
            }
            while let Some(done) = self.probes.try_join_next_with_id() {
                self.finished(done);
            }
        }
        self.probes.shutdown().await;
    }

    fn sync(&mut self) {
        let fleet = self.ports.fleet.borrow_and_update().clone();
        if !fleet.ready {
            return;
        }
        let synced = self.machines.sync(&fleet, self.clock.now());
        for (uid, forget) in synced.gone {
            self.publish_one(uid, None);
            if let Some(key) = forget {
                self.metrics.forget(&key);
            }
        }
        self.carry_out(synced.publish);
    }

    fn requested(&mut self, request: Option<ProbeRequest>) {
        match request {
            Some(request) => self.machines.request(&request, self.clock.now().mono),
            None => self.requests_open = false,
        }
    }

    fn start_due(&mut self) {
        let now = self.clock.now().mono;
        while self.running.len() < self.settings.max_in_flight {
            let Some((attempt, target)) = self.machines.start_next(now) else { break };
            let prober = Arc::clone(&self.prober);
            let task = self.probes.spawn(async move { (now, within_time(&*prober, target).await) });
            self.running.insert(task.id(), attempt);
        }
    }

    fn until_due(&self) -> Duration {
        if self.running.len() >= self.settings.max_in_flight {
            return IDLE;
        }
        let now = self.clock.now().mono;
        self.machines.next_due().map_or(IDLE, |due| due.since(now).min(IDLE))
    }

    fn finished(&mut self, done: Result<(Id, (Moment, Outcome)), JoinError>) {
        // A Proxy that is gone by now must be gone before its result is looked at.
        if self.ports.fleet.has_changed().unwrap_or(false) {
            self.sync();
        }
        let (id, result) = match done {
            Ok((id, result)) => (id, Some(result)),
            Err(error) => {
                tracing::error!(%error, "a probe ended without a result; this is a bug in the operator");
                (error.id(), None)
            }
        };
        let Some(attempt) = self.running.remove(&id) else { return };
        let now = self.clock.now();
        let Some((started, outcome)) = result else {
            self.machines.abandon(&attempt, now.mono);
            return;
        };
        let Some(key) = self.machines.key_of(&attempt) else {
            tracing::debug!(uid = %attempt.uid, "dropped the result of a probe of a machine that is gone");
            return;
        };
        self.metrics.observe(key, now.mono.since(started), failure_of(&outcome));
        let publish = self.machines.finish(&attempt, started, &outcome, now);
        self.carry_out(publish);
    }

    fn carry_out(&mut self, publish: Publish) {
        for (uid, verdict) in publish.verdicts {
            self.publish_one(uid, Some(verdict));
        }
        if publish.suspicions {
            self.publish_suspicions();
        }
        if let Some(good) = publish.good
            && self.ports.good.try_send(good).is_err()
        {
            tracing::debug!("nobody took the news of a good probe; it is asked for again");
        }
    }

    fn publish_one(&mut self, uid: ProxyUid, verdict: Option<Verdict>) {
        match verdict {
            Some(verdict) => drop(Arc::make_mut(&mut self.verdicts).insert(uid, verdict)),
            None if self.verdicts.contains_key(&uid) => drop(Arc::make_mut(&mut self.verdicts).remove(&uid)),
            None => {}
        }
    }

    fn publish_suspicions(&self) {
        let suspicions = self.machines.suspicions();
        self.metrics.suspected_targets(suspicions.len());
        self.ports.suspicions.send_if_modified(|last| {
            let changed = *last != suspicions;
            *last = suspicions;
            changed
        });
    }

    /// Publishes all changes since the last time at once: copying the map per verdict would be slow.
    fn flush(&self) {
        self.ports.verdicts.send_if_modified(|last| {
            let changed = !Arc::ptr_eq(last, &self.verdicts);
            *last = Arc::clone(&self.verdicts);
            changed
        });
    }
}

/// The prober keeps to the plan's timeout; this is for one that doesn't, because each probe that never ends
/// would take a place from all other machines for good.
async fn within_time(prober: &impl Prober, target: ProbeTarget) -> Outcome {
    let limit = target.plan.timeout.saturating_add(GRACE);
    tokio::time::timeout(limit, prober.probe(target)).await.unwrap_or_else(|_| Outcome::Failed {
        reason: ProbeReason::Timeout,
        message:
            "the probe did not end in its time and was broken off; see whether the proxy sends without end"
                .to_owned(),
    })
}

fn failure_of(outcome: &Outcome) -> Option<ProbeReason> {
    match outcome {
        Outcome::Passed { .. } => None,
        Outcome::Failed { reason, .. } => Some(*reason),
    }
}
