//! What create and delete say.

use crate::lifecycle::memory::{Call, DeleteCause, DeleteSent, Unrecorded};
use crate::lifecycle::{MachineSeen, Observed, Owner, Policy, ProviderView};
use crate::provider::{Deletion, Failure, FailureClass, Instance, InstanceRef, InstanceState, Reason};
use crate::time::Moment;

use super::hold::{failed, succeeded};
use super::sightings::note_found;

/// Answer of create. Without one the machine may exist, or may still come to be.
pub(super) fn created(
    observed: &mut Observed,
    key: String,
    result: Result<Instance, Failure>,
    policy: &Policy,
    now: Moment,
) {
    let owner = Owner::new(&observed.object.uid, &observed.surroundings.cluster);
    let scope = match &observed.surroundings.provider {
        ProviderView::Ready(provider) => Some(provider.info.scope.clone()),
        ProviderView::Unknown(_) | ProviderView::Loading | ProviderView::Failed { .. } => None,
    };
    let memory = &mut observed.memory;
    memory.absent_since = None;
    memory.create_in_flight = false;
    let result = result.and_then(
        |instance| {
            if owner.owns(&instance) { Ok(instance) } else { Err(foreign(&instance)) }
        },
    );
    match result {
        Ok(instance) => {
            memory.attempts = memory.attempts.saturating_add(1);
            memory.trouble = None;
            memory.failures = 0;
            memory.turned_away = None;
            memory.not_before = None;
            let (id, incarnation) = (instance.id.clone(), instance.incarnation.clone());
            memory.unrecorded = Some(Unrecorded { id, incarnation, scope });
            note_found(observed, &instance, policy, now);
            observed.pass.machines.insert(instance.id.clone(), MachineSeen::Found(Box::new(instance)));
        }
        Err(failure) => {
            if may_have_landed(&failure) {
                memory.unanswered_create = true;
                // What this pass saw was before it: an edit ends the back-off, and the pass may go on to create.
                observed.pass.added_finalizer = false;
                observed.pass.machines.clear();
                observed.pass.list = None;
            }
            let memory = &mut observed.memory;
            if was_answered(&failure) {
                memory.attempts = memory.attempts.saturating_add(1);
            }
            failed(observed, Call::Create, &failure, policy, now);
            observed.pass.plan = Some((key, Err(failure)));
        }
    }
}

/// An accepted delete is remembered, so that it is not repeated; one that failed is not.
pub(super) fn deleted(
    observed: &mut Observed,
    target: &InstanceRef,
    result: Result<Deletion, Failure>,
    policy: &Policy,
    now: Moment,
) {
    let ask_after = match result {
        Ok(Deletion::Gone) => {
            observed.pass.machines.remove(&target.id); // believed only when `get` says so
            None
        }
        Ok(Deletion::InProgress(ask_after)) => ask_after,
        Err(failure) => {
            failed(observed, Call::Delete, &failure, policy, now);
            return;
        }
    };
    succeeded(observed, Call::Delete);
    let memory = &mut observed.memory;
    let last = memory.last_seen.as_ref().filter(|seen| seen.instance.id == target.id);
    let useless = last.is_some_and(|seen| match &seen.instance.state {
        InstanceState::Stopped | InstanceState::Failed | InstanceState::Stopping => true,
        InstanceState::Provisioning
        | InstanceState::Running
        | InstanceState::Deleting
        | InstanceState::Other(_) => !seen.ever_ran,
    });
    let cause = if useless { DeleteCause::Useless } else { DeleteCause::Wanted };
    let sent = DeleteSent { at: now, incarnation: target.incarnation.clone(), ask_after, cause };
    memory.deletes.insert(target.id.clone(), sent);
}

/// The provider returned a machine that isn't ours: nobody may touch it.
fn foreign(instance: &Instance) -> Failure {
    let message = format!("machine {} exists and does not carry this Proxy's ownership tags", instance.id);
    Failure::new(Reason::NameTaken, message)
}

/// True if the machine may have been made, or may still be, although the call failed. A create can be more
/// than one request: one that was refused, or had no quota left, may have come after the one that counts.
fn may_have_landed(failure: &Failure) -> bool {
    match failure.class() {
        FailureClass::Retry
        | FailureClass::Throttle
        | FailureClass::Quota
        | FailureClass::Slow
        | FailureClass::HandsOff => true,
        FailureClass::Soon => !failure.got_no_permit(),
        FailureClass::Latch | FailureClass::NameConflict => false,
    }
}

/// True if the upstream has decided about this attempt: the next one is another. An upstream that remembers
/// attempt keys would give the old answer again.
fn was_answered(failure: &Failure) -> bool {
    match failure.class() {
        FailureClass::Throttle
        | FailureClass::Quota
        | FailureClass::Slow
        | FailureClass::Latch
        | FailureClass::NameConflict
        | FailureClass::HandsOff => true,
        FailureClass::Retry | FailureClass::Soon => false,
    }
}
