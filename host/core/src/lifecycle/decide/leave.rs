//! May a machine be taken away now? The ledger of the process says so; here stand the question and what a
//! Proxy shows while the answer is no.

use std::time::Duration;

use crate::ids::{Incarnation, InstanceId};
use crate::lifecycle::memory::incarnation_of;
use crate::lifecycle::{
    Action, Admission, Ask, Decision, ProvisionedReason, Purpose, Refusal, Requeue, Stage,
};
use crate::provider::{Instance, ProviderInfo};

use super::context::{Context, act, intent};

/// What the ledger said.
pub(super) enum Leave {
    /// It was not asked yet: this asks.
    Ask(Box<Decision>),
    /// It may go.
    Granted,
    /// It has to wait, and why.
    Wait(Refusal, Duration),
}

/// Asks for this machine, or has the answer of this pass.
pub(super) fn leave(
    cx: &Context<'_>,
    row: &'static str,
    provider: &ProviderInfo,
    (machine, incarnation): (&InstanceId, Option<&Incarnation>),
    purpose: Purpose,
) -> Leave {
    let ask = Ask {
        uid: cx.observed.object.uid.clone(),
        provider: provider.name.clone(),
        machine: machine.clone(),
        incarnation: incarnation.cloned(),
        purpose,
        replacement: provider.settings.replacement,
    };
    match cx.observed.pass.answers.iter().find(|(asked, _)| *asked == ask) {
        None => Leave::Ask(Box::new(act(row, Action::AskLeave(ask), intent(Stage::Untouched)))),
        Some((_, Admission::Granted)) => Leave::Granted,
        Some((_, Admission::Refused { why, retry })) => Leave::Wait(*why, *retry),
    }
}

/// The same for a machine that was seen.
pub(super) fn leave_of(
    cx: &Context<'_>,
    row: &'static str,
    provider: &ProviderInfo,
    instance: &Instance,
    purpose: Purpose,
) -> Leave {
    leave(cx, row, provider, (&instance.id, incarnation_of(instance).as_ref()), purpose)
}

/// A machine that looks broken: it stays as it is while so many do that the look itself is suspect, and until
/// its turn comes. None: whatever follows may follow.
pub(super) fn suspicion(cx: &Context<'_>, provider: &ProviderInfo, instance: &Instance) -> Option<Decision> {
    match leave_of(cx, "a_broken_machine_asks_to_leave", provider, instance, Purpose::Repair) {
        Leave::Ask(decision) => Some(*decision),
        Leave::Wait(why, retry) => Some(stays(cx, "a_machine_waits_to_leave", provider, why, retry)),
        Leave::Granted => None,
    }
}

/// It may not go now: it stays as it is, shown to clients if its probes succeed. It is looked at again soon,
/// whenever its turn comes: whoever saw it broken may have been wrong.
pub(super) fn stays(
    cx: &Context<'_>,
    row: &'static str,
    provider: &ProviderInfo,
    why: Refusal,
    retry: Duration,
) -> Decision {
    let row = match why {
        Refusal::Suspect => "a_suspect_fleet_is_left_alone",
        Refusal::Capped | Refusal::Pending | Refusal::Paused | Refusal::Standstill => row,
    };
    let note = match cx.observed.object.draining() {
        Some(_) => (ProvisionedReason::Draining, drains_because("another machine is wanted", why, provider)),
        None => waits_because(why, provider),
    };
    cx.rest(row, cx.kept(Some(note)), again(cx, retry))
}

/// When to ask again; not before a back-off ends.
pub(super) fn again(cx: &Context<'_>, retry: Duration) -> Requeue {
    let soon = retry.min(cx.policy.caps.suspect_poll);
    Requeue::After(cx.held_for().map_or(soon, |left| left.max(soon)))
}

/// Where to look when machines that were replaced do not become ready.
const LOOK: &str =
    "Look at those that are not Ready (kubectl get px), then correct or undo the change, or delete them";
/// Where to look when those that are away have been for long, for whatever cause.
const LOOK_AT_ALL: &str = "Look at those that are not Ready (kubectl get px): mend what keeps them, undo a change that \
    they have in common, or delete them";
/// Where to look when a whole fleet seems to be broken.
const CHECK: &str =
    "Check the provider's account, credentials, region and API, and the operator's --cluster-id";

/// Why its turn has not come.
pub(super) fn cause(why: Refusal, provider: &ProviderInfo) -> String {
    let name = &provider.name;
    match why {
        Refusal::Pending => {
            format!("as many Proxies of provider {name} as replacement.maxUnavailable allows are not ready")
        }
        Refusal::Paused => {
            format!("Proxies of provider {name} that were replaced before do not become ready")
        }
        Refusal::Standstill => format!(
            "as many Proxies of provider {name} as replacement.maxUnavailable allows have served nobody for long"
        ),
        Refusal::Capped => format!(
            "as many machines of provider {name} as may be replaced in a minute (--max-replacements-per-minute) \
             were"
        ),
        Refusal::Suspect => format!(
            "so many machines of provider {name} look broken, absent or not ours, or fail their probes, at once \
             that the look itself is suspected"
        ),
    }
}

/// What a Proxy says whose machine drains, or has drained, for this, and has to wait: it goes on doing so.
pub(super) fn drains_because(what_for: &str, why: Refusal, provider: &ProviderInfo) -> String {
    let advice = match why {
        Refusal::Pending | Refusal::Capped => String::new(),
        Refusal::Paused => format!(". {LOOK}"),
        Refusal::Standstill => format!(". {LOOK_AT_ALL}"),
        Refusal::Suspect => format!(". {CHECK}"),
    };
    let cause = cause(why, provider);
    format!("{what_for}; this one is shown to nobody new, and goes when its turn comes: {cause}{advice}")
}

/// What a Proxy shows whose machine has to wait.
pub(super) fn waits_because(why: Refusal, provider: &ProviderInfo) -> (ProvisionedReason, String) {
    let cause = cause(why, provider);
    match why {
        Refusal::Pending => (
            ProvisionedReason::ReplacementPending,
            format!(
                "another machine is wanted; {cause}: this one stays as it is, and its turn comes when they are"
            ),
        ),
        Refusal::Paused => (
            ProvisionedReason::ReplacementPaused,
            format!("another machine is wanted, but {cause}: this one stays as it is. {LOOK}"),
        ),
        Refusal::Standstill => (
            ProvisionedReason::ReplacementPaused,
            format!("another machine is wanted, but {cause}: this one stays as it is. {LOOK_AT_ALL}"),
        ),
        Refusal::Capped => (
            ProvisionedReason::ReplacementPending,
            format!("another machine is wanted, or this one looks broken or absent; {cause}: its turn comes"),
        ),
        Refusal::Suspect => (
            ProvisionedReason::FleetSuspect,
            format!(
                "{cause}: they are left as they are and made anew one after the other as the ones before come \
                 back. {CHECK}; if the machines are really gone, nothing needs to be done"
            ),
        ),
    }
}
