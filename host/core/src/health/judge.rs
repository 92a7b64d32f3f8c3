//! From the result of a probe to a verdict.
//!
//! A verdict is published only when it is worth a write to the API server: see the table in `docs/health.md`.

use std::time::Duration;

use crate::facts::{Machine, ProbePlan, ProxyFacts, Verdict};
use crate::health::{Blame, Outcome, PROBE_SUCCEEDED, ProbeReason};
use crate::ids::Incarnation;
use crate::time::{Moment, Now};

/// Latency and a changed cause are reported at most this often.
pub const MIN_REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// So long may a new machine fail before it is called unhealthy: its proxy may still be starting.
pub const SETTLE_TIME: Duration = Duration::from_secs(10);
const MIN_LATENCY_CHANGE: Duration = Duration::from_millis(20);
/// So many good probes in a row must agree that the latency moved: one slow answer is no news, and on a busy
/// machine of ours a fleet of a thousand has one all the time.
const LASTING: u32 = 3;

/// What is remembered of one machine between probes.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthState {
    pub(super) machine: Machine,
    /// The judgement after thresholds; none before the first.
    pub(super) verdict: Option<bool>,
    /// No probe through this machine has ever succeeded, as far as this process knows.
    pub(super) fresh: bool,
    pub(super) successes: u32,
    pub(super) failures: u32,
    /// When the row of failures began.
    pub(super) failing_since: Option<Moment>,
    /// The last failure, and how often in a row it was exactly this one.
    pub(super) cause: Option<(Cause, u32)>,
    /// Whom the last failure speaks against, and how often in a row it was that.
    pub(super) blamed: Option<(Blame, u32)>,
    /// The cause that the published verdict gives.
    pub(super) reported_cause: Option<Cause>,
    pub(super) reported_latency: Option<Duration>,
    /// Good probes in a row whose latency was not the reported one.
    pub(super) moved: u32,
    pub(super) reported_at: Option<Moment>,
    /// This process has published a verdict of this machine, if only what stood in status already.
    pub(super) confirmed: bool,
    /// The unhealthy verdict was a healthy one before: so many failures came since.
    pub(super) since_fall: Option<u32>,
}

/// What a condition says about a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) reason: ProbeReason,
    pub(super) message: String,
}

/// Whether verdicts may turn unhealthy for causes that need not be the proxy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The usual case.
    No,
    /// The probe target is suspected: keep the last state.
    Yes,
}

/// The answer of [`judge`].
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// What to remember.
    pub state: HealthState,
    /// What to publish, if that is worth a write.
    pub publish: Option<Verdict>,
}

impl HealthState {
    /// State of a machine that this process has not probed yet. What its Proxy's status says about it
    /// (another leader may have written that) is the verdict to go on from.
    pub fn new(machine: Machine, facts: &ProxyFacts) -> Self {
        Self {
            machine,
            verdict: facts.healthy,
            fresh: facts.healthy.is_none(),
            successes: 0,
            failures: 0,
            failing_since: None,
            cause: None,
            blamed: None,
            reported_cause: None,
            reported_latency: facts.healthy.and(facts.latency),
            moved: 0,
            reported_at: None,
            confirmed: false,
            since_fall: None,
        }
    }

    /// The machine it is about.
    pub fn incarnation(&self) -> &Incarnation {
        &self.machine.incarnation
    }

    /// The judgement after thresholds; none before the first.
    pub fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    /// Why the last probe failed and what to do; none if it passed, or none ended yet.
    pub fn failure(&self) -> Option<(ProbeReason, &str)> {
        self.cause.as_ref().map(|(cause, _)| (cause.reason, cause.message.as_str()))
    }

    /// The row of failures is the proxy's own: all of it, or as much as makes it fall by itself.
    pub(super) fn own_fault(&self, plan: &ProbePlan) -> bool {
        let enough = self.failures.min(plan.failure_threshold.max(1));
        self.blamed.is_some_and(|(blame, count)| blame == Blame::Proxy && count >= enough)
    }

    fn healthy_verdict(&mut self, latency: Duration, now: Now) -> Verdict {
        self.verdict = Some(true);
        self.since_fall = None;
        self.reported_cause = None;
        self.reported_latency = Some(latency);
        self.moved = 0;
        self.reported_at = Some(now.mono);
        self.confirmed_verdict(latency, now)
    }

    /// A healthy verdict that nobody needs to write.
    fn confirmed_verdict(&mut self, latency: Duration, now: Now) -> Verdict {
        self.confirmed = true;
        Verdict {
            machine: self.machine.clone(),
            healthy: true,
            reason: PROBE_SUCCEEDED,
            message: "a probe through the proxy succeeded".to_owned(),
            latency: Some(latency),
            probed_at: now.wall,
        }
    }

