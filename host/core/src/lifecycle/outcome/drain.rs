//! Since when a machine drains: by the monotonic clock of this process, and before that by what the status says.

use std::time::Duration;

use crate::crd::{ConditionType, ProxyStatus};
use crate::lifecycle::{DrainSeen, Observed};
use crate::time::Now;

/// Remembers the drain that the status shows, or forgets the one that it no longer shows.
pub(super) fn note(observed: &mut Observed, now: Now) {
    let Some(incarnation) = observed.object.draining().map(str::to_owned) else {
        observed.memory.drain = None;
        return;
    };
    let known = observed.memory.drain.as_ref().is_some_and(|drain| drain.incarnation == incarnation);
    if !known {
        let before = before_this_process(&observed.object.status, now);
        observed.memory.drain = Some(DrainSeen { incarnation, at: now.mono, before });
    }
}

/// How long it has drained by the wall clock, which stands in for what a process before this one knew.
fn before_this_process(status: &ProxyStatus, now: Now) -> Duration {
    let ready = status.conditions.iter().find(|condition| condition.type_ == ConditionType::Ready.as_str());
    let since = ready.map_or(now.wall, |condition| condition.last_transition_time.0);
    Duration::try_from(now.wall.duration_since(since)).unwrap_or_default()
}
