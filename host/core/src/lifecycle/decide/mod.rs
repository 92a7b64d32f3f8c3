//! The decision: one look at what is observed, one effect. Rows and their order are those of the table in
//! `docs/lifecycle.md`; each [`Decision`] names its row.
//!
//! Status is written where it must stand before the next effect, and at the end of the pass if it says
//! something new. A decision never deletes what was not seen in this pass to be ours, and never creates
//! without a fresh look at the object.

mod context;
mod create;
mod delete;
mod external;
mod fit;
mod foreign;
mod gone;
mod leave;
mod managed;
mod removal;
mod replace;
mod request;
mod search;
#[cfg(test)]
mod tests;

use context::{Context, act, intent, stop};

use crate::time::Now;

use super::pass::{ApiState, Presence};
use super::{Action, Decision, Observed, Policy, Requeue, Stage, backoff};

/// Decides the next effect.
pub fn decide(observed: &Observed, policy: &Policy, now: Now) -> Decision {
    let cx = Context { observed, policy, now };
    let pass = &observed.pass;
    match pass.api {
        ApiState::Fine | ApiState::Conflict => {}
        ApiState::FinalizerRemoved => return stop("the_finalizer_is_removed", Requeue::Done),
        ApiState::Trouble => {
            let (failures, seed) = (observed.memory.api_failures, observed.memory.seed);
            let wait = backoff::exponential(policy.backoff_first, policy.backoff_most, failures, seed);
            return stop("the_api_server_fails", Requeue::After(wait));
        }
    }
    if pass.steps >= policy.most_steps {
        return stop("the_pass_is_long_enough", Requeue::After(policy.backoff_first));
    }
    if pass.presence == Presence::Gone {
        return gone::decide(&cx);
    }
    if pass.api == ApiState::Conflict {
        return act("the_object_changed_meanwhile", Action::LookAgain, intent(Stage::Untouched));
    }
    if !observed.object.is_managed() {
        return external::decide(&cx);
    }
    if observed.object.deleting {
        return delete::decide(&cx);
    }
    managed::decide(&cx)
}
