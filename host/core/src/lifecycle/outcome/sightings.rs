//! What `get` and the listing say of machines: sightings, absences, and their timers.

use crate::lifecycle::memory::{Call, DeleteCause, DeleteSent, LastSeen, Memory};
use crate::lifecycle::tags::decisive;
use crate::lifecycle::{ListSeen, MachineSeen, Observed, Owner, Policy, ProviderView, backoff};
use crate::provider::{Failure, Instance, InstanceRef, InstanceState, Listing, Observation, Reason};
use crate::time::Moment;

use super::hold::{failed, hold, succeeded};

/// Answer of `get`.
pub(super) fn got(
    observed: &mut Observed,
    target: &InstanceRef,
    result: Result<Observation, Failure>,
    policy: &Policy,
    now: Moment,
) {
    let was_asked = !result.as_ref().is_err_and(Failure::got_no_permit);
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
    let last = observed.memory.last_seen.as_mut().filter(|last| last.instance.id == target.id);
    if let Some(last) = last.filter(|_| was_asked) {
        last.asked = now; // also if it could not tell, or it is not ours: an older list must not say otherwise
    }
    observed.pass.machines.insert(target.id.clone(), seen);
}

/// A machine of ours was seen: absences before it count no longer, and its timers go on.
pub(super) fn note_found(observed: &mut Observed, instance: &Instance, policy: &Policy, now: Moment) {
    if !Owner::new(&observed.object.uid, &observed.surroundings.cluster).owns(instance) {
        return;
    }
    let memory = &mut observed.memory;
    memory.absent_since = None;
    memory.counted_absent.take_if(|id| *id == instance.id);
    let known_delete = memory.deletes.get(&instance.id);
    if known_delete.is_some_and(|sent| sent.incarnation.is_some() && sent.incarnation != instance.incarnation)
    {
        memory.deletes.remove(&instance.id); // another machine under the same id
    }
    if instance.state != InstanceState::Deleting {
        // That was a wrong sight.
        memory.deletes.retain(|id, sent| *id != instance.id || sent.cause != DeleteCause::Sighted);
    }
    if instance.state == InstanceState::Deleting && !memory.deletes.contains_key(&instance.id) {
        let incarnation = instance.incarnation.clone();
        let sent = DeleteSent { at: now, incarnation, ask_after: None, cause: DeleteCause::Sighted };
        memory.deletes.insert(instance.id.clone(), sent);
    }
    let before = memory
        .last_seen
        .take()
        .filter(|seen| seen.instance.id == instance.id && seen.instance.incarnation == instance.incarnation);
    let runs = instance.state == InstanceState::Running && !instance.endpoints.is_empty();
    let running_since = runs.then(|| before.as_ref().and_then(|seen| seen.running_since).unwrap_or(now));
    let ever_ran = runs || before.as_ref().is_some_and(|seen| seen.ever_ran);
    let problem = if runs { None } else { lasting_problem(before.as_ref(), instance) };
    let making_since = (!runs).then(|| before.and_then(|seen| seen.making_since).unwrap_or(now));
    let tags = decisive(&instance.tags);
    let instance = Instance { problem, tags, ..instance.clone() };
    memory.last_seen =
        Some(LastSeen { instance, at: now, asked: now, making_since, running_since, ever_ran });
    note_settled(memory, policy, now);
}

/// A machine that has run for long ends the counting of those that vanished before it.
pub(super) fn note_settled(memory: &mut Memory, policy: &Policy, now: Moment) {
    let since = memory.last_seen.as_ref().and_then(|seen| seen.running_since);
    if since.is_some_and(|since| now.since(since) >= policy.settled_after) {
        memory.vanished = 0;
    }
}

/// What goes wrong with a machine that is being made: the first text of a problem stays while its reason does,
/// and a problem stays until another comes or the machine runs. A failure that comes and goes, each time in
/// other words, would else be written again and again.
fn lasting_problem(before: Option<&LastSeen>, instance: &Instance) -> Option<Failure> {
    let known = before.and_then(|seen| seen.instance.problem.as_ref());
    match (known, &instance.problem) {
        (Some(known), Some(new)) if known.reason != new.reason => Some(new.clone()),
        (Some(known), Some(_) | None) => Some(known.clone()),
        (None, new) => new.clone(),
    }
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
    let deleted = memory.deletes.remove(&target.id);
    let known = memory.last_seen.take_if(|seen| seen.instance.id == target.id).is_some();
    memory.unrecorded.take_if(|made| made.id == target.id);
    let wanted = deleted.is_some_and(|sent| sent.cause == DeleteCause::Wanted);
    let counted = memory.counted_absent.replace(target.id.clone()).is_some_and(|id| id == target.id);
    if wanted || counted || observed.object.deleting || !(expected || known) {
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

/// Answer of the listing; only what is ours counts.
pub(super) fn listed(
    observed: &mut Observed,
    result: Result<Listing, Failure>,
    policy: &Policy,
    now: Moment,
) {
    observed.pass.list = Some(match result {
        Ok(listing) => {
            succeeded(observed, Call::List);
            let owner = Owner::new(&observed.object.uid, &observed.surroundings.cluster);
            let complete = listing.is_complete();
            let ours: Vec<Instance> = listing.items.into_iter().filter(|item| owner.owns(item)).collect();
            if !ours.is_empty() {
                observed.memory.absent_since = None;
            } else if complete {
                note_empty(observed, now);
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

/// The list is complete and empty. Far enough from the first time, every create is accounted for.
fn note_empty(observed: &mut Observed, now: Moment) {
    let settle = match &observed.surroundings.provider {
        ProviderView::Ready(provider) => Some(provider.settle()),
        ProviderView::Unknown(_) | ProviderView::Loading | ProviderView::Failed { .. } => None,
    };
    let memory = &mut observed.memory;
    let since = *memory.absent_since.get_or_insert(now);
    if settle.is_some_and(|settle| now.since(since) > settle) {
        memory.first_touch = true;
        memory.unanswered_create = false;
        memory.create_in_flight = false;
    }
}
