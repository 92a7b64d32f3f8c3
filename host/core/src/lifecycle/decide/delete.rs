//! The object is being deleted: every machine of it goes first, the finalizer last.
//!
//! Never a forgotten machine: the finalizer goes only when `get` finds none of ours and the complete list is
//! empty; twice, if a create may still be under way. That a delete said "gone" is not enough. A machine that is there
//! and is not ours, or not any more, is left alone; that is told before the object goes.

use std::collections::BTreeSet;

use crate::crd::ABANDON_ANNOTATION;
use crate::ids::{Incarnation, InstanceId};
use crate::lifecycle::memory::incarnation_of;
use crate::lifecycle::pass::Presence;
use crate::lifecycle::{
    Action, Decision, ListSeen, MachineSeen, ProviderFacts, ProviderView, ProvisionedReason, Purpose,
    Requeue, Stage, StatusIntent,
};
use crate::provider::{Instance, ProviderInfo, Reason};

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
                return is_left_behind(cx, OutOfReach::Unavailable);
            }
            let problem = (ProvisionedReason::ProviderUnavailable, ways_out(cx, &message));
            let requeue = Requeue::After(cx.policy.slow_poll);
            return cx.rest("a_deletion_waits_for_its_provider", deleting(Some(problem)), requeue);
        }
    };
    if let Some(decision) = out_of_reach(cx, &provider.info) {
        return decision;
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

/// The provider takes calls, and does not get to the machine, or not now.
fn out_of_reach(cx: &Context<'_>, provider: &ProviderInfo) -> Option<Decision> {
    let abandon = cx.observed.object.abandon;
    if let Some((reason, message)) = scope_conflict(cx, provider) {
        if abandon {
            return Some(is_left_behind(cx, OutOfReach::Elsewhere));
        }
        let problem = (reason, format!("{message}; or {}", without_its_machine(cx)));
        let requeue = Requeue::After(cx.policy.slow_poll);
        return Some(cx.rest("a_deletion_waits_for_its_scope", deleting(Some(problem)), requeue));
    }
    let left = cx.held_for()?;
    if let Some(why) = shut_out(cx).filter(|_| abandon) {
        return Some(is_left_behind(cx, why));
    }
    Some(cx.rest("a_back_off_holds_the_deletion", deleting(trouble(cx)), Requeue::After(left)))
}

/// Nobody can delete the machine now: there are two ways on. What is wrong comes last: it may be long, and an Event is
/// cut.
fn ways_out(cx: &Context<'_>, wrong: &str) -> String {
    let back = match &cx.observed.surroundings.provider {
        ProviderView::Unknown(_) => "Add it to the providers config again (mode: deleteOnly is enough)",
        ProviderView::Failed { .. } | ProviderView::Loading | ProviderView::Ready(_) => "Mend it",
    };
    let leave = without_its_machine(cx);
    format!("the machine can't be deleted without its provider. {back}, or {leave}. What is wrong: {wrong}")
}

/// The way on for whom the machine may stay, with the command.
fn without_its_machine(cx: &Context<'_>) -> String {
    let key = &cx.observed.object.key;
    format!(
        "let this Proxy go without its machine, which may go on and cost money: kubectl annotate px -n {} {} \
         {ABANDON_ANNOTATION}=true",
        key.namespace, key.name
    )
}

/// What holds the deletion up; with the way on where only an administrator can mend it, and perhaps nobody can.
fn trouble(cx: &Context<'_>) -> Option<(ProvisionedReason, String)> {
    let (reason, message) = cx.trouble()?;
    let may_last = [ProvisionedReason::Denied, ProvisionedReason::OutOfScope].contains(&reason);
    let message =
        if may_last { format!("{message}; mend it, or {}", without_its_machine(cx)) } else { message };
    Some((reason, message))
}

/// Denials in a row after which nobody counts on being let in: with the back-off these are more than 6 minutes.
const SHUT_OUT_AFTER: u32 = 5;

/// The provider says that it does not get to the machine with its config, or was denied what it asks for, again and
/// again.
fn shut_out(cx: &Context<'_>) -> Option<OutOfReach> {
    let memory = &cx.observed.memory;
    let reason = &memory.trouble.as_ref()?.failure.reason;
    if *reason == Reason::OutOfScope {
        return Some(OutOfReach::Elsewhere);
    }
    (*reason == Reason::Denied && memory.failures >= SHUT_OUT_AFTER).then_some(OutOfReach::Denied)
}

/// Why nobody can be asked to delete the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutOfReach {
    /// The provider is unknown or failed.
    Unavailable,
    /// The provider reaches another scope.
    Elsewhere,
    /// The provider is denied what it asks for.
    Denied,
}

