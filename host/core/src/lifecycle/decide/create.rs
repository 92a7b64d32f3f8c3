//! There is no machine: find out for certain, write down what is going to be made, make it, record it.
//!
//! Never two machines: once our finalizer is there, a create may have come before this pass. Then the
//! planned id and the complete list are asked first, and what they show is adopted or deleted.

use crate::crd::Phase;
use crate::ids::Incarnation;
use crate::lifecycle::{
    Action, Decision, MachineSeen, ProviderFacts, ProvisionedReason, Purpose, RecordedMachine, Refusal,
    Requeue, SpecHash, Stage, StatusIntent,
};
use crate::provider::{CreatePlan, FailureClass, Instance, InstanceState};

use super::context::{Context, act, intent, is_running};
use super::leave::{Leave, again, leave, stays};
use super::managed::{Wanted, held};
use super::removal::delete_only_message;
use super::request::{Desired, create_request, metadata_patch};
use super::search::{self, Found};

/// The steps, in order.
pub(super) fn decide(cx: &Context<'_>, provider: &ProviderFacts, wanted: Wanted) -> Decision {
    let object = &cx.observed.object;
    if let Some(made) = &cx.observed.memory.unrecorded {
        match cx.seen(&made.id) {
            Some(MachineSeen::Found(instance)) => return record(cx, "the_new_machine_is_recorded", instance),
            None => return cx.get("an_unrecorded_machine_is_looked_at", &made.id),
            Some(MachineSeen::CouldNotTell(_)) => return held(cx, false, cx.policy.provisioning_poll),
            Some(MachineSeen::Absent(_)) => {}
        }
    }
    if let Some(decision) = absent(cx, provider) {
        return decision;
    }
    let wanted = makeable(cx, wanted);
    let may_exist = object.has_finalizer() && !cx.observed.pass.added_finalizer;
    if may_exist && (wanted.is_ok() || !cx.observed.memory.saw_all_creates_answered()) {
        let (hash, meanwhile) = match &wanted {
            Ok(wanted) => (Some(&wanted.hash), intent(Stage::Creating)),
            Err(stuck) => (stuck.hash.as_ref(), stuck.status.clone()),
        };
        match search::machines(cx, &provider.info, hash, &meanwhile) {
            Found::Next(decision) => return *decision,
            Found::Adopt(instance) => return record(cx, "a_found_machine_is_adopted", instance),
            Found::None => {}
        }
    }
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(stuck) => {
            let requeue = until_settled(cx, provider, stuck.requeue);
            return cx.rest(stuck.row, stuck.status, requeue);
        }
    };
    if provider.info.settings.delete_only {
        let stage =
            Stage::Blocked(ProvisionedReason::ProviderUnavailable, delete_only_message(&provider.info));
        return cx.rest("the_provider_only_deletes", intent(stage), Requeue::After(cx.policy.slow_poll));
    }
    make(cx, provider, &wanted)
}

/// No machine can be made, for what stands in this row. One that an earlier create made, or still makes, is looked for
/// nonetheless: no status names it, and nobody else would.
struct Stuck {
    row: &'static str,
    status: StatusIntent,
    requeue: Requeue,
    /// What a machine has to be made from to be kept; if that is not known, any that is found is.
    hash: Option<SpecHash>,
}

/// What is wanted, or why it can't be made.
fn makeable(cx: &Context<'_>, wanted: Wanted) -> Result<Desired, Box<Stuck>> {
    match wanted {
        Ok(wanted) if cx.observed.object.status.latch.as_deref() == Some(wanted.key.as_str()) => {
            let status = StatusIntent { latch: Some(wanted.key), ..cx.kept(None) };
            let row = "a_permanent_failure_is_latched";
            Err(Box::new(Stuck { row, status, requeue: Requeue::OnChange, hash: Some(wanted.hash) }))
        }
        Ok(wanted) => Ok(wanted),
        Err((reason, message)) => {
            let status = intent(Stage::Blocked(reason, message));
            let requeue = Requeue::After(cx.policy.slow_poll);
            Err(Box::new(Stuck { row: "the_cloud_init_is_unusable", status, requeue, hash: None }))
        }
    }
}

/// When to look again where no machine can be made: until no earlier create can land any more, not later than then.
fn until_settled(cx: &Context<'_>, provider: &ProviderFacts, otherwise: Requeue) -> Requeue {
    if !cx.observed.object.has_finalizer() || cx.observed.memory.saw_all_creates_answered() {
        return otherwise;
    }
    let left = search::time_to_settle(cx, provider).unwrap_or(cx.policy.young_poll);
    match otherwise {
        Requeue::After(wait) => Requeue::After(wait.min(left)),
        Requeue::OnChange | Requeue::Done => Requeue::After(left),
    }
}

