//! When the next probe of a machine starts.
//!
//! A new machine is probed at once, so it has no function here: it is due now.

use std::time::Duration;

use crate::facts::ProbePlan;
use crate::health::HealthState;
use crate::time::Moment;

/// Probes out of turn (a client's report, an edited plan) start at least this long after
/// the last one that was out of turn.
pub const MIN_FORCED_GAP: Duration = Duration::from_secs(10);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// First probe of a machine that already has a verdict: somewhere within its interval, so that a fleet taken
/// over is not probed in one burst. `seed` is a number that differs from machine to machine.
pub fn known_due(plan: &ProbePlan, seed: u64, now: Moment) -> Moment {
    let span = u64::try_from(interval(plan).as_millis()).unwrap_or(u64::MAX);
    now + Duration::from_millis(seed % span)
}

/// Next probe after one that started at `started`. A machine through which none has succeeded yet is asked
/// again after 1 s, 2 s, 4 s and so on up to the interval, because it is likely just starting.
pub fn next_due(state: &HealthState, plan: &ProbePlan, started: Moment) -> Moment {
    let gap = if state.fresh && state.failures > 0 {
        let doublings = state.failures.saturating_sub(1).min(20);
        FIRST_RETRY.saturating_mul(1 << doublings).min(interval(plan))
    } else {
        interval(plan)
    };
    started + gap
}

/// A probe out of turn: now, or [`MIN_FORCED_GAP`] after the last one that was out of turn.
pub fn forced_due(last_forced: Option<Moment>, now: Moment) -> Moment {
    last_forced.map_or(now, |at| now.max(at + MIN_FORCED_GAP))
}

fn interval(plan: &ProbePlan) -> Duration {
    plan.interval.max(MIN_INTERVAL)
}
