//! Another machine is wanted than the one that there is, which may work. The request for the new one is
//! checked first: a mistake in it must not cost a machine that works. Then one that serves waits for room, is
//! shown to nobody new, keeps its leases until they run out or the drain is over, and goes.

use std::time::Duration;

use crate::lifecycle::memory::incarnation_of;
use crate::lifecycle::{
    Action, Decision, MachineSeen, ProvisionedReason, Purpose, Requeue, Stage, StatusIntent,
};
use crate::provider::{FailureClass, Instance, ProviderInfo};

use super::context::{Context, act, intent, is_running};
use super::leave::{Leave, leave_of, waits_because};
use super::removal::{self, Why};
use super::request::{Desired, create_request};

const REPLACED: Why =
    Why { word: "replaced", text: "the spec needs another machine", purpose: Purpose::Removal };
const ASKED_FOR: Why = Why {
    word: "asked-for",
    text: "the annotation crawl.example.com/replace asks for another machine",
    purpose: Purpose::Removal,
};

/// What asks for another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was made from another spec.
    Spec,
    /// A person, by the annotation.
    Person,
}

impl Cause {
    fn why(self) -> Why {
        match self {
            Self::Spec => REPLACED,
            Self::Person => ASKED_FOR,
        }
    }
}

/// True if a person asked for another machine than this one, and has not got it yet. A value that was taken up
/// asks for no further one than it was taken up for.
pub(super) fn is_asked_for(cx: &Context<'_>, instance: &Instance) -> bool {
    let object = &cx.observed.object;
    let Some(asked) = &object.replace_nonce else { return false };
    if object.status.replace_nonce.as_ref() != Some(asked) {
        return true;
    }
    let going = object.status.replacing.as_deref();
    going.is_some() && going == incarnation_of(instance).as_ref().map(crate::ids::Incarnation::as_str)
}

/// Validates, waits for room, drains, then takes the old machine away; the new one is made once the old one is
/// absent.
pub(super) fn decide(
    cx: &Context<'_>,
    provider: &ProviderInfo,
    wanted: &Desired,
    instance: &Instance,
    cause: Cause,
) -> Decision {
    if cx.is_going(instance) {
        return removal::remove(
            cx,
            "the_delete_of_the_machine_is_under_way",
            provider,
            instance,
            cause.why(),
        );
    }
    if let Some(decision) = latched(cx, wanted) {
        return decision;
    }
    if let Some(left) = drain_left(cx, provider, instance) {
        let status = draining(cx, instance, cause);
        return cx.rest("the_machine_drains", status, Requeue::After(left));
    }
    match checked(cx, provider, wanted, instance) {
        Some(decision) => *decision,
        None => go(cx, provider, instance, cause),
    }
}

/// What keeps the machine, as far as it is known without asking anybody.
pub(super) fn held_back(
    cx: &Context<'_>,
    provider: &ProviderInfo,
    wanted: &Desired,
    instance: &Instance,
) -> Option<Decision> {
    let lacks = || create_request(cx, provider, &wanted.hash).err();
    latched(cx, wanted).or_else(|| lacks().map(|problem| lacks_credentials(cx, instance, problem)))
}

/// The spec is known not to work.
fn latched(cx: &Context<'_>, wanted: &Desired) -> Option<Decision> {
    if cx.observed.object.status.latch.as_deref() != Some(wanted.key.as_str()) {
        return None;
    }
    let status = StatusIntent { latch: Some(wanted.key.clone()), ..cx.kept(None) };
    let poll = Requeue::After(cx.policy.drift_poll);
    Some(cx.rest("the_new_spec_is_latched_the_machine_stays", status, poll))
}

fn lacks_credentials(
    cx: &Context<'_>,
    instance: &Instance,
    problem: (ProvisionedReason, String),
) -> Decision {
    let row = "the_new_spec_lacks_credentials_the_machine_stays";
    cx.rest(row, stays(cx, instance, problem), Requeue::After(cx.policy.drift_poll))
}

