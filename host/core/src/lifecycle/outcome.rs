//! Folds the outcome of an effect into what is observed: the only place where [`Pass`] and [`Memory`]
//! change. Pure, and shared by the operator and the simulator of the tests.

use std::time::Duration;

use crate::crd::ProxyStatus;
use crate::provider::{
    CreatePlan, Deletion, Failure, FailureClass, HostFault, Instance, InstanceRef, InstanceState, Listing,
    Observation, Reason,
};
use crate::time::{Moment, Now};

use super::backoff::wait_after;
use super::memory::{Call, DeleteSent, LastSeen, NotBefore, Trouble, Unrecorded};
use super::pass::{ListSeen, MachineSeen, Presence};
use super::tags::Owner;
use super::{ObjectFacts, Observed, Policy, backoff};

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
    /// Of [`super::Action::RemoveFinalizer`].
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
}

/// Folds an outcome in. `now` is the time at which the answer came.
pub fn absorb(observed: &mut Observed, outcome: Outcome, policy: &Policy, now: Now) {
    match outcome {
        Outcome::Looked(answer) => {
            absorb_object(observed, answer, now);
        }
        Outcome::MetadataPatched(answer) => absorb_metadata(observed, answer, now),
        Outcome::StatusWritten { asked, result } => absorb_status(observed, asked, result, now),
        Outcome::FinalizerRemoved(answer) => {
            let done = matches!(answer, Written::Done(_) | Written::Gone);
            observed.pass.removed_finalizer |= done;
            if !done {
                absorb_object(observed, answer, now);
            }
        }
        Outcome::Validated { key, result } => {
            match &result {
                Ok(_) => succeeded(observed, Call::Validate),
                Err(failure) => failed(observed, Call::Validate, failure, policy, now.mono),
            }
            observed.pass.plan = Some((key, result));
        }
        Outcome::Got { target, result } => absorb_get(observed, &target, result, policy, now.mono),
        Outcome::Listed(result) => absorb_list(observed, result, policy, now.mono),
        Outcome::Created { key, result } => absorb_create(observed, key, result, policy, now.mono),
        Outcome::Deleted { target, result } => {
            let sent = DeleteSent { at: now.mono, incarnation: target.incarnation.clone() };
            observed.memory.deletes.insert(target.id.clone(), sent);
            match result {
                Ok(Deletion::Gone | Deletion::InProgress(_)) => succeeded(observed, Call::Delete),
                Err(failure) => failed(observed, Call::Delete, &failure, policy, now.mono),
            }
        }
    }
}

