//! Takes a machine away so that another one can come. Never for a deleted object: that is `delete`.

use crate::lifecycle::{Action, Decision, MachineSeen, Purpose, Refusal, Stage};
use crate::provider::{Instance, ProviderInfo};

use super::context::{Context, act, is_running};
use super::leave::{Leave, again, drains_because, leave_of, stays};

/// Why a machine goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Why {
    /// For logs.
    pub(super) word: &'static str,
    /// For people.
    pub(super) text: &'static str,
    /// For the ledger.
    pub(super) purpose: Purpose,
}

/// Why a machine goes, with what was last wrong with it: who looks later finds no machine to ask.
pub(super) fn because(cx: &Context<'_>, text: &str, instance: &Instance) -> String {
    match cx.problem_of(instance) {
        Some(problem) => format!("{text}; its last problem: {problem}"),
        None => text.to_owned(),
    }
}

/// Looks at the machine afresh, asks whether it may go, hides it, looks at the object, deletes, then waits
/// until it is absent.
pub(super) fn remove(
    cx: &Context<'_>,
    row: &'static str,
    provider: &ProviderInfo,
    instance: &Instance,
    why: Why,
) -> Decision {
    // What was remembered may be of before an outage: nothing is hidden that can't be asked for now.
    let Some(MachineSeen::Found(seen)) = cx.seen(&instance.id) else { return cx.get(row, &instance.id) };
    let hidden = cx.intent_with(Stage::Replacing(because(cx, why.text, instance)), instance, false);
    let is_due = cx.delete_is_due(seen);
    if is_due {
        match leave_of(cx, "a_machine_asks_to_leave", provider, seen, why.purpose) {
            Leave::Ask(decision) => return *decision,
            Leave::Granted => {}
            Leave::Wait(refusal, retry) => {
                let row = "a_machine_waits_to_leave";
                if cx.observed.object.draining().is_some() && is_running(instance) {
                    // Its leases ran out and it is shown to nobody new: it may as well go on until its turn.
                    let stage = Stage::Draining(drains_because(why.text, refusal, provider));
                    return cx.rest(row, cx.intent_with(stage, instance, true), again(cx, retry));
                }
                if cx.observed.object.status.ip.is_some() || refusal == Refusal::Suspect {
                    return stays(cx, row, provider, refusal, retry);
                }
                return cx.rest(row, hidden, again(cx, retry));
            }
        }
    }
    if let Some(action) = cx.write_if_new(&hidden) {
        return act(row, action, hidden); // hidden from clients before it goes
    }
    if !is_due {
        return cx.rest(row, hidden, cx.deletion_poll(seen));
    }
    if cx.is_fresh() {
        Decision { status: hidden, ..cx.delete(row, seen, why.word) }
    } else {
        act(row, Action::LookAgain, hidden)
    }
}

/// Why no machine is made.
pub(super) fn delete_only_message(provider: &ProviderInfo) -> String {
    format!(
        "provider {} is configured with mode: deleteOnly and makes no machines: remove that line from the \
         providers config, or delete the Proxy",
        provider.name
    )
}
