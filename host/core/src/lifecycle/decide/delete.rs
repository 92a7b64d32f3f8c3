//! The object is being deleted: every machine of it goes first, the finalizer last.
//!
//! Never a forgotten machine: the finalizer goes only when `get` finds none and the complete list is
//! empty; twice, if a create may still be under way. That a delete said "gone" is not enough.

use std::collections::BTreeSet;

use crate::crd::ABANDON_ANNOTATION;
use crate::ids::InstanceId;
use crate::lifecycle::pass::Presence;
use crate::lifecycle::{
    Action, Decision, ListSeen, MachineSeen, ProviderFacts, ProviderView, ProvisionedReason, Purpose,
    Requeue, Stage, StatusIntent,
};
use crate::provider::{Instance, ProviderInfo};

use super::context::{Context, Provider, act, intent, provider_of, scope_conflict, stop};
use super::leave::{Leave, leave_of};
use super::request::without_finalizer;
use super::search::{known, time_to_settle};

/// The steps, in order.
pub(super) fn decide(cx: &Context<'_>) -> Decision {
    let object = &cx.observed.object;
    if !object.has_finalizer() {
        return stop("a_deleted_proxy_without_finalizer_is_left", Requeue::OnChange);
    }
    if object.is_abandoned() {
        return abandon(cx);
    }
    let provider = match provider_of(cx) {
        // The answer that its machine is left behind may have been lost.
        Provider::Ready(_) if object.abandon && cx.observed.pass.presence != Presence::Live => {
            let untouched = intent(Stage::Untouched);
            return act("a_deletion_looks_whether_it_was_abandoned", Action::LookAgain, untouched);
        }
        Provider::Ready(provider) => provider,
        Provider::Loading => {
            return stop("the_provider_is_loading", Requeue::After(cx.policy.deletion_poll));
        }
        Provider::Unavailable(message) => {
            if object.abandon {
                return is_left_behind(cx);
            }
            let problem = (ProvisionedReason::ProviderUnavailable, ways_out(cx, &message));
            let requeue = Requeue::After(cx.policy.slow_poll);
            return cx.rest("a_deletion_waits_for_its_provider", deleting(Some(problem)), requeue);
        }
    };
    if let Some(problem) = scope_conflict(cx, &provider.info) {
        let requeue = Requeue::After(cx.policy.slow_poll);
        return cx.rest("a_deletion_waits_for_its_scope", deleting(Some(problem)), requeue);
    }
    if let Some(left) = cx.held_for() {
        let status = deleting(cx.trouble());
        return cx.rest("a_back_off_holds_the_deletion", status, Requeue::After(left));
    }
    for id in candidates(cx) {
        match cx.seen(&id) {
            None => return cx.get("a_deletion_looks_at_the_machine", &id),
            Some(MachineSeen::CouldNotTell(_)) => return unknown(cx), // asked before the object changed
            Some(MachineSeen::Found(_) | MachineSeen::Absent(_)) => {}
        }
    }
    if let Some(decision) = machines_go(cx, &provider.info) {
        return decision;
    }
    match &cx.observed.pass.list {
        None => {
            let action = Action::ListOwned(cx.owner().tags());
            return act("a_deletion_lists_the_machines", action, intent(Stage::Untouched));
        }
        Some(ListSeen::Partial(..) | ListSeen::Failed(_)) => return unknown(cx),
        Some(ListSeen::Complete(_)) => {}
    }
    finish(cx, provider)
}

/// Nobody can delete the machine now: there are two ways on. What is wrong comes last: it may be long, and an Event is
/// cut.
fn ways_out(cx: &Context<'_>, wrong: &str) -> String {
    let key = &cx.observed.object.key;
    let back = match &cx.observed.surroundings.provider {
        ProviderView::Unknown(_) => "Add it to the providers config again (mode: deleteOnly is enough)",
        ProviderView::Failed { .. } | ProviderView::Loading | ProviderView::Ready(_) => "Mend it",
    };
    format!(
        "the machine can't be deleted without its provider. {back}, or let this Proxy go without its machine, which \
         may go on and cost money: kubectl annotate px -n {} {} {ABANDON_ANNOTATION}=true. What is wrong: {wrong}",
        key.namespace, key.name
    )
}

