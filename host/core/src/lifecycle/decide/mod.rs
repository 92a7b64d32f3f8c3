//! The decision: one look at what is observed, one effect. Rows and their order are those of the table in
//! `docs/lifecycle.md`; each ends in a [`Decision`] that names its row.
//!
//! Status is written where it must stand before the next effect, and at the end of the pass if it says
//! something new. Everything else has an effect of its own.

mod external;

use crate::time::Now;

use super::status::HealthView;
use super::{Action, Decision, Observed, Policy, Requeue, Stage, StatusIntent, needs_write, render};

/// Decides the next effect.
pub fn decide(observed: &Observed, policy: &Policy, now: Now) -> Decision {
    if observed.object.is_managed() {
        let status = StatusIntent { stage: Stage::Untouched, machine: None, latch: None };
        return rest(observed, "managed", status, Requeue::After(policy.drift_poll), now);
    }
    external::decide(observed, now)
}

/// Ends the pass; writes the status first if it has something new to say.
fn rest(
    observed: &Observed,
    row: &'static str,
    status: StatusIntent,
    requeue: Requeue,
    now: Now,
) -> Decision {
    let action = write_if_new(observed, &status, now).unwrap_or(Action::Wait);
    Decision { action, requeue, status, row }
}

/// The status write, if the object does not say so already and this pass did not just write it.
fn write_if_new(observed: &Observed, intent: &StatusIntent, now: Now) -> Option<Action> {
    let health = HealthView {
        configured: observed.surroundings.probe_configured,
        verdict: observed.surroundings.verdict.as_ref(),
    };
    let wanted = render(&observed.object, intent, health, now);
    let new = needs_write(&observed.object.status, &wanted)
        && observed.pass.written.as_ref().is_none_or(|written| needs_write(written, &wanted));
    new.then(|| Action::WriteStatus(Box::new(wanted)))
}
