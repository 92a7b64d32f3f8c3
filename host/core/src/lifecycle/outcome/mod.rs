//! Folds the outcome of an effect into what is observed: the only place where [`super::Pass`] and [`super::Memory`]
//! change. Pure, and shared by the operator and the simulator of the tests.

mod calls;
mod drain;
mod hold;
mod sightings;
mod survey;

pub use survey::{is_surveyed, seen_in_list};

use crate::crd::ProxyStatus;
use crate::provider::{CreatePlan, Deletion, Failure, Instance, InstanceRef, Listing, Observation};
use crate::time::Now;

use super::memory::Call;
use super::pass::{ApiState, Presence};
use super::{Action, Admission, Ask, ObjectFacts, Observed, Policy};

/// What came of an effect.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Of [`super::Action::LookAgain`].
    Looked(Written),
    /// Of [`super::Action::PatchMetadata`].
    MetadataPatched(Written),
    /// Of [`super::Action::WriteStatus`].
    StatusWritten {
        /// The status that was to be written.
        asked: Box<ProxyStatus>,
        /// The answer.
        result: Written,
    },
    /// Of [`super::Action::AskLeave`].
    Asked {
        /// As given with the action.
        ask: Ask,
        /// The answer.
        admission: Admission,
    },
    /// Of [`super::Action::RemoveFinalizer`] and [`super::Action::Abandon`].
    FinalizerRemoved(Written),
    /// Of [`super::Action::ValidateCreate`].
    Validated {
        /// As given with the action.
        key: String,
        /// The answer.
        result: Result<CreatePlan, Failure>,
    },
    /// Of [`super::Action::Get`].
    Got {
        /// As given with the action.
        target: InstanceRef,
        /// The answer.
        result: Result<Observation, Failure>,
    },
    /// Of [`super::Action::ListOwned`].
    Listed(Result<Listing, Failure>),
    /// Of [`super::Action::Create`].
    Created {
        /// As given with the action.
        key: String,
        /// The answer.
        result: Result<Instance, Failure>,
    },
    /// Of [`super::Action::Delete`].
    Deleted {
        /// As given with the action.
        target: InstanceRef,
        /// The answer.
        result: Result<Deletion, Failure>,
    },
}

/// Answer of the API server to a look or a guarded write.
#[derive(Debug, Clone)]
pub enum Written {
    /// The object as it is now.
    Done(Box<ObjectFacts>),
    /// 409, or 422 of a failed `test`: the object is newer than we thought.
    Conflict,
    /// 404: no such object. Another uid under the name is found out from `Done`.
    Gone,
    /// No answer, or another one: the effect is unknown. For the log.
    Failed(String),
    /// It was not sent, or its answer was not waited for, since this process may not act: the effect is unknown, and
    /// nothing is learned.
    HeldBack,
}

/// Call it, and keep the memory, before an effect is carried out: if its outcome never comes back, not even
/// as a failure, a create counts as unanswered.
pub fn sending(observed: &mut Observed, action: &Action) {
    if matches!(action, Action::Create { .. }) {
        let memory = &mut observed.memory;
        memory.unanswered_create |= memory.create_in_flight; // the answer to come is not that one's
        memory.create_in_flight = true;
        memory.absent_since = None;
    }
}

/// Folds an outcome in. `now` is the time at which the answer came.
pub fn absorb(observed: &mut Observed, outcome: Outcome, policy: &Policy, now: Now) {
    observed.pass.steps = observed.pass.steps.saturating_add(1);
    match outcome {
        Outcome::Looked(answer) => {
            absorb_object(observed, answer, now);
        }
        Outcome::MetadataPatched(answer) => absorb_metadata(observed, answer, now),
        Outcome::StatusWritten { asked, result } => absorb_status(observed, asked, result, now),
        Outcome::FinalizerRemoved(answer) => {
            let done = matches!(answer, Written::Done(_) | Written::Gone);
            if done {
                observed.pass.api = ApiState::FinalizerRemoved;
            } else {
                absorb_object(observed, answer, now);
            }
        }
        Outcome::Validated { key, result } => {
            observed.memory.checked = None;
            match &result {
                Ok(_) => {
                    hold::succeeded(observed, Call::Validate);
                    observed.memory.checked = Some((key.clone(), now.mono));
                }
                Err(failure) => hold::failed(observed, Call::Validate, failure, policy, now.mono),
            }
            observed.pass.plan = Some((key, result));
        }
        Outcome::Asked { ask, admission } => observed.pass.answers.push((ask, admission)),
        Outcome::Got { target, result } => sightings::got(observed, &target, result, policy, now.mono),
        Outcome::Listed(result) => sightings::listed(observed, result, policy, now.mono),
        Outcome::Created { key, result } => calls::created(observed, key, result, policy, now.mono),
        Outcome::Deleted { target, result } => calls::deleted(observed, &target, result, policy, now.mono),
    }
    drain::note(observed, now);
}

/// True if the object was read or written.
fn absorb_object(observed: &mut Observed, answer: Written, now: Now) -> bool {
    match answer {
        Written::Done(object) => {
            observed.pass.api = ApiState::Fine;
            if object.uid == observed.object.uid {
                let refused = observed.pass.refused_at.take();
                if refused.as_ref() == Some(&object.resource_version) {
                    // Nothing was newer after all: the write itself is not welcome.
                    return trouble(observed);
                }
                observed.memory.api_failures = 0;
                observed.object = *object;
                observed.pass.presence = Presence::Live;
                observed.pass.looked_at = Some(now.mono);
                true
            } else {
                observed.pass.presence = Presence::Gone;
                false
            }
        }
        Written::Conflict => {
            observed.pass.api = ApiState::Conflict;
            observed.pass.refused_at = Some(observed.object.resource_version.clone());
            false
        }
        Written::Gone => {
            observed.memory.api_failures = 0;
            observed.pass.presence = Presence::Gone;
            false
        }
        Written::Failed(_) => trouble(observed),
        Written::HeldBack => {
            observed.pass.api = ApiState::Trouble;
            false
        }
    }
}

/// The API server can't be used now; the pass ends.
fn trouble(observed: &mut Observed) -> bool {
    observed.memory.api_failures = observed.memory.api_failures.saturating_add(1);
    observed.pass.api = ApiState::Trouble;
    false
}

fn absorb_metadata(observed: &mut Observed, answer: Written, now: Now) {
    let before = &observed.object;
    let untouched = !before.has_finalizer()
        && before.spec_hash.is_none()
        && before.planned_id.is_none()
        && before.status.provider_id.is_none();
    if absorb_object(observed, answer, now) && untouched && observed.object.has_finalizer() {
        observed.pass.added_finalizer = true;
        observed.memory.first_touch = true;
    }
}

fn absorb_status(observed: &mut Observed, asked: Box<ProxyStatus>, answer: Written, now: Now) {
    if absorb_object(observed, answer, now) {
        let recorded = asked.provider_id.as_deref();
        if observed.memory.unrecorded.as_ref().is_some_and(|made| Some(made.id.as_str()) == recorded) {
            observed.memory.unrecorded = None;
        }
        observed.pass.written = Some(*asked);
    }
}
