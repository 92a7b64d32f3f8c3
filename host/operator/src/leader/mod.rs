//! The election: carries out, on one Lease of the Kubernetes API, what `egress_proxies_core::leader` decides.
//!
//! The Lease is fenced by time: [`Leadership::may_act`] compares a clock that goes on while the machine is
//! suspended with the end of the lead, which only a renewal that succeeded moves. So a process that was stopped,
//! cut off or forgotten by the scheduler may no longer act when it comes back, whether or not this loop has run
//! since. A leader that may no longer act pauses: the process goes on, and leads again if it finds that nobody else
//! did. Must never extend the lead for another reason, and must never resend a write by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use egress_proxies_core::leader::{Candidate, GIVEN_UP, Loss, REQUEST, Record, Step, Timing};
use egress_proxies_core::time::{Moment, Now};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::clock::SharedClock;
use crate::kubernetes_client::{REFUSED, refuses};
use crate::leadership::Leadership;

/// Which Lease, and who wants it.
pub struct ElectionSetup {
    /// A client of its own, so that nothing queues before a renewal.
    pub client: Client,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Of this process and of no other, an earlier life of it included.
    pub identity: String,
    /// The durations.
    pub timing: Timing,
    /// A clock that goes on while the machine is suspended.
    pub clock: SharedClock,
}

impl std::fmt::Debug for ElectionSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, name, identity, timing, .. } = self;
        f.debug_struct("ElectionSetup")
            .field("lease", &format!("{namespace}/{name}"))
            .field("identity", identity)
            .field("timing", timing)
            .finish_non_exhaustive()
    }
}

/// Why this process must end.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// It led.
    #[error("this process no longer leads and must not act: {0}")]
    Lost(#[from] Loss),
    /// It can never lead.
    #[error(
        "the Lease {lease} cannot be used: {fault}. Apply deploy/base, whose namespace and Role it needs; or name \
         another namespace with --leader-lease-namespace; or pass --leader-elect=false if this is the only operator"
    )]
    Refused {
        /// Namespace and name.
        lease: String,
        /// What the API server said.
        fault: String,
    },
}

/// One process in the election. [`Election::run`] must be polled for as long as the process may act.
pub struct Election {
    api: Api<Lease>,
    setup: ElectionSetup,
    candidate: Candidate,
    /// As it was read, or answered to a write.
    lease: Option<Lease>,
    until: Arc<AtomicU64>,
    elected: watch::Sender<bool>,
    resumed: watch::Sender<u64>,
    /// Said last, so that what repeats is said once.
    told: String,
    refused: Option<Moment>,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election")
            .field("setup", &self.setup)
            .field("candidate", &self.candidate)
            .finish_non_exhaustive()
    }
}

/// What went wrong with a request.
enum Fault {
    /// It met another version, or an object where none was expected.
    Conflict,
    /// The API server says that there is no such Lease.
    Missing(String),
    /// Not allowed, or nothing of the kind is there, such as the namespace.
    Forbidden(String),
    /// No answer in time, no connection, an error of the server, or an answer that is not the API server's.
    Failed(String),
}

impl Election {
    /// A candidate. Nothing happens before it is run.
    pub fn new(setup: ElectionSetup) -> Self {
        Self {
            api: Api::namespaced(setup.client.clone(), &setup.namespace),
            candidate: Candidate::new(setup.identity.clone(), setup.timing),
            setup,
            lease: None,
            until: Arc::default(),
            elected: watch::channel(false).0,
            resumed: watch::channel(0).0,
            told: String::new(),
            refused: None,
        }
    }

    /// What the rooms that act are told.
    pub fn leadership(&self) -> Leadership {
        let (until, clock) = (Arc::clone(&self.until), Arc::clone(&self.setup.clock));
        let may_act = move || nanos(clock.now().mono) < until.load(Ordering::SeqCst);
        let (elected, resumed) = (self.elected.subscribe(), self.resumed.subscribe());
        Leadership { elected, may_act: Arc::new(may_act), resumed, shared: true }
    }

