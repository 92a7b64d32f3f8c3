//! Managed Proxies that are not being deleted: what stands in the way, then the recorded machine, or a
//! new one.

use std::time::Duration;

use crate::ids::InstanceId;
use crate::lifecycle::backoff::spread;
use crate::lifecycle::{
    Action, Decision, LastSeen, MachineSeen, ProviderFacts, ProvisionedReason, Purpose, Requeue, Stage,
};
use crate::provider::{Instance, InstanceState};

use super::context::{
    Context, Provider, act, address_of, intent, is_running, provider_of, scope_conflict, stop, way_back,
};
use super::fit::{Fit, fit};
use super::leave::suspicion;
use super::removal::Why;
use super::replace::{self, Cause};
use super::request::{Desired, adoption_patch, desired};
use super::{create, foreign, removal};

/// What the current spec asks for, or why that can't be known.
pub(super) type Wanted = Result<Desired, (ProvisionedReason, String)>;

/// Dispatches.
pub(super) fn decide(cx: &Context<'_>) -> Decision {
    let object = &cx.observed.object;
    let recorded = object.recorded_id().filter(|id| !matches!(cx.seen(id), Some(MachineSeen::Absent(_))));
    let provider = match provider_of(cx) {
        Provider::Ready(provider) => provider,
        Provider::Loading => {
            return stop("the_provider_is_loading", Requeue::After(cx.policy.provisioning_poll));
        }
        Provider::Unavailable(message) => {
            return unavailable(cx, recorded.is_some(), message + way_back(cx));
        }
    };
    if let Some((reason, message)) = scope_conflict(cx, &provider.info) {
        let requeue = Requeue::After(cx.policy.slow_poll);
        // Not `recorded`: that it is absent here says nothing of there.
        if object.recorded_id().is_some() {
            return cx.rest("the_scope_changed", cx.kept(Some((reason, message))), requeue);
        }
        let status = intent(Stage::Blocked(reason, message));
        return cx.rest("a_machine_may_be_in_another_scope", status, requeue);
    }
    if let Some(left) = cx.held_for() {
        // A back-off that begins with an absence is no reason to take a machine from clients: the ledger is.
        let gone = object.recorded_id().is_some() && recorded.is_none();
        let absent = if gone { create::absent(cx, provider) } else { None };
        return absent.unwrap_or_else(|| held(cx, recorded.is_some(), left));
    }
    let wanted = desired(cx, &provider.info);
    match recorded {
        Some(id) => recorded_machine(cx, provider, &wanted, &id),
        None => create::decide(cx, provider, wanted),
    }
}

fn unavailable(cx: &Context<'_>, has_machine: bool, message: String) -> Decision {
    let requeue = Requeue::After(cx.policy.slow_poll);
    let reason = ProvisionedReason::ProviderUnavailable;
    if has_machine {
        let status = cx.kept(Some((reason, message)));
        cx.rest("the_provider_is_unavailable_the_machine_goes_on", status, requeue)
    } else {
        let status = intent(Stage::Blocked(reason, message));
        cx.rest("the_provider_is_unavailable", status, requeue)
    }
}

/// A back-off holds. A machine that exists goes on as it was; an administrator's problem is shown.
pub(super) fn held(cx: &Context<'_>, has_machine: bool, left: Duration) -> Decision {
    let requeue = Requeue::After(left);
    let trouble = cx.trouble();
    if has_machine {
        let note = trouble.filter(|(reason, _)| *reason != ProvisionedReason::Retrying);
        let status = cx.kept(note);
        return cx.rest("a_back_off_holds_the_machine_goes_on", status, requeue);
    }
    let gone_again = || {
        let message = "the machine went away more than once; the next one is made after a wait";
        let again = cx.observed.memory.vanished > 1;
        again.then(|| (ProvisionedReason::Retrying, message.to_owned()))
    };
    match trouble.or_else(gone_again) {
        Some((reason, message)) => {
            cx.rest("a_back_off_holds", intent(Stage::Blocked(reason, message)), requeue)
        }
        None => stop("a_provider_call_waits_for_its_turn", requeue),
    }
}

/// Status names a machine: look at it, if the last look is too old.
fn recorded_machine(
    cx: &Context<'_>,
    provider: &ProviderFacts,
    wanted: &Wanted,
    id: &InstanceId,
) -> Decision {
    let instance = match cx.seen(id) {
        Some(MachineSeen::Found(instance)) => instance.as_ref(),
        Some(MachineSeen::Absent(_)) => return create::decide(cx, provider, wanted.clone()),
        Some(MachineSeen::CouldNotTell(_)) => return held(cx, true, cx.policy.provisioning_poll),
        None => match remembered(cx, id) {
            Some(seen) => &seen.instance,
            None => return cx.get("the_machine_is_looked_at", id),
        },
    };
    if !cx.owner().owns(instance) {
        return foreign::decide(cx, &provider.info, instance);
    }
    our_machine(cx, provider, wanted, instance)
}

