//! The spec needs another machine than the one that there is. The new spec is checked first: a mistake in
//! it must not cost a machine that works.

use crate::lifecycle::{Action, Decision, ProvisionedReason, Requeue, Stage, StatusIntent};
use crate::provider::{FailureClass, Instance, ProviderInfo};

use super::context::{Context, act, intent, is_running};
use super::removal;
use super::request::{Desired, create_request};

const REPLACED: (&str, &str) = ("replaced", "the spec needs another machine");

/// Validates, then takes the old machine away; the new one is made once the old one is absent.
pub(super) fn decide(
    cx: &Context<'_>,
    provider: &ProviderInfo,
    wanted: &Desired,
    instance: &Instance,
) -> Decision {
    let object = &cx.observed.object;
    let poll = Requeue::After(cx.policy.drift_poll);
    if cx.is_going(instance) {
        return removal::remove(cx, "the_delete_of_the_machine_is_under_way", instance, REPLACED);
    }
    if object.status.latch.as_deref() == Some(wanted.key.as_str()) {
        let status = StatusIntent { latch: Some(wanted.key.clone()), ..cx.kept(None) };
        return cx.rest("the_new_spec_is_latched_the_machine_stays", status, poll);
    }
    let request = match create_request(cx, provider, &wanted.hash) {
        Ok(request) => Box::new(request),
        Err(problem) => {
            let status = cx.kept(Some(problem));
            return cx.rest("the_new_spec_lacks_credentials_the_machine_stays", status, poll);
        }
    };
    match &cx.observed.pass.plan {
        Some((key, Ok(_))) if *key == wanted.key => {
            removal::remove(cx, "the_spec_needs_another_machine", instance, REPLACED)
        }
        Some((key, Err(failure))) if *key == wanted.key && failure.class() == FailureClass::Latch => {
            let stage = Stage::Blocked(ProvisionedReason::PermanentError, failure.message.clone());
            let status = StatusIntent {
                latch: Some(wanted.key.clone()),
                ..cx.intent_with(stage, instance, is_running(instance))
            };
            cx.rest("the_new_spec_can_not_work_the_machine_stays", status, poll)
        }
        Some(_) | None => {
            let action = Action::ValidateCreate { key: wanted.key.clone(), request };
            act("the_new_spec_is_checked", action, intent(Stage::Untouched))
        }
    }
}