    /// Takes part until this process must end. Dropping the future loses nothing but an answer.
    pub async fn run(&mut self) -> ElectionError {
        loop {
            let decision = self.candidate.decide(self.now());
            tracing::trace!(row = decision.row, "decided");
            let done = match decision.step {
                Step::Wait(wait) => {
                    sleep(wait).await;
                    Ok(())
                }
                Step::Look => self.look().await,
                Step::Create | Step::Take | Step::Renew => self.write().await,
                Step::Pause => {
                    self.pause();
                    Ok(())
                }
                Step::Stop(loss) => {
                    self.stand_down();
                    return loss.into();
                }
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    /// Gives the lead up, if this process has it. Nothing may be under way any more; what a pause broke off may still
    /// be at work upstream, and then the next leader has to wait as for one that died.
    pub async fn release(mut self) {
        let now = self.now();
        let leads = self.candidate.leads_until().is_some_and(|until| now < until);
        let may_give_up = self.candidate.may_give_up(now);
        self.stand_down();
        if leads && !may_give_up {
            tracing::warn!(
                "a pause broke work off a moment ago, so the lead is not given up: the next process leads when the \
                 Lease has run out"
            );
        }
        if !may_give_up {
            return;
        }
        // The second try: an answer to a renewal was lost, or somebody labelled the Lease.
        for _ in 0..2 {
            let Some(mut lease) = self.lease.take() else { return };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.setup.identity) {
                return;
            }
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(whole_seconds(GIVEN_UP));
            let params = PostParams::default();
            match self.ask(self.api.replace(&self.setup.name, &params, &lease)).await {
                Ok(_) => {
                    tracing::info!("gave the lead up");
                    return;
                }
                Err(Fault::Conflict) => self.lease = self.read().await.ok().flatten(),
                Err(Fault::Missing(why) | Fault::Forbidden(why) | Fault::Failed(why)) => {
                    tracing::warn!(%why, "the lead could not be given up; the next leader has to wait for its end");
                    return;
                }
            }
        }
    }

    fn now(&self) -> Moment {
        self.setup.clock.now().mono
    }

    /// Whoever acts is told by [`Leadership::may_act`] alone: what this process knows stays right, see
    /// [`egress_proxies_core::leader`].
    fn pause(&mut self) {
        self.until.store(0, Ordering::SeqCst);
        self.candidate.pause(self.now());
        tracing::warn!(
            lease = %self.lease_name(),
            "the lead pauses: the Lease could not be renewed in time. Is the API server reachable? Until it answers, \
             nothing is made, changed, deleted or leased; proxies that run go on being probed and listed, and \
             leases and cooldowns are kept"
        );
    }

    fn stand_down(&mut self) {
        self.until.store(0, Ordering::SeqCst);
        self.candidate.stand_down();
        self.elected.send_replace(false);
    }

    async fn look(&mut self) -> Result<(), ElectionError> {
        let started = self.now();
        match self.read().await {
            Ok(found) => {
                let record = found.as_ref().map(record);
                self.lease = found;
                self.candidate.saw(record, self.now());
                self.say_who_leads();
                Ok(())
            }
            Err(fault) => self.failed(fault, started),
        }
    }

    async fn read(&self) -> Result<Option<Lease>, Fault> {
        match self.ask(self.api.get(&self.setup.name)).await {
            Ok(found) => Ok(Some(found)),
            Err(Fault::Missing(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Makes this process the holder, in the version of the Lease that is known.
    async fn write(&mut self) -> Result<(), ElectionError> {
        let started = self.setup.clock.now();
        let lease = self.claimed(started);
        let (name, params) = (&self.setup.name, PostParams::default());
        let answer = if self.lease.is_some() {
            self.ask(self.api.replace(name, &params, &lease)).await
        } else {
            self.ask(self.api.create(&params, &lease)).await
        };
        match answer {
            Ok(written) => {
                let now = self.now();
                let interrupted = self.candidate.is_interrupted(now);
                self.candidate.wrote(record(&written), started.mono, now);
                self.lease = Some(written);
                self.led(interrupted);
                Ok(())
            }
            Err(Fault::Conflict) => {
                self.candidate.conflicted();
                Ok(())
            }
            Err(Fault::Missing(_)) if self.lease.is_some() => {
                self.lease = None;
                self.candidate.saw(None, self.now());
                Ok(())
            }
            Err(fault) => self.failed(fault, started.mono),
        }
    }

    /// The Lease as it is to be: whatever others put into it stays.
    fn claimed(&self, now: Now) -> Lease {
        let mut lease = self.lease.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.setup.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        let known = self.lease.is_some();
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.setup.identity) {
            spec.holder_identity = Some(self.setup.identity.clone());
            spec.acquire_time = Some(MicroTime(now.wall));
            let before = spec.lease_transitions.unwrap_or(0);
            spec.lease_transitions = Some(if known { before.saturating_add(1) } else { 0 });
        }
        spec.lease_duration_seconds = Some(whole_seconds(self.setup.timing.lease));
        spec.renew_time = Some(MicroTime(now.wall));
        lease
    }

    /// Tells everybody, if the lead still lasts: that a pause is over before that this process may act.
    fn led(&mut self, interrupted: bool) {
        self.refused = None;
        let Some(until) = self.candidate.leads_until().filter(|until| self.now() < *until) else { return };
        if interrupted {
            self.resumed.send_modify(|pauses| *pauses += 1);
        }
        self.until.store(nanos(until), Ordering::SeqCst);
        let new = self.elected.send_if_modified(|elected| !std::mem::replace(elected, true));
        if new {
            tracing::info!(lease = %self.lease_name(), identity = %self.setup.identity, "elected: this process leads");
        } else if interrupted {
            tracing::info!(lease = %self.lease_name(), "the pause is over: this process leads again, and nobody else has led meanwhile");
        }
        self.told.clear();
    }

    fn say_who_leads(&mut self) {
        self.refused = None;
        let holder = self.candidate.holder().unwrap_or_default().to_owned();
        let text = format!("holder {holder}");
        if self.candidate.leads_until().is_none() && !holder.is_empty() && self.told != text {
            tracing::info!(lease = %self.lease_name(), leader = %holder, "standing by: another process holds the Lease");
            self.told = text;
        }
    }

    fn failed(&mut self, fault: Fault, started: Moment) -> Result<(), ElectionError> {
        self.candidate.failed(started);
        let now = self.now();
        let (why, refused) = match fault {
            Fault::Conflict => return Ok(()), // nothing was read or written: the next step looks again
            Fault::Missing(why) | Fault::Forbidden(why) => (why, true),
            Fault::Failed(why) => (why, false),
        };
        let leads = self.candidate.leads_until().is_some();
        if leads || self.told != why {
            tracing::warn!(lease = %self.lease_name(), leads, %why, "the Lease could not be read or written");
            self.told.clone_from(&why);
        }
        // A standby that can never lead looks healthy. Whoever led has its memory to lose, and rights that were taken
        // away may come back.
        if !refused || leads || self.candidate.is_paused() {
            self.refused = None;
            return Ok(());
        }
        let since = *self.refused.get_or_insert(now);
        if now.since(since) < REFUSED {
            return Ok(());
        }
        Err(ElectionError::Refused { lease: self.lease_name(), fault: why })
    }

    async fn ask<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Fault> {
        let patience = self.candidate.patience(REQUEST, self.now());
        match timeout(patience, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(sorted(error, &self.setup.name)),
            Err(_elapsed) => Err(Fault::Failed(format!("no answer in {patience:?}"))),
        }
    }

    fn lease_name(&self) -> String {
        format!("{}/{}", self.setup.namespace, self.setup.name)
    }
}

/// A load balancer may answer 404 as well: a Lease is gone only if the API server itself says so of this one.
fn sorted(error: kube::Error, lease: &str) -> Fault {
    let kube::Error::Api(status) = error else { return Fault::Failed(error.to_string()) };
    let named = status.details.as_ref().is_some_and(|details| details.name == lease);
    match status.code {
        409 => Fault::Conflict,
        404 if status.reason == "NotFound" && named => Fault::Missing(status.message),
        _ if refuses(&status) => Fault::Forbidden(status.message),
        _ => Fault::Failed(status.message),
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Record {
        uid: lease.uid().unwrap_or_default(),
        version: lease.resource_version().unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: Duration::from_secs(seconds.unwrap_or_default()),
    }
}

fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX).max(1)
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
