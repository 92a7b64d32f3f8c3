//! Renders the whole status from facts, and says whether it is worth a write. The table is in
//! `docs/lifecycle.md`.
//!
//! Never reads human text back, never puts times, counters or request ids into messages: a failure that
//! repeats writes nothing.

mod conditions;
mod health;
mod nonce;
mod phase;

use crate::crd::ProxyStatus;
use crate::facts::{Machine, Verdict};
use crate::ids::{Incarnation, InstanceId};
use crate::time::Now;

use super::ObjectFacts;

pub use health::NOT_PROBED_YET;
pub use phase::ProvisionedReason;

/// Where a Proxy is, as its status should show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The status stays as it is, observed generation included.
    Untouched,
    /// There is no machine yet and one is going to be made.
    Creating,
    /// The machine is being made; what goes wrong with it, if anything.
    Provisioning(Option<String>),
    /// The machine runs.
    Running,
    /// The endpoint of an External Proxy; what keeps clients from getting it, if anything.
    External(Option<(ProvisionedReason, String)>),
    /// The machine runs and is still shown to those who have leases; then it goes. Why, for people.
    Draining(String),
    /// The machine goes, and another one comes; why, for people.
    Replacing(String),
    /// The object is being deleted; what holds it up, if anything.
    Deleting(Option<(ProvisionedReason, String)>),
    /// There is no usable machine and none can be made now; why, for people.
    Blocked(ProvisionedReason, String),
    /// Something is wrong with the surroundings, the recorded machine goes on as it was.
    Kept(Option<(ProvisionedReason, String)>),
}

/// What the status should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusIntent {
    /// Where the Proxy is.
    pub stage: Stage,
    /// The machine to record; not looked at with `Untouched`, `Kept`, `Deleting` and `External`.
    pub machine: Option<RecordedMachine>,
    /// The latch, set with permanent failures only.
    pub latch: Option<String>,
    /// The machine is known to be what the spec asks for now, as far as anybody can tell. Otherwise a status
    /// that says it runs, or will, stays about the generation before: `Ready` of this one must not be true of a
    /// machine that may have to go.
    pub current: bool,
}

impl StatusIntent {
    /// The generation that the status is about.
    fn generation(&self, object: &ObjectFacts) -> Option<i64> {
        let may_be_another = match &self.stage {
            Stage::Provisioning(_) | Stage::Running | Stage::Kept(_) => !self.current && self.latch.is_none(),
            Stage::Untouched
            | Stage::Creating
            | Stage::External(_)
            | Stage::Draining(_)
            | Stage::Replacing(_)
            | Stage::Deleting(_)
            | Stage::Blocked(..) => false,
        };
        if may_be_another { object.status.observed_generation } else { Some(object.generation) }
    }
}

/// A machine as status records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedMachine {
    /// The provider's id.
    pub id: InstanceId,
    /// The scope it was made in.
    pub scope: Option<String>,
    /// Its identity.
    pub incarnation: Option<Incarnation>,
    /// Where it can be reached; only while it runs.
    pub running: Option<Machine>,
}

/// What the status needs to know of health.
#[derive(Debug, Clone, Copy)]
pub struct HealthView<'a> {
    /// A probe URL is configured somewhere.
    pub configured: bool,
    /// The verdict, of whatever machine.
    pub verdict: Option<&'a Verdict>,
}

/// The status that the object should have.
pub fn render(object: &ObjectFacts, intent: &StatusIntent, health: HealthView<'_>, now: Now) -> ProxyStatus {
    if intent.stage == Stage::Untouched {
        return object.status.clone();
    }
    let mut status = with_machine(object, intent);
    nonce::mark(object, intent, &mut status);
    let probed = health::judge(object, intent, &status, health);
    status.latency_millis = probed.latency_millis;
    status.last_health_check_time.clone_from(&probed.time);
    let provisioned = phase::provisioned(&intent.stage, object);
    let ready = phase::ready(&provisioned, &probed);
    status.phase = phase::phase(object, &intent.stage, &provisioned, &probed);
    status.reason = Some(ready.reason.clone());
    status.latch.clone_from(&intent.latch);
    status.observed_generation = intent.generation(object);
    let facets = [provisioned, probed.facet, ready];
    status.conditions = conditions::all(&object.status, facets, status.observed_generation, now);
    status
}

/// The fields that name the machine.
fn with_machine(object: &ObjectFacts, intent: &StatusIntent) -> ProxyStatus {
    let mut status = ProxyStatus::default();
    let keep = |status: &mut ProxyStatus| {
        let old = &object.status;
        status.provider_id.clone_from(&old.provider_id);
        status.provider_scope.clone_from(&old.provider_scope);
        status.incarnation.clone_from(&old.incarnation);
        status.ip.clone_from(&old.ip);
        status.port = old.port;
    };
    match &intent.stage {
        Stage::Untouched | Stage::Kept(_) => keep(&mut status),
        Stage::Deleting(_) => {
            keep(&mut status); // named to the end, but out of reach for clients
            (status.ip, status.port) = (None, None);
        }
        Stage::External(_) => {
            if let Some(endpoint) = &object.spec.endpoint {
                status.ip = Some(endpoint.host.clone());
                status.port = Some(endpoint.port);
            }
        }
        Stage::Creating
        | Stage::Provisioning(_)
        | Stage::Running
        | Stage::Draining(_)
        | Stage::Replacing(_)
        | Stage::Blocked(..) => {
            if let Some(machine) = &intent.machine {
                status.provider_id = Some(machine.id.to_string());
                status.provider_scope.clone_from(&machine.scope);
                status.incarnation = machine.incarnation.as_ref().map(ToString::to_string);
                if let Some(running) = &machine.running {
                    status.incarnation = Some(running.incarnation.to_string());
                    status.ip = Some(running.address.clone());
                    status.port = Some(running.port);
                }
            }
        }
    }
    status
}

/// True if the two differ by more than times and an unimportant change of latency.
pub fn needs_write(current: &ProxyStatus, wanted: &ProxyStatus) -> bool {
    let mut current = without_times(current);
    let wanted = without_times(wanted);
    if health::latency_is_alike(current.latency_millis, wanted.latency_millis) {
        current.latency_millis = wanted.latency_millis;
    }
    current != wanted
}

fn without_times(status: &ProxyStatus) -> ProxyStatus {
    let mut status = status.clone();
    status.last_health_check_time = None;
    for condition in &mut status.conditions {
        condition.last_transition_time.0 = jiff::Timestamp::UNIX_EPOCH;
    }
    status
}

#[cfg(test)]
mod tests;
