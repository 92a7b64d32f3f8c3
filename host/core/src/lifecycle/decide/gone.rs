//! The object is gone, or another one has its name. What this process made for it, or may have made, and nobody wrote
//! down is deleted now; anything else without an owner is left to garbage collection.
//!
//! It takes nobody's force to get here. The API server looks for finalizers when a deletion begins: one that is
//! added before it ends, confirmed and all, keeps nothing.

use std::time::Duration;

use super::context::{Context, Provider, act, intent, provider_of, scope_conflict, stop};
use super::leave::{Leave, leave_of};
use super::search::{known, time_to_settle};
use crate::ids::InstanceId;
use crate::lifecycle::{Action, Decision, ListSeen, MachineSeen, Purpose, Requeue, Stage};
use crate::provider::{Instance, ProviderInfo};

/// Deletes what was made for an object that no longer is.
pub(super) fn decide(cx: &Context<'_>) -> Decision {
    let object = &cx.observed.object;
    let done = || stop("the_object_is_gone", Requeue::Done);
    let lands = may_land(cx);
    if object.is_abandoned() || (cx.observed.memory.unrecorded.is_none() && !lands) {
        return done();
    }
    let provider = match provider_of(cx) {
        Provider::Ready(provider) if scope_conflict(cx, &provider.info).is_some() => {
            return fails(cx.policy.slow_poll);
        }
        Provider::Ready(provider) => provider,
        Provider::Loading => return fails(cx.policy.deletion_poll),
        Provider::Unavailable(_) => return fails(cx.policy.slow_poll),
    };
    if let Some(left) = cx.held_for() {
        return fails(left);
    }
    let unknown = || fails(cx.policy.deletion_poll);
    for id in candidates(cx, lands) {
        match cx.seen(id) {
            None => return cx.get("the_object_is_gone_but_not_its_machine", id),
            Some(MachineSeen::CouldNotTell(_)) => return unknown(),
            Some(MachineSeen::Found(_) | MachineSeen::Absent(_)) => {}
        }
    }
    if let Some(decision) = machines_go(cx, &provider.info) {
        return decision;
    }
    if !lands {
        return done();
    }
    match &cx.observed.pass.list {
        None => {
            let action = Action::ListOwned(cx.owner().tags());
            return act("the_object_is_gone_its_machines_are_listed", action, intent(Stage::Untouched));
        }
        Some(ListSeen::Partial(..) | ListSeen::Failed(_)) => return unknown(),
        Some(ListSeen::Complete(_)) => {}
    }
    time_to_settle(cx, provider)
        .map_or_else(done, |left| stop("the_object_is_gone_a_create_may_land", Requeue::After(left)))
}

fn fails(again: Duration) -> Decision {
    stop("the_object_is_gone_and_the_provider_fails", Requeue::After(again))
}

/// A create of this process was not answered, and no machine was known since. The status may still name the one
/// before, which is known to be away.
fn may_land(cx: &Context<'_>) -> bool {
    let memory = &cx.observed.memory;
    let open = memory.unanswered_create || memory.create_in_flight;
    let recorded = cx.observed.object.recorded_id();
    open && recorded.is_none_or(|id| memory.counted_absent.as_ref() == Some(&id))
}

/// Ids under which there may be a machine of this process.
fn candidates<'a>(cx: &Context<'a>, lands: bool) -> impl Iterator<Item = &'a InstanceId> {
    let made = cx.observed.memory.unrecorded.as_ref().map(|made| &made.id);
    made.into_iter().chain(cx.observed.object.planned_id.as_ref().filter(move |_| lands))
}

/// Deletes what was found, one after the other, then waits for all of it; None if there is nothing.
fn machines_go(cx: &Context<'_>, provider: &ProviderInfo) -> Option<Decision> {
    let mut waits_for: Option<&Instance> = None;
    for (id, instance) in known(cx) {
        match cx.seen(id) {
            None => return Some(cx.get("the_object_is_gone_but_not_its_machine", id)),
            Some(MachineSeen::Found(seen)) if cx.delete_is_due(seen) => {
                return Some(goes(cx, provider, seen));
            }
            Some(MachineSeen::Found(_) | MachineSeen::Absent(_) | MachineSeen::CouldNotTell(_)) => {
                waits_for = Some(instance);
            }
        }
    }
    let instance = waits_for?;
    Some(stop("the_object_is_gone_its_machine_going", cx.deletion_poll(instance)))
}

fn goes(cx: &Context<'_>, provider: &ProviderInfo, instance: &Instance) -> Decision {
    let row = "a_machine_without_an_object_asks_to_leave";
    match leave_of(cx, row, provider, instance, Purpose::Deletion) {
        Leave::Ask(decision) => *decision,
        Leave::Granted => cx.delete("the_object_went_during_its_create", instance, "object-gone"),
        Leave::Wait(_, retry) => stop("a_machine_without_an_object_waits_to_leave", Requeue::After(retry)),
    }
}
