//! Which machines of this Proxy exist although status names none? The planned id is asked, and the
//! complete list; an incomplete answer creates nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::InstanceId;
use crate::lifecycle::{
    Action, Decision, ListSeen, MachineSeen, ProviderFacts, Purpose, Requeue, SpecHash, Stage, StatusIntent,
};
use crate::provider::{Instance, InstanceState, ProviderInfo};

use super::context::{Context, act, intent};
use super::fit::{Fit, fit};
use super::leave::{Leave, leave_of};
use super::managed::held;

/// What the search came to.
pub(super) enum Found<'a> {
    /// It goes on with this.
    Next(Box<Decision>),
    /// One machine, of the current spec, and no other.
    Adopt(&'a Instance),
    /// None at all, for certain.
    None,
}

/// Looks for machines; deletes those that are surplus, one after the other, while the status says `meanwhile`. Where
/// nobody knows what is wanted, one is as good as another.
pub(super) fn machines<'a>(
    cx: &Context<'a>,
    provider: &ProviderInfo,
    wanted: Option<&SpecHash>,
    meanwhile: &StatusIntent,
) -> Found<'a> {
    let next = |decision: Decision| Found::Next(Box::new(decision));
    if let Some(id) = &cx.observed.object.planned_id {
        match cx.seen(id) {
            None => return next(cx.get("the_planned_machine_is_looked_at", id)),
            Some(MachineSeen::CouldNotTell(_)) => return next(held(cx, false, cx.policy.provisioning_poll)),
            Some(MachineSeen::Found(_) | MachineSeen::Absent(_)) => {}
        }
    }
    match &cx.observed.pass.list {
        None => {
            let action = Action::ListOwned(cx.owner().tags());
            return next(act("the_machines_of_the_proxy_are_listed", action, intent(Stage::Untouched)));
        }
        Some(ListSeen::Partial(..) | ListSeen::Failed(_)) => {
            return next(held(cx, false, cx.policy.provisioning_poll));
        }
        Some(ListSeen::Complete(_)) => {}
    }
    let all = known(cx);
    let annotation = cx.observed.object.spec_hash.as_deref();
    let useful = |instance: &Instance| {
        let lives = match &instance.state {
            InstanceState::Provisioning
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Other(_) => true,
            InstanceState::Stopped | InstanceState::Deleting | InstanceState::Failed => false,
        };
        let fits = wanted.is_none_or(|wanted| fit(instance, annotation, wanted) != Fit::Other);
        lives && !cx.is_going(instance) && fits
    };
    let keep = all
        .values()
        .copied()
        .filter(|instance| useful(instance))
        .min_by_key(|instance| (instance.state != InstanceState::Running, &instance.id));
    let mut waits_for: Option<&Instance> = None;
    for instance in all.values().filter(|instance| keep.is_none_or(|keep| keep.id != instance.id)) {
        match surplus(cx, provider, instance, meanwhile) {
            Some(decision) => return next(decision),
            None => waits_for = Some(instance),
        }
    }
    if let Some(instance) = waits_for {
        let requeue = cx.deletion_poll(instance);
        return next(cx.rest("surplus_machines_are_going", meanwhile.clone(), requeue));
    }
    match keep {
        None => Found::None,
        Some(keep) if cx.seen(&keep.id).is_none() => next(cx.get("a_found_machine_is_looked_at", &keep.id)),
        Some(keep) => Found::Adopt(keep),
    }
}

/// Ours, of both sources; what `get` said wins.
pub(super) fn known<'a>(cx: &Context<'a>) -> BTreeMap<&'a InstanceId, &'a Instance> {
    let owner = cx.owner();
    let mut all = BTreeMap::new();
    if let Some(ListSeen::Complete(items) | ListSeen::Partial(items, _)) = &cx.observed.pass.list {
        all.extend(items.iter().filter(|item| owner.owns(item)).map(|item| (&item.id, item)));
    }
    for (id, seen) in &cx.observed.pass.machines {
        match seen {
            MachineSeen::Found(instance) if owner.owns(instance) => {
                all.insert(id, instance.as_ref());
            }
            MachineSeen::Found(_) | MachineSeen::Absent(_) => {
                all.remove(id);
            }
            MachineSeen::CouldNotTell(_) => {}
        }
    }
    all
}

/// The next step against a machine that should not be; None while its delete is under way.
fn surplus(
    cx: &Context<'_>,
    provider: &ProviderInfo,
    instance: &Instance,
    meanwhile: &StatusIntent,
) -> Option<Decision> {
    match cx.seen(&instance.id) {
        Some(MachineSeen::Found(seen)) => {
            if !cx.delete_is_due(seen) {
                return None;
            }
            match leave_of(cx, "a_surplus_machine_asks_to_leave", provider, seen, Purpose::Surplus) {
                Leave::Ask(decision) => Some(*decision),
                Leave::Wait(_, retry) => {
                    let requeue = Requeue::After(retry);
                    Some(cx.rest("a_surplus_machine_waits_to_leave", meanwhile.clone(), requeue))
                }
                Leave::Granted if cx.is_fresh() => {
                    Some(cx.delete("a_surplus_machine_is_deleted", seen, "surplus"))
                }
                Leave::Granted => {
                    let status = intent(Stage::Untouched);
                    Some(act("the_object_is_looked_at_before_a_surplus_delete", Action::LookAgain, status))
                }
            }
        }
        Some(MachineSeen::Absent(_)) => None,
        Some(MachineSeen::CouldNotTell(_)) => Some(held(cx, false, cx.policy.provisioning_poll)),
        None => Some(cx.get("a_surplus_machine_is_looked_at", &instance.id)),
    }
}

/// Time until a second absence proves that no create is under way; None if it is proved.
pub(super) fn time_to_settle(cx: &Context<'_>, provider: &ProviderFacts) -> Option<Duration> {
    let settle = provider.settle();
    let since = cx.observed.memory.absent_since.unwrap_or(cx.now.mono);
    let age = cx.now.mono.since(since);
    (age <= settle).then(|| settle.saturating_sub(age) + Duration::from_secs(1))
}
