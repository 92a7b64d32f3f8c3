//! Takes a machine away so that another one can come. Never for a deleted object: that is `delete`.

use crate::lifecycle::{Action, Decision, MachineSeen, Stage};
use crate::provider::{Instance, ProviderInfo};

use super::context::{Context, act};

/// Looks at the machine afresh, hides it, looks at the object, deletes, then waits until it is absent.
/// `why` has the word for logs and the text for people.
pub(super) fn remove(
    cx: &Context<'_>,
    row: &'static str,
    instance: &Instance,
    why: (&'static str, &'static str),
) -> Decision {
    // What was remembered may be of before an outage: nothing is hidden that can't be asked for now.
    let Some(MachineSeen::Found(seen)) = cx.seen(&instance.id) else { return cx.get(row, &instance.id) };
    let status = cx.intent_with(Stage::Replacing(why.1.to_owned()), instance, false);
    if let Some(action) = cx.write_if_new(&status) {
        return act(row, action, status); // hidden from clients before it goes
    }
    if !cx.delete_is_due(seen) {
        return cx.rest(row, status, cx.deletion_poll(seen));
    }
    if cx.is_fresh() {
        Decision { status, ..cx.delete(row, seen, why.0) }
    } else {
        act(row, Action::LookAgain, status)
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