impl OutOfReach {
    /// What is wrong with the provider, and when garbage collection may find the machine.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Unavailable => ("is not available", "the provider comes back"),
            Self::Elsewhere => ("reaches another scope than that of its machine", "it reaches that again"),
            Self::Denied => ("is denied what it asks for", "it has its rights back"),
        }
    }
}

/// A person said that the machine may be left behind, and nobody can be asked about it. That stands in the status
/// before it is told: who comes after this process, or after an answer that was lost, keeps the word, even if the
/// provider is back by then.
fn is_left_behind(cx: &Context<'_>, why: OutOfReach) -> Decision {
    let machine = left_behind(cx);
    let (wrong, back) = why.words();
    let message = format!(
        "the annotation crawl.example.com/abandon lets this Proxy go while provider {} {wrong}: machine {} is not \
         deleted with it. Remove it yourself; garbage collection does if {back}",
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
    object.recorded_id().or_else(|| made(cx)).or_else(|| object.planned_id.clone())
}

/// The provider could not tell: nothing follows from that.
fn unknown(cx: &Context<'_>) -> Decision {
    let requeue = Requeue::After(cx.policy.deletion_poll);
    cx.rest("a_back_off_holds_the_deletion", deleting(trouble(cx)), requeue)
}

/// Nothing of ours is there: for certain?
fn finish(cx: &Context<'_>, provider: &ProviderFacts) -> Decision {
    let foreign = foreign(cx);
    // A moment ago it was ours: the sight may be wrong.
    let settled = cx.observed.memory.saw_all_creates_answered()
        && !foreign.is_some_and(|machine| was_ours(cx, machine));
    let status = deleting(foreign.map(|machine| (ProvisionedReason::NameConflict, stays(machine))));
    if let Some(left) = time_to_settle(cx, provider).filter(|_| !settled) {
        return cx.rest("a_deletion_waits_for_the_second_absence", status, Requeue::After(left));
    }
    let patch = without_finalizer(&cx.observed.object);
    let untouched = intent(Stage::Untouched);
    let Some(machine) = foreign else {
        return act("nothing_is_left_the_finalizer_goes", Action::RemoveFinalizer(patch), untouched);
    };
    if let Some(action) = cx.write_if_new(&status) {
        return act("a_deletion_says_which_machine_is_not_ours", action, status);
    }
    let action = Action::Abandon { patch, machine: Some(machine.id.clone()) };
    act("a_machine_that_is_not_ours_stays", action, untouched)
}

/// A machine that is there under an id that the Proxy knows, and is not ours.
fn foreign<'a>(cx: &Context<'a>) -> Option<&'a Instance> {
    let owner = cx.owner();
    let known = [cx.observed.object.recorded_id(), made(cx), cx.observed.object.planned_id.clone()];
    known.into_iter().flatten().find_map(|id| match cx.seen(&id) {
        Some(MachineSeen::Found(instance)) if !owner.owns(instance) => Some(instance.as_ref()),
        Some(MachineSeen::Found(_) | MachineSeen::Absent(_) | MachineSeen::CouldNotTell(_)) | None => None,
    })
}

/// It is the very machine that the status names, or that this process made: it was seen to be ours before.
fn was_ours(cx: &Context<'_>, machine: &Instance) -> bool {
    let status = &cx.observed.object.status;
    let identity = incarnation_of(machine);
    let same = |known: Option<&str>| {
        known.is_none_or(|known| Some(known) == identity.as_ref().map(Incarnation::as_str))
    };
    let recorded = status.provider_id.as_deref() == Some(machine.id.as_str());
    let made = cx.observed.memory.unrecorded.as_ref().filter(|made| made.id == machine.id);
    (recorded && same(status.incarnation.as_deref()))
        || made.is_some_and(|made| same(made.incarnation.as_ref().map(Incarnation::as_str)))
}

fn stays(machine: &Instance) -> String {
    format!(
        "machine {} does not carry this Proxy's ownership tags: the Proxy goes without it, and it may go on and cost \
         money. If it is this Proxy's, restore its tags, or remove it yourself",
        machine.id
    )
}

/// Ids under which there may be a machine.
fn candidates(cx: &Context<'_>) -> BTreeSet<InstanceId> {
    let object = &cx.observed.object;
    object.recorded_id().into_iter().chain(made(cx)).chain(object.planned_id.clone()).collect()
}

/// The machine that this process made and could not write down.
fn made(cx: &Context<'_>) -> Option<InstanceId> {
    cx.observed.memory.unrecorded.as_ref().map(|made| made.id.clone())
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
