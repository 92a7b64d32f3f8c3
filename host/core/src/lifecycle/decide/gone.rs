//! The object is gone, or another one has its name. If this process made a machine whose id could not be
//! written down, that machine is deleted now; anything else without an owner is left to garbage collection.

use super::context::{Context, Provider, provider_of, scope_conflict, stop};
use super::leave::{Leave, leave_of};
use crate::lifecycle::{Decision, MachineSeen, Purpose, Requeue};
use crate::provider::{Instance, ProviderInfo};

/// Deletes what was made for an object that no longer is.
pub(super) fn decide(cx: &Context<'_>) -> Decision {
    let done = || stop("the_object_is_gone", Requeue::Done);
    let Some(made) = &cx.observed.memory.unrecorded else { return done() };
    let provider = match provider_of(cx) {
        Provider::Ready(provider) if scope_conflict(cx, &provider.info).is_some() => {
            let late = Requeue::After(cx.policy.slow_poll);
            return stop("the_object_is_gone_and_the_provider_fails", late);
        }
        Provider::Ready(provider) => provider,
        Provider::Loading => {
            let soon = Requeue::After(cx.policy.deletion_poll);
            return stop("the_object_is_gone_and_the_provider_fails", soon);
        }
        Provider::Unavailable(_) => {
            let late = Requeue::After(cx.policy.slow_poll);
            return stop("the_object_is_gone_and_the_provider_fails", late);
        }
    };
    if let Some(left) = cx.held_for() {
        return stop("the_object_is_gone_and_the_provider_fails", Requeue::After(left));
    }
    match cx.seen(&made.id) {
        None => cx.get("the_object_is_gone_but_not_its_machine", &made.id),
        Some(MachineSeen::Found(instance)) if cx.owner().owns(instance) => {
            if cx.delete_is_due(instance) {
                goes(cx, &provider.info, instance)
            } else {
                stop("the_object_is_gone_its_machine_going", cx.deletion_poll(instance))
            }
        }
        Some(MachineSeen::Found(_) | MachineSeen::Absent(_)) => done(),
        Some(MachineSeen::CouldNotTell(_)) => {
            stop("the_object_is_gone_and_the_provider_fails", Requeue::After(cx.policy.deletion_poll))
        }
    }
}

fn goes(cx: &Context<'_>, provider: &ProviderInfo, instance: &Instance) -> Decision {
    let row = "a_machine_without_an_object_asks_to_leave";
    match leave_of(cx, row, provider, instance, Purpose::Deletion) {
        Leave::Ask(decision) => *decision,
        Leave::Granted => cx.delete("the_object_went_during_its_create", instance, "object-gone"),
        Leave::Wait(_, retry) => stop("a_machine_without_an_object_waits_to_leave", Requeue::After(retry)),
    }
}
