//! What all decisions share: the observation, and the ways to end in a [`Decision`].

use std::time::Duration;

use crate::crd::{PLANNED_ID_ANNOTATION, PLANNED_SCOPE_ANNOTATION};
use crate::ids::{Incarnation, InstanceId};
use crate::provider::{FailureClass, Instance, InstanceRef, InstanceState, ProviderInfo, Reason};
use crate::time::Now;

use crate::facts::{Auth, Machine};
use crate::lifecycle::memory::{DeleteSent, incarnation_of};
use crate::lifecycle::pass::Presence;
use crate::lifecycle::{
    Action, CloudInitView, Decision, HealthView, MachineSeen, ObjectFacts, Observed, Owner, Policy,
    ProviderFacts, ProviderView, ProvisionedReason, RecordedMachine, Requeue, Stage, StatusIntent,
    needs_write, render, spec_hash,
};

use super::fit::{Fit, fit};

/// The observation and the time.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) observed: &'a Observed,
    pub(super) policy: &'a Policy,
    pub(super) now: Now,
}

impl<'a> Context<'a> {
    /// Ends the pass; writes the status first if it has something new to say.
    pub(super) fn rest(&self, row: &'static str, status: StatusIntent, requeue: Requeue) -> Decision {
        let action = self.write_if_new(&status).unwrap_or(Action::Wait);
        Decision { action, requeue, status, row }
    }

    /// The status write, if the object does not say so already and this pass did not just write it.
    pub(super) fn write_if_new(&self, intent: &StatusIntent) -> Option<Action> {
        let health = HealthView {
            configured: self.observed.surroundings.probe_configured,
            verdict: self.observed.surroundings.verdict.as_ref(),
        };
        let wanted = render(&self.observed.object, intent, health, self.now);
        let new = needs_write(&self.observed.object.status, &wanted)
            && self.observed.pass.written.as_ref().is_none_or(|written| needs_write(written, &wanted));
        new.then(|| Action::WriteStatus(Box::new(wanted)))
    }

    /// A status that names this machine; with its address if `running`.
    pub(super) fn intent_with(&self, stage: Stage, instance: &Instance, running: bool) -> StatusIntent {
        let machine = RecordedMachine {
            id: instance.id.clone(),
            scope: self.scope_of(&instance.id),
            incarnation: incarnation_of(instance),
            running: if running { address_of(instance) } else { None },
        };
        StatusIntent { stage, machine: Some(machine), latch: None, current: self.is_current(instance) }
    }

    /// A status that leaves the recorded machine as it is; with what is wrong around it.
    pub(super) fn kept(&self, note: Option<(ProvisionedReason, String)>) -> StatusIntent {
        let id = self.observed.object.recorded_id();
        let seen = match id.as_ref().and_then(|id| self.seen(id)) {
            Some(MachineSeen::Found(instance)) => Some(instance.as_ref()),
            Some(MachineSeen::Absent(_) | MachineSeen::CouldNotTell(_)) | None => {
                self.observed.memory.last_seen.as_ref().map(|seen| &seen.instance)
            }
        };
        let recorded = seen.filter(|instance| Some(&instance.id) == id.as_ref());
        let current = recorded.is_some_and(|instance| self.is_current(instance));
        StatusIntent { current, ..intent(Stage::Kept(note)) }
    }

    /// True if the machine is what the spec asks for now, as far as anybody can tell; false if that can't be
    /// known.
    fn is_current(&self, instance: &Instance) -> bool {
        let object = &self.observed.object;
        let text = match &self.observed.surroundings.cloud_init {
            CloudInitView::NotUsed => None,
            CloudInitView::Resolved(text) => Some(text.expose().as_str()),
            CloudInitView::Problem(_) => return false,
        };
        let hash = spec_hash(&object.spec, text);
        self.owner().owns(instance) && fit(instance, object.spec_hash.as_deref(), &hash) != Fit::Other
    }

    /// The scope to record: the one the machine was made in, if that is known.
    fn scope_of(&self, id: &InstanceId) -> Option<String> {
        let status = &self.observed.object.status;
        if status.provider_id.as_deref() == Some(id.as_str()) && status.provider_scope.is_some() {
            return status.provider_scope.clone();
        }
        match &self.observed.surroundings.provider {
            ProviderView::Ready(provider) => Some(provider.info.scope.clone()),
            ProviderView::Unknown(_) | ProviderView::Loading | ProviderView::Failed { .. } => None,
        }
    }

    /// Whose machines ours are.
    pub(super) fn owner(&self) -> Owner {
        Owner::new(&self.observed.object.uid, &self.observed.surroundings.cluster)
    }

