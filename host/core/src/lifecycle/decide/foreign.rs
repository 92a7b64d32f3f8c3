//! A machine that the status names and that shows no tags of this Proxy. It is never deleted and never taken over.
//!
//! That a machine that carried our tags carries them no longer is a look like any other, and may be wrong: a
//! `--cluster-id` with a mistake in it, or a provider that answers without tags, makes all of them somebody else's at
//! once. So the ledger is asked before one that clients know is taken from them. Another machine under the same name
//! never had our tags: that one is hidden at once.

use crate::ids::Incarnation;
use crate::lifecycle::backoff::spread;
use crate::lifecycle::{Decision, ProvisionedReason, Purpose, Refusal, Requeue, Stage};
use crate::provider::{Instance, ProviderInfo};

use super::context::Context;
use super::leave::{Leave, again, cause, drains_because, leave};

/// Hides it if the ledger lets it; it is looked at again as often as one of ours.
pub(super) fn decide(cx: &Context<'_>, provider: &ProviderInfo, instance: &Instance) -> Decision {
    if let Some(incarnation) = shown(cx, instance) {
        let row = "a_machine_without_our_tags_asks_to_leave";
        match leave(cx, row, provider, (&instance.id, Some(&incarnation)), Purpose::Disowned) {
            Leave::Ask(decision) => return *decision,
            Leave::Wait(why, retry) => {
                let requeue = match why {
                    Refusal::Suspect => next_look(cx),
                    Refusal::Capped | Refusal::Pending | Refusal::Paused | Refusal::Standstill => {
                        again(cx, retry)
                    }
                };
                let status = cx.kept(Some(note(cx, why, provider)));
                return cx.rest("a_machine_without_our_tags_stays", status, requeue);
            }
            Leave::Granted => {}
        }
    }
    let message = format!(
        "machine {} does not carry this Proxy's ownership tags: it is neither used nor deleted; restore its tags, \
         or remove it",
        instance.id
    );
    let stage = Stage::Blocked(ProvisionedReason::NameConflict, message);
    cx.rest("the_machine_is_not_ours", cx.intent_with(stage, instance, false), next_look(cx))
}

/// The identity that the status shows to clients, if it may be that of this machine.
fn shown(cx: &Context<'_>, instance: &Instance) -> Option<Incarnation> {
    let status = &cx.observed.object.status;
    status.ip.as_ref()?;
    let shown = Incarnation::parse(status.incarnation.clone()?).ok()?;
    // Whoever lost the tags may have lost the identity with them.
    instance.incarnation.as_ref().is_none_or(|seen| *seen == shown).then_some(shown)
}

fn next_look(cx: &Context<'_>) -> Requeue {
    Requeue::After(spread(cx.policy.drift_poll, cx.observed.memory.seed, 0))
}

const NOT_OURS: &str = "the machine does not carry this Proxy's ownership tags";

/// What a Proxy says whose machine stays with its clients.
fn note(cx: &Context<'_>, why: Refusal, provider: &ProviderInfo) -> (ProvisionedReason, String) {
    if cx.observed.object.draining().is_some() {
        return (ProvisionedReason::Draining, drains_because(NOT_OURS, why, provider));
    }
    let (name, cause) = (&provider.name, cause(why, provider));
    match why {
        Refusal::Suspect => (
            ProvisionedReason::FleetSuspect,
            format!(
                "{NOT_OURS}, and {cause}: it stays with its clients, and is neither replaced nor deleted. Check \
                 that the operator's --cluster-id is the one that the machines were made with, and whether \
                 provider {name} still shows their tags (a new version of its component, its API, a tool that \
                 takes them off). If the machines are really somebody else's, delete these Proxies"
            ),
        ),
        Refusal::Capped | Refusal::Pending | Refusal::Paused | Refusal::Standstill => (
            ProvisionedReason::NameConflict,
            format!(
                "{NOT_OURS}; {cause}: it stays with its clients until its turn comes. Restore its tags, or \
                 remove it"
            ),
        ),
    }
}
