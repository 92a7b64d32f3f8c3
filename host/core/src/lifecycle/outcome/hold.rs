//! Failures: remembered, and answered with a wait.

use std::time::Duration;

use crate::lifecycle::backoff::wait_after;
use crate::lifecycle::memory::{Call, NotBefore, Trouble};
use crate::lifecycle::{Memory, Observed, Policy};
use crate::provider::Failure;
use crate::time::Moment;

/// A call went well: its own trouble is over.
pub(super) fn succeeded(observed: &mut Observed, call: Call) {
    let memory = &mut observed.memory;
    got_a_permit(memory, call);
    if memory.trouble.as_ref().is_some_and(|trouble| trouble.call == call) {
        memory.trouble = None;
        memory.failures = 0;
    }
}

/// A call failed: remember it and hold further calls.
pub(super) fn failed(observed: &mut Observed, call: Call, failure: &Failure, policy: &Policy, now: Moment) {
    let memory = &mut observed.memory;
    let in_a_row = if failure.got_no_permit() {
        let times = memory.turned_away.map_or(0, |(_, times)| times).saturating_add(1);
        memory.turned_away = Some((call, times));
        times
    } else {
        got_a_permit(memory, call);
        memory.failures = memory.failures.saturating_add(1);
        memory.trouble = Some(Trouble { call, failure: failure.clone() });
        memory.failures
    };
    if let Some(wait) = wait_after(call, failure, in_a_row, memory.seed, policy) {
        hold(observed, now, wait);
    }
}

/// One of another kind says nothing: looks come through where deletes hang, which have permits of their own.
fn got_a_permit(memory: &mut Memory, call: Call) {
    memory.turned_away.take_if(|(of, _)| *of == call);
}

/// No call before `now + wait`, unless the object is edited; never shortens a wait.
pub(super) fn hold(observed: &mut Observed, now: Moment, wait: Duration) {
    let (generation, deleting) = (observed.object.generation, observed.object.deleting);
    let standing = observed
        .memory
        .not_before
        .as_ref()
        .filter(|held| held.generation == generation && held.deleting == deleting)
        .map(|held| held.at);
    let at = standing.map_or(now + wait, |standing| standing.max(now + wait));
    observed.memory.not_before = Some(NotBefore { at, generation, deleting });
}