    /// What this pass has seen of a machine.
    pub(super) fn seen(&self, id: &InstanceId) -> Option<&'a MachineSeen> {
        self.observed.pass.machines.get(id)
    }

    /// What is wrong with a machine that does not run: of the words for it those that came first.
    pub(super) fn problem_of<'b>(&self, instance: &'b Instance) -> Option<&'b str>
    where
        'a: 'b,
    {
        let seen = self.observed.memory.last_seen.as_ref().filter(|seen| seen.instance.id == instance.id);
        let problem = seen.map_or(&instance.problem, |seen| &seen.instance.problem);
        problem.as_ref().map(|failure| failure.message.as_str())
    }

    /// Asks the provider for a machine, whichever incarnation is there.
    pub(super) fn get(&self, row: &'static str, id: &InstanceId) -> Decision {
        let target = InstanceRef { id: id.clone(), incarnation: None, owner: self.owner().tags() };
        act(row, Action::Get(target), intent(Stage::Untouched))
    }

    /// Deletes a machine that was seen in this pass and is ours.
    pub(super) fn delete(&self, row: &'static str, instance: &Instance, why: &'static str) -> Decision {
        let target = InstanceRef {
            id: instance.id.clone(),
            incarnation: instance.incarnation.clone(),
            owner: self.owner().tags(),
        };
        act(row, Action::Delete { target, why }, intent(Stage::Untouched))
    }

    /// The object was seen live a moment ago.
    pub(super) fn is_fresh(&self) -> bool {
        let pass = &self.observed.pass;
        pass.presence == Presence::Live
            && pass.looked_at.is_some_and(|at| self.now.mono.since(at) <= self.policy.fresh_for)
    }

    /// Time left of a back-off that holds for this generation.
    pub(super) fn held_for(&self) -> Option<Duration> {
        let object = &self.observed.object;
        let held = self.observed.memory.not_before.as_ref()?;
        let holds = held.generation == object.generation && held.deleting == object.deleting;
        let left = held.at.since(self.now.mono);
        (holds && !left.is_zero()).then_some(left)
    }

    /// Credentials that the Proxy names and that cannot be read: nobody gets a lease without them.
    pub(super) fn missing_credentials(&self) -> Option<(ProvisionedReason, String)> {
        match &self.observed.surroundings.auth {
            Auth::Missing(why) => Some((
                ProvisionedReason::AuthError,
                format!(
                    "{why}; until then clients get a lease only while this process knows what it read before"
                ),
            )),
            Auth::None | Auth::Known(_) => None,
        }
    }

    /// Reason and message of the trouble that holds things up; none for what is no news to anybody.
    pub(super) fn trouble(&self) -> Option<(ProvisionedReason, String)> {
        let trouble = self.observed.memory.trouble.as_ref()?;
        let failure = &trouble.failure;
        let reason = match failure.class() {
            FailureClass::Quota => ProvisionedReason::QuotaExceeded,
            FailureClass::Slow if failure.reason == Reason::Missing => ProvisionedReason::Missing,
            FailureClass::Slow => ProvisionedReason::Denied,
            FailureClass::NameConflict => ProvisionedReason::NameConflict,
            FailureClass::HandsOff => ProvisionedReason::OutOfScope,
            FailureClass::Soon if failure.got_no_permit() => return None,
            FailureClass::Soon | FailureClass::Retry | FailureClass::Throttle | FailureClass::Latch => {
                ProvisionedReason::Retrying
            }
        };
        Some((reason, failure.message.clone()))
    }

    /// The delete of this machine that is under way, if any.
    fn delete_sent(&self, instance: &Instance) -> Option<&'a DeleteSent> {
        self.observed.memory.deletes.get(&instance.id).filter(|sent| {
            let other = sent.incarnation.is_some()
                && instance.incarnation.is_some()
                && sent.incarnation != instance.incarnation;
            !other
        })
    }

    /// True if a delete of this machine is under way, whatever state it shows: it is not to be used again.
    pub(super) fn is_going(&self, instance: &Instance) -> bool {
        self.delete_sent(instance).is_some()
    }

    /// True if a delete should be sent now: none is under way, or it had no effect. A look from before it says
    /// nothing about that, however long the pass has lasted since.
    pub(super) fn delete_is_due(&self, instance: &Instance) -> bool {
        let Some(sent) = self.delete_sent(instance) else { return true };
        let age = self.now.mono.since(sent.at);
        let last = self.observed.memory.last_seen.as_ref().filter(|seen| seen.instance.id == instance.id);
        let looked_since = last.is_none_or(|seen| seen.at > sent.at);
        let ignored = match &instance.state {
            InstanceState::Running | InstanceState::Stopped | InstanceState::Failed => true,
            InstanceState::Provisioning
            | InstanceState::Stopping
            | InstanceState::Deleting
            | InstanceState::Other(_) => false,
        };
        age >= self.policy.delete_repeat || (ignored && looked_since && age >= self.policy.deletion_poll)
    }

    /// When to look again at a machine whose delete is under way.
    pub(super) fn deletion_poll(&self, instance: &Instance) -> Requeue {
        let asked = self.delete_sent(instance).and_then(|sent| sent.ask_after);
        let wait = asked.unwrap_or(self.policy.deletion_poll);
        Requeue::After(wait.clamp(Duration::from_secs(1), self.policy.delete_repeat))
    }
}