    fn unhealthy_verdict(&mut self, cause: Cause, now: Now) -> Verdict {
        if self.verdict == Some(true) {
            self.since_fall = Some(0);
        }
        self.verdict = Some(false);
        self.reported_at = Some(now.mono);
        self.confirmed = true;
        let verdict = Verdict {
            machine: self.machine.clone(),
            healthy: false,
            reason: cause.reason.as_str(),
            message: cause.message.clone(),
            latency: self.reported_latency,
            probed_at: now.wall,
        };
        self.reported_cause = Some(cause);
        verdict
    }

    /// The verdict that this machine had before it fell, for a fall that is taken back.
    pub(super) fn healthy_again(mut self, now: Now) -> Judgement {
        let latency = self.reported_latency;
        let publish = Verdict { latency, ..self.healthy_verdict(latency.unwrap_or_default(), now) };
        self.reported_latency = latency;
        Judgement { state: self, publish: Some(publish) }
    }

    fn may_report_again(&self, now: Now) -> bool {
        self.reported_at.is_none_or(|at| now.mono.since(at) >= MIN_REPORT_INTERVAL)
    }
}

/// Takes in the outcome of a probe of this machine. `now` is when the probe ended.
pub fn judge(state: &HealthState, plan: &ProbePlan, outcome: &Outcome, hold: Hold, now: Now) -> Judgement {
    let state = state.clone();
    match outcome {
        Outcome::Passed { latency } => passed(state, plan, *latency, now),
        Outcome::Failed { reason, message } => {
            let cause = Cause { reason: *reason, message: message.clone() };
            failed(state, plan, cause, hold, now)
        }
    }
}

fn passed(mut state: HealthState, plan: &ProbePlan, latency: Duration, now: Now) -> Judgement {
    state.fresh = false;
    state.successes = state.successes.saturating_add(1);
    state.failures = 0;
    state.failing_since = None;
    state.cause = None;
    state.blamed = None;
    let publish = if state.verdict == Some(true) {
        let moved = state.reported_latency.is_some_and(|reported| has_moved(reported, latency));
        state.moved = if moved { state.moved.saturating_add(1) } else { 0 };
        match state.reported_latency {
            // The first confirmation in this process: whoever follows the verdicts has none of this machine.
            // It is no report: a latency that was wrong before is put right by three probes of this process,
            // whenever the first of them was.
            Some(reported) if !state.confirmed => Some(state.confirmed_verdict(reported, now)),
            Some(_) if state.moved < LASTING => None,
            Some(_) | None => state.may_report_again(now).then(|| state.healthy_verdict(latency, now)),
        }
    } else {
        (state.successes >= plan.success_threshold.max(1)).then(|| state.healthy_verdict(latency, now))
    };
    Judgement { state, publish }
}

fn failed(mut state: HealthState, plan: &ProbePlan, cause: Cause, hold: Hold, now: Now) -> Judgement {
    let blame = cause.reason.blame();
    if blame == Blame::Ours && state.verdict == Some(true) {
        // The counters stay: neither a success nor a failure of the machine was seen.
        return Judgement { state, publish: None };
    }
    state.successes = 0;
    state.failures = state.failures.saturating_add(1);
    let since = *state.failing_since.get_or_insert(now.mono);
    let same = match state.cause.take() {
        Some((last, count)) if last == cause => count.saturating_add(1),
        Some(_) | None => 1,
    };
    state.cause = Some((cause.clone(), same));
    let alike = match state.blamed {
        Some((last, count)) if last == blame => count.saturating_add(1),
        Some(_) | None => 1,
    };
    state.blamed = Some((blame, alike));
    state.since_fall = state.since_fall.map(|count| count.saturating_add(1));

    let threshold = plan.failure_threshold.max(1);
    let enough = match (hold, blame) {
        (Hold::No, _) => state.failures >= threshold,
        (Hold::Yes, Blame::Undecided) => false,
        // Failures that are held do not count towards this one.
        (Hold::Yes, Blame::Proxy | Blame::Ours) => alike >= threshold,
    };
    let publish = match state.verdict {
        Some(true) => enough,
        None => {
            let settled = now.mono.since(since) >= SETTLE_TIME.min(plan.interval.saturating_mul(threshold));
            enough && settled
        }
        Some(false) => {
            state.reported_cause.as_ref() != Some(&cause) && same >= threshold && state.may_report_again(now)
        }
    };
    let publish = publish.then(|| state.unhealthy_verdict(cause, now));
    Judgement { state, publish }
}

fn has_moved(reported: Duration, latency: Duration) -> bool {
    reported.abs_diff(latency) > MIN_LATENCY_CHANGE.max(reported / 2)
}