/// The last answer about this machine, while it is younger than the poll of its state.
fn remembered<'a>(cx: &Context<'a>, id: &InstanceId) -> Option<&'a LastSeen> {
    let seen = cx.observed.memory.last_seen.as_ref()?;
    let same = seen.instance.id == *id;
    (same && cx.now.mono.since(seen.at) < poll_of(cx, &seen.instance)).then_some(seen)
}

/// How often a machine in this state is looked at. Drift polls of a fleet are spread.
fn poll_of(cx: &Context<'_>, instance: &Instance) -> Duration {
    if is_running(instance) {
        return spread(cx.policy.drift_poll, cx.observed.memory.seed, 0);
    }
    let last = cx.observed.memory.last_seen.as_ref();
    let making = last.and_then(|seen| seen.making_since.map(|since| seen.at.since(since)));
    making.map_or(cx.policy.provisioning_poll, |making| cx.policy.next_look(making))
}

/// Until the next look.
fn next_look(cx: &Context<'_>, instance: &Instance) -> Requeue {
    let age = cx.observed.memory.last_seen.as_ref().map_or(Duration::ZERO, |seen| cx.now.mono.since(seen.at));
    Requeue::After(poll_of(cx, instance).saturating_sub(age))
}

fn our_machine(cx: &Context<'_>, provider: &ProviderFacts, wanted: &Wanted, instance: &Instance) -> Decision {
    let object = &cx.observed.object;
    // Whatever else is wanted of it: that it looks broken may be wrong. One that stays in any case does not ask, or
    // it would keep a place from those that go.
    if !is_running(instance)
        && object.status.ip.is_some()
        && let Some(decision) =
            stays_anyway(cx, provider, wanted, instance).or_else(|| suspicion(cx, &provider.info, instance))
    {
        return decision;
    }
    if let Ok(wanted) = wanted {
        let adopts = match fit(instance, object.spec_hash.as_deref(), &wanted.hash) {
            Fit::Other if provider.info.settings.delete_only => None,
            Fit::Other => return replace::decide(cx, &provider.info, wanted, instance, Cause::Spec),
            Fit::Adopt => Some(&wanted.hash),
            Fit::Current => None,
        };
        if let Some(patch) = adoption_patch(object, adopts) {
            let status = intent(Stage::Untouched);
            return act("a_machine_is_adopted", Action::PatchMetadata(patch), status);
        }
        if replace::is_asked_for(cx, instance) && !provider.info.settings.delete_only {
            return replace::decide(cx, &provider.info, wanted, instance, Cause::Person);
        }
    }
    by_state(cx, provider, wanted, instance)
}

/// Another machine is wanted, and none can be made: this one stays, whatever it looks like.
fn stays_anyway(
    cx: &Context<'_>,
    provider: &ProviderFacts,
    wanted: &Wanted,
    instance: &Instance,
) -> Option<Decision> {
    let wanted = wanted.as_ref().ok()?;
    let is_other = fit(instance, cx.observed.object.spec_hash.as_deref(), &wanted.hash) == Fit::Other;
    let goes = is_other || replace::is_asked_for(cx, instance);
    let is_open = goes && !provider.info.settings.delete_only && !cx.is_going(instance);
    is_open.then(|| replace::held_back(cx, &provider.info, wanted, instance)).flatten()
}

/// The machine is the one that is wanted: what follows from its state.
fn by_state(cx: &Context<'_>, provider: &ProviderFacts, wanted: &Wanted, instance: &Instance) -> Decision {
    let remove = |row, why| removal::remove(cx, row, &provider.info, instance, why);
    match &instance.state {
        InstanceState::Running if !instance.endpoints.is_empty() => {
            if cx.is_going(instance) {
                return remove("the_delete_of_the_machine_is_under_way", GOING);
            }
            running(cx, provider, wanted, instance)
        }
        InstanceState::Running | InstanceState::Provisioning | InstanceState::Other(_) => {
            being_made(cx, provider, instance)
        }
        InstanceState::Stopping => {
            if is_too_slow(cx) {
                return remove("the_machine_stops_for_too_long", STOPPED);
            }
            let stage = Stage::Replacing(removal::because(cx, "the machine is stopping", instance));
            let status = cx.intent_with(stage, instance, false);
            cx.rest("the_machine_is_stopping", status, next_look(cx, instance))
        }
        InstanceState::Deleting => remove("the_machine_is_being_deleted", GOING),
        InstanceState::Stopped => remove("the_machine_is_stopped", STOPPED),
        InstanceState::Failed => remove("the_machine_has_failed", FAILED),
    }
}

