//! Takes a machine away so that another one can come. Never for a deleted object: that is `delete`.

use crate::lifecycle::{Action, Decision, MachineSeen, Purpose, Refusal, Requeue, Stage};
use crate::provider::{Instance, ProviderInfo};

use super::context::{Context, act};
use super::leave::{Leave, leave_of, suspect};

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
    let hidden = cx.intent_with(Stage::Replacing(why.text.to_owned()), instance, false);
    let is_due = cx.delete_is_due(seen);
    if is_due {
        match leave_of(cx, "a_machine_asks_to_leave", provider, seen, why.purpose) {
            Leave::Ask(decision) => return *decision,
            Leave::Granted => {}
            Leave::Wait(Refusal::Suspect, retry) => return suspect(cx, provider, retry),
            Leave::Wait(Refusal::Capped | Refusal::Pending | Refusal::Paused, retry) => {
                // Its leases ran out and it is shown to nobody new: it may as well go on until its turn.
                let drains = cx.observed.object.draining().is_some();
                let status = if drains {
                    cx.intent_with(Stage::Draining(why.text.to_owned()), instance, true)
                } else {
                    hidden
                };
                return cx.rest("a_machine_waits_to_leave", status, Requeue::After(retry));
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