/// The machine that status names is not there. Another one is made in its place when the ledger lets it; until
/// then it stays as it is.
pub(super) fn absent(cx: &Context<'_>, provider: &ProviderFacts) -> Option<Decision> {
    let object = &cx.observed.object;
    let id = object.recorded_id()?;
    let incarnation = object.status.incarnation.as_deref().and_then(|text| Incarnation::parse(text).ok());
    let target = (&id, incarnation.as_ref());
    // One that was hidden before was taken away by this operator, or is known to have gone.
    let hidden = object.status.phase == Phase::Replacing && object.status.ip.is_none();
    let purpose = if hidden { Purpose::Removal } else { Purpose::Repair };
    let stage = Stage::Replacing("the machine went away and is made anew".to_owned());
    match leave(cx, "an_absent_machine_asks_for_another", &provider.info, target, purpose) {
        Leave::Ask(decision) => return Some(*decision),
        Leave::Wait(why, retry) => {
            let row = "an_absent_machine_waits_for_another";
            if !hidden || why == Refusal::Suspect {
                return Some(stays(cx, row, &provider.info, why, retry));
            }
            let scope = object.status.provider_scope.clone();
            let machine = Some(RecordedMachine { id, scope, incarnation, running: None });
            let status = StatusIntent { machine, ..intent(stage) };
            return Some(cx.rest(row, status, again(cx, retry)));
        }
        Leave::Granted => {}
    }
    // A request for another machine is settled, and an address is hidden, before the next one is made.
    let unsettled = object.replace_nonce != object.status.replace_nonce && object.replace_nonce.is_some();
    if object.status.ip.is_none() && !unsettled && object.status.replacing.is_none() {
        return None;
    }
    let status = intent(stage);
    let action = cx.write_if_new(&status)?;
    Some(act("a_vanished_machine_is_hidden", action, status))
}

/// Nothing exists: validate, write down, look, create.
fn make(cx: &Context<'_>, provider: &ProviderFacts, wanted: &Desired) -> Decision {
    let untouched = || intent(Stage::Untouched);
    let request = match create_request(cx, &provider.info, &wanted.hash) {
        Ok(request) => Box::new(request),
        Err((reason, message)) => {
            let status = intent(Stage::Blocked(reason, message));
            return cx.rest("the_credentials_are_unusable", status, Requeue::After(cx.policy.slow_poll));
        }
    };
    let plan = match &cx.observed.pass.plan {
        Some((key, Ok(plan))) if *key == wanted.key => plan,
        Some((key, Err(failure))) if *key == wanted.key => {
            if failure.class() != FailureClass::Latch {
                return held(cx, false, cx.policy.provisioning_poll);
            }
            let stage = Stage::Blocked(ProvisionedReason::PermanentError, failure.message.clone());
            let status = StatusIntent { latch: Some(wanted.key.clone()), ..intent(stage) };
            let requeue = until_settled(cx, provider, Requeue::OnChange);
            return cx.rest("the_request_can_not_work", status, requeue);
        }
        Some(_) | None => {
            let action = Action::ValidateCreate { key: wanted.key.clone(), request };
            return act("the_request_is_checked", action, untouched());
        }
    };
    if let Some(left) = unsettled(cx, provider, wanted, plan) {
        let status = intent(Stage::Creating);
        return cx.rest("an_earlier_create_may_still_land", status, left);
    }
    if let Some(patch) =
        metadata_patch(&cx.observed.object, &wanted.hash, plan.id.as_ref(), &provider.info.scope)
    {
        return act("what_will_be_made_is_written_down", Action::PatchMetadata(patch), untouched());
    }
    if !cx.is_fresh() {
        return act("the_object_is_looked_at_before_the_create", Action::LookAgain, untouched());
    }
    let action = Action::Create { key: wanted.key.clone(), request };
    act("the_machine_is_made", action, untouched())
}

/// Time until an earlier create, sent for something else and never answered, can no longer land. A repeat
/// under the same id, or of the same request, needs no wait: it finds what the first one made.
fn unsettled(
    cx: &Context<'_>,
    provider: &ProviderFacts,
    wanted: &Desired,
    plan: &CreatePlan,
) -> Option<Requeue> {
    let object = &cx.observed.object;
    if cx.observed.pass.added_finalizer || !object.has_finalizer() {
        return None;
    }
    let same = match (&object.planned_id, &plan.id) {
        (Some(before), Some(now)) => before == now,
        (None, None) => object.spec_hash.as_deref() == Some(wanted.hash.annotation().as_str()),
        (Some(_), None) | (None, Some(_)) => false,
    };
    if same || cx.observed.memory.saw_all_creates_answered() {
        return None;
    }
    search::time_to_settle(cx, provider).map(Requeue::After)
}

/// Writes the id of a machine that exists into status.
fn record(cx: &Context<'_>, row: &'static str, instance: &Instance) -> Decision {
    let stage = match &instance.state {
        InstanceState::Running if is_running(instance) && !cx.is_going(instance) => Stage::Running,
        InstanceState::Running
        | InstanceState::Provisioning
        | InstanceState::Stopping
        | InstanceState::Stopped
        | InstanceState::Deleting
        | InstanceState::Failed
        | InstanceState::Other(_) => Stage::Provisioning(None),
    };
    let running = stage == Stage::Running;
    let status = cx.intent_with(stage, instance, running);
    cx.rest(row, status, Requeue::After(cx.policy.provisioning_poll))
}