const STOPPED: Why =
    Why { word: "stopped", text: "the machine stopped and is made anew", purpose: Purpose::Repair };
const FAILED: Why =
    Why { word: "failed", text: "the machine failed and is made anew", purpose: Purpose::Repair };
const GOING: Why =
    Why { word: "stuck", text: "the machine is being deleted and is made anew", purpose: Purpose::Removal };
const TOO_SLOW: Why = Why {
    word: "too-slow",
    text: "the machine did not run in time and is made anew",
    purpose: Purpose::Repair,
};

/// It runs: published with the first verdict, or without one after a short wait.
fn running(cx: &Context<'_>, provider: &ProviderFacts, wanted: &Wanted, instance: &Instance) -> Decision {
    let status = &cx.observed.object.status;
    let first = status.ip.is_none() && status.provider_id.as_deref() == Some(instance.id.as_str());
    if let Some(left) = verdict_wait(cx, instance).filter(|_| first) {
        return stop("a_running_machine_awaits_its_first_verdict", Requeue::After(left));
    }
    // One that was draining and is wanted again serves again, whatever else there is to say.
    let published = !first && is_published(cx, instance) && cx.observed.object.draining().is_none();
    let note = match wanted {
        Err(problem) => Some(problem.clone()),
        Ok(_) => note_for_running(cx, provider, wanted, instance).or_else(|| cx.missing_credentials()),
    };
    let requeue = next_look(cx, instance);
    match note.filter(|_| published) {
        Some(note) => {
            let status = cx.kept(Some(note));
            cx.rest("the_machine_runs_beside_a_problem", status, requeue)
        }
        None => cx.rest("the_machine_runs", cx.intent_with(Stage::Running, instance, true), requeue),
    }
}

/// What to say of a machine that runs although another one is wanted, because none can be made.
fn note_for_running(
    cx: &Context<'_>,
    provider: &ProviderFacts,
    wanted: &Wanted,
    instance: &Instance,
) -> Option<(ProvisionedReason, String)> {
    let wanted = wanted.as_ref().ok()?;
    let is_other = fit(instance, cx.observed.object.spec_hash.as_deref(), &wanted.hash) == Fit::Other;
    let goes = is_other || replace::is_asked_for(cx, instance);
    let stays = goes && provider.info.settings.delete_only;
    stays.then(|| (ProvisionedReason::ProviderUnavailable, removal::delete_only_message(&provider.info)))
}

/// True if the status shows this very machine at the address that it has.
fn is_published(cx: &Context<'_>, instance: &Instance) -> bool {
    let status = &cx.observed.object.status;
    address_of(instance).is_some_and(|machine| {
        status.incarnation.as_deref() == Some(machine.incarnation.as_str())
            && status.ip.as_deref() == Some(machine.address.as_str())
            && status.port == Some(machine.port)
    })
}

/// Time left for the first verdict of a machine that began to run; none if there is one, or none to come.
fn verdict_wait(cx: &Context<'_>, instance: &Instance) -> Option<Duration> {
    if !cx.observed.surroundings.probe_configured {
        return None;
    }
    let machine = address_of(instance)?;
    let judged = cx.observed.surroundings.verdict.as_ref();
    if judged.is_some_and(|verdict| verdict.machine == machine) {
        return None;
    }
    let since = cx.observed.memory.last_seen.as_ref()?.running_since?;
    let left = cx.policy.verdict_wait.saturating_sub(cx.now.mono.since(since));
    (!left.is_zero()).then_some(left)
}

fn being_made(cx: &Context<'_>, provider: &ProviderFacts, instance: &Instance) -> Decision {
    if is_too_slow(cx) {
        return removal::remove(cx, "the_machine_is_too_slow", &provider.info, instance, TOO_SLOW);
    }
    let problem = cx.problem_of(instance).map(str::to_owned);
    let status = cx.intent_with(Stage::Provisioning(problem), instance, false);
    cx.rest("the_machine_is_being_made", status, next_look(cx, instance))
}

/// True if the machine has not run for longer than the deadline, as seen by this process.
fn is_too_slow(cx: &Context<'_>) -> bool {
    let since = cx.observed.memory.last_seen.as_ref().and_then(|seen| seen.making_since);
    since.is_some_and(|since| cx.now.mono.since(since) >= cx.policy.provisioning_deadline)
}
