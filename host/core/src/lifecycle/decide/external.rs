//! External Proxies: nothing is made, no finalizer is set, no provider is asked.

use super::context::{Context, act, intent, stop};
use super::request::without_finalizer;
use crate::lifecycle::{Action, Decision, Requeue, Stage};

/// The endpoint stands in the spec; only health changes.
pub(super) fn decide(cx: &Context<'_>) -> Decision {
    let object = &cx.observed.object;
    if object.has_finalizer() {
        let patch = without_finalizer(object);
        let untouched = intent(Stage::Untouched);
        return act("an_external_proxy_has_our_finalizer", Action::RemoveFinalizer(patch), untouched);
    }
    if object.deleting {
        return stop("an_external_proxy_is_deleted", Requeue::OnChange);
    }
    match cx.missing_credentials() {
        Some(problem) => {
            let status = intent(Stage::External(Some(problem)));
            cx.rest("an_external_proxy_lacks_its_credentials", status, Requeue::OnChange)
        }
        None => cx.rest("an_external_proxy_is_probed", intent(Stage::External(None)), Requeue::OnChange),
    }
}
