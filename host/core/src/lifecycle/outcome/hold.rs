//! Failures: remembered, and answered with a wait.

use std::time::Duration;

use crate::lifecycle::backoff::wait_after;
use crate::lifecycle::memory::{Call, NotBefore, Trouble};
use crate::lifecycle::{Observed, Policy};
use crate::provider::{Failure, HostFault, Reason};
use crate::time::Moment;

/// A call went well: its own trouble is over.
pub(super) fn succeeded(observed: &mut Observed, call: Call) {
    let memory = &mut observed.memory;
    if memory.trouble.as_ref().is_some_and(|trouble| trouble.call == call) {
        memory.trouble = None;
        memory.failures = 0;
    }
}

/// A call failed: remember it and hold further calls.
pub(super) fn failed(observed: &mut Observed, call: Call, failure: &Failure, policy: &Policy, now: Moment) {
    let memory = &mut observed.memory;
    if failure.reason != Reason::Host(HostFault::NoPermit) {
        memory.failures = memory.failures.saturating_add(1);
        memory.trouble = Some(Trouble { call, failure: failure.clone() });
    }
    let (failures, seed) = (observed.memory.failures, observed.memory.seed);
    if let Some(wait) = wait_after(call, failure, failures, seed, policy) {
        hold(observed, now, wait);
    }
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