/// True if the object was read or written.
fn absorb_object(observed: &mut Observed, answer: Written, now: Now) -> bool {
    match answer {
        Written::Done(object) => {
            observed.memory.api_failures = 0;
            observed.pass.conflict = false;
            if object.uid == observed.object.uid {
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
            observed.pass.conflict = true;
            false
        }
        Written::Gone => {
            observed.memory.api_failures = 0;
            observed.pass.presence = Presence::Gone;
            false
        }
        Written::Failed(_) => {
            observed.memory.api_failures = observed.memory.api_failures.saturating_add(1);
            observed.pass.api_trouble = true;
            false
        }
    }
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

fn absorb_get(
    observed: &mut Observed,
    target: &InstanceRef,
    result: Result<Observation, Failure>,
    policy: &Policy,
    now: Moment,
) {
    let seen = match result {
        Ok(Observation::Found(instance)) => {
            succeeded(observed, Call::Get);
            note_found(observed, &instance, policy, now);
            MachineSeen::Found(instance)
        }
        Ok(Observation::Absent(cause)) => {
            succeeded(observed, Call::Get);
            note_absent(observed, target, cause.as_ref(), policy, now);
            MachineSeen::Absent(cause)
        }
        Err(failure) => {
            failed(observed, Call::Get, &failure, policy, now);
            MachineSeen::CouldNotTell(failure)
        }
    };
    observed.pass.machines.insert(target.id.clone(), seen);
}

/// A machine of ours was seen: absences before it count no longer, and its timers go on.
fn note_found(observed: &mut Observed, instance: &Instance, policy: &Policy, now: Moment) {
    if !Owner::new(&observed.object.uid, &observed.surroundings.cluster).owns(instance) {
        return;
    }
    let memory = &mut observed.memory;
    memory.absent_since = None;
    let known_delete = memory.deletes.get(&instance.id);
    if known_delete.is_some_and(|sent| sent.incarnation.is_some() && sent.incarnation != instance.incarnation)
    {
        memory.deletes.remove(&instance.id); // another machine under the same id
    }
    if instance.state == InstanceState::Deleting && !memory.deletes.contains_key(&instance.id) {
        let sent = DeleteSent { at: now, incarnation: instance.incarnation.clone() };
        memory.deletes.insert(instance.id.clone(), sent);
    }
    let before = memory
        .last_seen
        .take()
        .filter(|seen| seen.instance.id == instance.id && seen.instance.incarnation == instance.incarnation);
    let runs = instance.state == InstanceState::Running && !instance.endpoints.is_empty();
    let running_since = runs.then(|| before.as_ref().and_then(|seen| seen.running_since).unwrap_or(now));
    if running_since.is_some_and(|since| now.since(since) >= policy.settled_after) {
        memory.vanished = 0;
    }
    let making_since = (!runs).then(|| before.and_then(|seen| seen.making_since).unwrap_or(now));
    memory.last_seen = Some(LastSeen { instance: instance.clone(), at: now, making_since, running_since });
}

/// The machine is absent. If nobody here deleted it, it vanished: the second one in a row waits.
fn note_absent(
    observed: &mut Observed,
    target: &InstanceRef,
    cause: Option<&Failure>,
    policy: &Policy,
    now: Moment,
) {
    let expected = observed.object.recorded_id().as_ref() == Some(&target.id)
        || observed.memory.unrecorded.as_ref().is_some_and(|made| made.id == target.id);
    let memory = &mut observed.memory;
    let deleted = memory.deletes.remove(&target.id).is_some();
    let known = memory.last_seen.take_if(|seen| seen.instance.id == target.id).is_some();
    memory.unrecorded.take_if(|made| made.id == target.id);
    if deleted || observed.object.deleting || !(expected || known) {
        return;
    }
    memory.vanished = memory.vanished.saturating_add(1);
    if let Some(failure) = cause {
        failed(observed, Call::Create, failure, policy, now);
    }
    let again = observed.memory.vanished;
    if again > 1 {
        let wait = backoff::exponential(
            policy.backoff_first * 5,
            policy.vanish_most,
            again - 1,
            observed.memory.seed,
        );
        hold(observed, now, wait);
    }
}

fn absorb_list(observed: &mut Observed, result: Result<Listing, Failure>, policy: &Policy, now: Moment) {
    observed.pass.list = Some(match result {
        Ok(listing) => {
            succeeded(observed, Call::List);
            let owner = Owner::new(&observed.object.uid, &observed.surroundings.cluster);
            let complete = listing.is_complete();
            let ours: Vec<Instance> = listing.items.into_iter().filter(|item| owner.owns(item)).collect();
            if !ours.is_empty() {
                observed.memory.absent_since = None;
            } else if complete {
                observed.memory.absent_since.get_or_insert(now);
            }
            if complete {
                ListSeen::Complete(ours)
            } else {
                let failure = Failure::new(
                    Reason::Transient,
                    format!("these could not be listed now: {}", listing.unreachable.join(", ")),
                );
                failed(observed, Call::List, &failure, policy, now);
                ListSeen::Partial(ours, listing.unreachable)
            }
        }
        Err(failure) => {
            failed(observed, Call::List, &failure, policy, now);
            ListSeen::Failed(failure)
        }
    });
}

fn absorb_create(
    observed: &mut Observed,
    key: String,
    result: Result<Instance, Failure>,
    policy: &Policy,
    now: Moment,
) {
    let memory = &mut observed.memory;
    memory.absent_since = None;
    match result {
        Ok(instance) => {
            memory.attempts = memory.attempts.saturating_add(1);
            memory.trouble = None;
            memory.failures = 0;
            memory.not_before = None;
            memory.unrecorded =
                Some(Unrecorded { id: instance.id.clone(), incarnation: instance.incarnation.clone() });
            note_found(observed, &instance, policy, now);
            observed.pass.machines.insert(instance.id.clone(), MachineSeen::Found(Box::new(instance)));
        }
        Err(failure) => {
            if outcome_is_unknown(&failure) {
                memory.unanswered_create = true;
            } else {
                memory.attempts = memory.attempts.saturating_add(1);
            }
            failed(observed, Call::Create, &failure, policy, now);
            observed.pass.plan = Some((key, Err(failure)));
        }
    }
}

/// True if the machine may have been made, or may still be, although the call failed.
fn outcome_is_unknown(failure: &Failure) -> bool {
    match failure.class() {
        FailureClass::Retry => true,
        FailureClass::Soon => failure.reason != Reason::Host(HostFault::NoPermit),
        FailureClass::Throttle
        | FailureClass::Quota
        | FailureClass::Slow
        | FailureClass::Latch
        | FailureClass::NameConflict
        | FailureClass::HandsOff => false,
    }
}

/// A call went well: its own trouble is over.
fn succeeded(observed: &mut Observed, call: Call) {
    let memory = &mut observed.memory;
    if memory.trouble.as_ref().is_some_and(|trouble| trouble.call == call) {
        memory.trouble = None;
        memory.failures = 0;
    }
}

/// A call failed: remember it and hold further calls.
fn failed(observed: &mut Observed, call: Call, failure: &Failure, policy: &Policy, now: Moment) {
    let memory = &mut observed.memory;
    memory.failures = memory.failures.saturating_add(1);
    memory.trouble = Some(Trouble { call, failure: failure.clone() });
    observed.pass.provider_trouble = true;
    let (failures, seed) = (observed.memory.failures, observed.memory.seed);
    if let Some(wait) = wait_after(call, failure, failures, seed, policy) {
        hold(observed, now, wait);
    }
}

/// No call before `now + wait`, unless the object is edited; never shortens a wait.
fn hold(observed: &mut Observed, now: Moment, wait: Duration) {
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
