//! Takes a machine away so that another one can come. Never for a deleted object: that is `delete`.

use crate::lifecycle::{Action, Decision, MachineSeen, Stage};
use crate::provider::{Instance, ProviderInfo};

use super::context::{Context, act};

/// Hides the machine, looks at the object and the machine afresh, deletes, then waits until it is absent.
/// `why` has the word for logs and the text for people.
pub(super) fn remove(
    cx: &Context<'_>,
    row: &'static str,
    instance: &Instance,
    why: (&'static str, &'static str),
) -> Decision {
    let status = cx.intent_with(Stage::Replacing(why.1.to_owned()), instance, false);
    if let Some(action) = cx.write_if_new(&status) {
        return act(row, action, status); // hidden from clients before it goes
    }
    match cx.seen(&instance.id) {
        Some(MachineSeen::Found(seen)) if cx.delete_is_due(seen) => {
            if cx.is_fresh() {
                Decision { status, ..cx.delete(row, seen, why.0) }
            } else {
                act(row, Action::LookAgain, status)
            }
        }
        Some(MachineSeen::Found(seen)) => cx.rest(row, status, cx.deletion_poll(seen)),
        Some(MachineSeen::Absent(_) | MachineSeen::CouldNotTell(_)) | None => cx.get(row, &instance.id),
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