/// None once the request for the new machine is known to be acceptable.
fn checked(
    cx: &Context<'_>,
    provider: &ProviderInfo,
    wanted: &Desired,
    instance: &Instance,
) -> Option<Box<Decision>> {
    let poll = Requeue::After(cx.policy.drift_poll);
    let request = match create_request(cx, provider, &wanted.hash) {
        Ok(request) => Box::new(request),
        Err(problem) => return Some(Box::new(lacks_credentials(cx, instance, problem))),
    };
    match &cx.observed.pass.plan {
        Some((key, Ok(_))) if *key == wanted.key => None,
        Some((key, Err(failure))) if *key == wanted.key && failure.class() == FailureClass::Latch => {
            let stage = Stage::Blocked(ProvisionedReason::PermanentError, failure.message.clone());
            let status = StatusIntent {
                latch: Some(wanted.key.clone()),
                ..cx.intent_with(stage, instance, is_running(instance))
            };
            Some(Box::new(cx.rest("the_new_spec_can_not_work_the_machine_stays", status, poll)))
        }
        Some(_) | None => {
            let known = cx.observed.memory.checked.as_ref().is_some_and(|(key, at)| {
                *key == wanted.key && cx.now.mono.since(*at) < cx.policy.checked_for
            });
            let action = Action::ValidateCreate { key: wanted.key.clone(), request };
            let untouched = intent(Stage::Untouched);
            (!known).then(|| Box::new(act("the_new_spec_is_checked", action, untouched)))
        }
    }
}

/// The machine goes, at once if it serves nobody.
fn go(cx: &Context<'_>, provider: &ProviderInfo, instance: &Instance, cause: Cause) -> Decision {
    let row = match cause {
        Cause::Spec => "the_spec_needs_another_machine",
        Cause::Person => "a_person_asked_for_another_machine",
    };
    if !cx.observed.object.serves() || !is_running(instance) {
        return removal::remove(cx, row, provider, instance, cause.why());
    }
    match leave_of(cx, "a_machine_asks_for_room", provider, instance, Purpose::Exchange) {
        Leave::Ask(decision) => *decision,
        Leave::Wait(why, retry) => {
            let status = cx.kept(Some(waits_because(why, provider)));
            cx.rest("a_machine_waits_for_room", status, Requeue::After(retry))
        }
        // It is looked at before it is taken from clients: nothing is drained that can't be asked for now.
        Leave::Granted if !matches!(cx.seen(&instance.id), Some(MachineSeen::Found(_))) => {
            cx.get(row, &instance.id)
        }
        Leave::Granted if provider.settings.replacement.drain.is_zero() => {
            removal::remove(cx, row, provider, instance, cause.why())
        }
        Leave::Granted => {
            let status = draining(cx, instance, cause);
            cx.rest("the_machine_drains", status, Requeue::After(cx.policy.drain_floor))
        }
    }
}

/// Time until a machine that drains is to be asked about again; none if it may go: its leases ran out, or they had
/// their time.
fn drain_left(cx: &Context<'_>, provider: &ProviderInfo, instance: &Instance) -> Option<Duration> {
    let shown = cx.observed.object.draining()?;
    if incarnation_of(instance).as_ref().map(crate::ids::Incarnation::as_str) != Some(shown)
        || !is_running(instance)
    {
        return None;
    }
    let longest = provider.settings.replacement.drain;
    let drain = cx.observed.memory.drain.as_ref().filter(|drain| drain.incarnation == shown);
    let lasted =
        drain.map_or(Duration::ZERO, |drain| drain.before.saturating_add(cx.now.mono.since(drain.at)));
    let lasts = if cx.observed.surroundings.leases == 0 {
        // What the pool counted before it heard of the drain is not to be trusted.
        cx.policy.drain_floor.min(longest)
    } else {
        longest
    };
    let left = lasts.saturating_sub(lasted);
    // The end of the last lease starts a pass, unless it comes before the published fleet shows the drain.
    (!left.is_zero()).then(|| left.min(cx.policy.caps.room_poll))
}

fn draining(cx: &Context<'_>, instance: &Instance, cause: Cause) -> StatusIntent {
    let message = format!("{}: it goes when its leases have run out", cause.why().text);
    cx.intent_with(Stage::Draining(message), instance, true)
}

/// The machine stays because of this. One that was draining serves again first, if it runs.
fn stays(cx: &Context<'_>, instance: &Instance, problem: (ProvisionedReason, String)) -> StatusIntent {
    match (cx.observed.object.draining(), is_running(instance)) {
        (Some(_), true) => cx.intent_with(Stage::Running, instance, true),
        (Some(_), false) => cx.kept(None),
        (None, _) => cx.kept(Some(problem)),
    }
}