/// A person said that the machine may be left behind, and nobody can be asked about it. That stands in the status
/// before it is told: who comes after this process, or after an answer that was lost, keeps the word, even if the
/// provider is back by then.
fn is_left_behind(cx: &Context<'_>) -> Decision {
    let machine = left_behind(cx);
    let message = format!(
        "the annotation crawl.example.com/abandon lets this Proxy go while provider {} is not available: machine \
         {} is not deleted with it. Remove it yourself; garbage collection does if the provider comes back",
        cx.observed.object.spec.provider.as_deref().unwrap_or_default(),
        machine.as_ref().map_or("of unknown id", InstanceId::as_str),
    );
    let status = deleting(Some((ProvisionedReason::Abandoned, message)));
    cx.rest("a_proxy_says_that_it_is_abandoned", status, Requeue::After(cx.policy.deletion_poll))
}

/// The status says so: the object goes.
fn abandon(cx: &Context<'_>) -> Decision {
    let patch = without_finalizer(&cx.observed.object);
    let action = Action::Abandon { patch, machine: left_behind(cx) };
    act("an_abandoned_proxy_leaves_its_machine_behind", action, intent(Stage::Untouched))
}

fn left_behind(cx: &Context<'_>) -> Option<InstanceId> {
    let object = &cx.observed.object;
    let made = cx.observed.memory.unrecorded.as_ref().map(|made| made.id.clone());
    object.recorded_id().or(made).or_else(|| object.planned_id.clone())
}

/// The provider could not tell: nothing follows from that.
fn unknown(cx: &Context<'_>) -> Decision {
    let requeue = Requeue::After(cx.policy.deletion_poll);
    cx.rest("a_back_off_holds_the_deletion", deleting(cx.trouble()), requeue)
}

/// Nothing is there: for certain?
fn finish(cx: &Context<'_>, provider: &ProviderFacts) -> Decision {
    let settled = cx.observed.memory.saw_all_creates_answered();
    if let Some(left) = time_to_settle(cx, provider).filter(|_| !settled) {
        let status = deleting(None);
        return cx.rest("a_deletion_waits_for_the_second_absence", status, Requeue::After(left));
    }
    let patch = without_finalizer(&cx.observed.object);
    act("nothing_is_left_the_finalizer_goes", Action::RemoveFinalizer(patch), intent(Stage::Untouched))
}

/// Ids under which there may be a machine.
fn candidates(cx: &Context<'_>) -> BTreeSet<InstanceId> {
    let object = &cx.observed.object;
    let made = cx.observed.memory.unrecorded.as_ref().map(|made| made.id.clone());
    object.recorded_id().into_iter().chain(made).chain(object.planned_id.clone()).collect()
}

/// Deletes every machine that is known, then waits for all of them; None if there is none.
fn machines_go(cx: &Context<'_>, provider: &ProviderInfo) -> Option<Decision> {
    let all = known(cx);
    let mut waits_for: Option<&Instance> = None;
    for (id, instance) in all {
        match cx.seen(id) {
            None => return Some(cx.get("a_deletion_looks_at_a_listed_machine", id)),
            Some(MachineSeen::Found(seen)) if cx.delete_is_due(seen) => {
                let row = "a_deleted_machine_asks_to_leave";
                return Some(match leave_of(cx, row, provider, seen, Purpose::Deletion) {
                    Leave::Ask(decision) => *decision,
                    Leave::Granted => cx.delete("a_deletion_deletes_the_machine", seen, "deleted"),
                    Leave::Wait(_, retry) => {
                        let requeue = Requeue::After(retry);
                        cx.rest("a_deletion_waits_for_its_turn", deleting(None), requeue)
                    }
                });
            }
            Some(MachineSeen::Found(_) | MachineSeen::Absent(_) | MachineSeen::CouldNotTell(_)) => {
                waits_for = Some(instance);
            }
        }
    }
    let instance = waits_for?;
    Some(cx.rest("a_deletion_waits_for_the_machine", deleting(None), cx.deletion_poll(instance)))
}

/// Status of a deletion: the machine stays named until the object goes.
fn deleting(problem: Option<(ProvisionedReason, String)>) -> StatusIntent {
    intent(Stage::Deleting(problem))
}