/// Ends the pass without touching the status.
pub(super) fn stop(row: &'static str, requeue: Requeue) -> Decision {
    Decision { action: Action::Wait, requeue, status: intent(Stage::Untouched), row }
}

/// Goes on with this effect.
pub(super) fn act(row: &'static str, action: Action, status: StatusIntent) -> Decision {
    Decision { action, requeue: Requeue::OnChange, status, row }
}

/// A status without a machine and without a latch.
pub(super) fn intent(stage: Stage) -> StatusIntent {
    StatusIntent { stage, machine: None, latch: None, current: false }
}

/// The provider, or what to say about its absence.
pub(super) enum Provider<'a> {
    /// Takes calls.
    Ready(&'a ProviderFacts),
    /// Wait and write nothing.
    Loading,
    /// Can't be used; why. What to do about it depends on what is wanted of it.
    Unavailable(String),
}

/// The provider of a Managed Proxy.
pub(super) fn provider_of<'a>(cx: &Context<'a>) -> Provider<'a> {
    let name = cx.observed.object.spec.provider.as_deref().unwrap_or_default();
    match &cx.observed.surroundings.provider {
        ProviderView::Ready(provider) => Provider::Ready(provider),
        ProviderView::Loading => Provider::Loading,
        ProviderView::Failed { stage, reason } => {
            Provider::Unavailable(format!("provider {name:?} could not be loaded (stage {stage}): {reason}"))
        }
        ProviderView::Unknown(configured) => {
            let names: Vec<&str> = configured.iter().map(crate::ids::ProviderName::as_str).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Provider::Unavailable(format!(
                "spec.provider {name:?} is not in the providers config (configured: {names})"
            ))
        }
    }
}

/// What to do about a provider that is not available, for a Proxy that stays.
pub(super) fn way_back(cx: &Context<'_>) -> &'static str {
    match &cx.observed.surroundings.provider {
        ProviderView::Unknown(_) => ": add it there, or make the Proxy anew with a provider of that list",
        ProviderView::Failed { .. } | ProviderView::Loading | ProviderView::Ready(_) => "",
    }
}

/// Where a running machine can be reached.
pub(super) fn address_of(instance: &Instance) -> Option<Machine> {
    let endpoint = instance.endpoints.first()?;
    let incarnation: Incarnation = incarnation_of(instance)?;
    Some(Machine { incarnation, address: endpoint.address.clone(), port: endpoint.port })
}

/// True if the machine runs and can be reached.
pub(super) fn is_running(instance: &Instance) -> bool {
    instance.state == InstanceState::Running && !instance.endpoints.is_empty()
}

/// What to say when the recorded machine, or one that may have been made and could not be recorded, is of a
/// scope that the provider no longer sees: there, its absence proves nothing.
pub(super) fn scope_conflict(
    cx: &Context<'_>,
    provider: &ProviderInfo,
) -> Option<(ProvisionedReason, String)> {
    let (object, memory) = (&cx.observed.object, &cx.observed.memory);
    let elsewhere = |scope: &Option<String>| scope.clone().filter(|scope| *scope != provider.scope);
    let is_recorded = object.status.provider_id.is_some();
    let recorded = elsewhere(&object.status.provider_scope).filter(|_| is_recorded);
    // Every create was answered, and what was made is recorded or was seen to be absent.
    let is_settled = memory.saw_all_creates_answered() && memory.unrecorded.is_none();
    let planned = || elsewhere(&object.planned_scope).filter(|_| !is_recorded && !is_settled);
    // An old copy of the object may not say yet what this process knows.
    let unrecorded = memory.unrecorded.as_ref().and_then(|made| elsewhere(&made.scope));
    let (made, scope, way_out) = match recorded {
        Some(scope) => ("the machine was made in", scope, String::new()),
        None => match unrecorded {
            Some(scope) => ("a machine was made in", scope, String::new()),
            None => ("a machine may have been made in", planned()?, nothing_was_made(object)),
        },
    };
    Some((
        ProvisionedReason::OutOfScope,
        format!(
            "{made} {scope:?}, but provider {} now reaches {:?}: the machine is left alone, and none is made \
             elsewhere, until the providers config points there again{way_out}",
            provider.name, provider.scope
        ),
    ))
}

/// The way out where a config was wrong from the start: nobody can look there, and nothing can be there.
fn nothing_was_made(object: &ObjectFacts) -> String {
    format!(
        "; if you know that nothing was made there: kubectl annotate px -n {} {} {PLANNED_SCOPE_ANNOTATION}- \
         {PLANNED_ID_ANNOTATION}-",
        object.key.namespace, object.key.name
    )
}
