//! The Provisioned and Ready conditions, and the phase that sums all up.

use crate::crd::{ConditionType, Phase};

use super::conditions::{Facet, Value, find};
use super::health::{NO_PROBE_URL, Probed};
use super::{ObjectFacts, Stage};

/// Reasons of the Provisioned condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProvisionedReason {
    /// A machine is going to be made.
    Creating,
    /// The machine is being made.
    Provisioning,
    /// The machine runs.
    Created,
    /// The machine of an External Proxy is where the spec says.
    ExternalEndpoint,
    /// Leases on the machine run out, then it goes.
    Draining,
    /// The machine goes and another one comes.
    Replacing,
    /// Another machine is wanted, and it is not its turn.
    ReplacementPending,
    /// Another machine is wanted, and those that were replaced before it do not come back.
    ReplacementPaused,
    /// The machine looks broken, as too many do at once to believe it.
    FleetSuspect,
    /// The machine goes.
    Deleting,
    /// The object goes, and its machine is left behind, because a person said so.
    Abandoned,
    /// A limit of the account or a lack of capacity.
    QuotaExceeded,
    /// It can't work until spec, config or provider change.
    PermanentError,
    /// The cloud-init text can't be had or doesn't fit.
    CloudInitError,
    /// The proxy credentials can't be had.
    AuthError,
    /// A machine that isn't ours has the name.
    NameConflict,
    /// The provider is not configured, not loaded, or takes no new machines.
    ProviderUnavailable,
    /// The machine was made in a scope that the provider no longer sees.
    OutOfScope,
    /// Permissions are missing.
    Denied,
    /// Something that the spec refers to is missing upstream.
    Missing,
    /// A failure that is tried again.
    Retrying,
}

impl ProvisionedReason {
    /// As it stands in `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Provisioning => "Provisioning",
            Self::Created => "Created",
            Self::ExternalEndpoint => "ExternalEndpoint",
            Self::Draining => "Draining",
            Self::Replacing => "Replacing",
            Self::ReplacementPending => "ReplacementPending",
            Self::ReplacementPaused => "ReplacementPaused",
            Self::FleetSuspect => "FleetSuspect",
            Self::Deleting => "Deleting",
            Self::Abandoned => "Abandoned",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::PermanentError => "PermanentError",
            Self::CloudInitError => "CloudInitError",
            Self::AuthError => "AuthError",
            Self::NameConflict => "NameConflict",
            Self::ProviderUnavailable => "ProviderUnavailable",
            Self::OutOfScope => "OutOfScope",
            Self::Denied => "Denied",
            Self::Missing => "Missing",
            Self::Retrying => "Retrying",
        }
    }

    /// Phase of a Proxy that is blocked by this.
    fn phase_when_blocked(self) -> Phase {
        match self {
            Self::PermanentError | Self::NameConflict => Phase::Failed,
            Self::Creating | Self::Provisioning | Self::Created | Self::ExternalEndpoint => {
                Phase::Provisioning
            }
            Self::Draining | Self::Replacing => Phase::Replacing,
            Self::Deleting | Self::Abandoned => Phase::Deleting,
            Self::QuotaExceeded
            | Self::ReplacementPending
            | Self::ReplacementPaused
            | Self::FleetSuspect
            | Self::CloudInitError
            | Self::AuthError
            | Self::ProviderUnavailable
            | Self::OutOfScope
            | Self::Denied
            | Self::Missing
            | Self::Retrying => Phase::Pending,
        }
    }
}

/// The Provisioned condition of a stage.
pub(super) fn provisioned(stage: &Stage, object: &ObjectFacts) -> Facet {
    use ProvisionedReason as R;
    let no = |reason: R, message: &str| facet(Value::False, reason.as_str(), message);
    match stage {
        Stage::Creating => no(R::Creating, "the machine is about to be made"),
        Stage::Provisioning(problem) => {
            no(R::Provisioning, problem.as_deref().unwrap_or("the machine is being made"))
        }
        Stage::Running => facet(Value::True, R::Created.as_str(), "the machine runs"),
        Stage::External(Some((reason, message))) => facet(Value::True, reason.as_str(), message),
        Stage::External(None) => facet(
            Value::True,
            R::ExternalEndpoint.as_str(),
            "the endpoint is not managed by the operator, only probed and leased",
        ),
        Stage::Draining(why) => no(R::Draining, why),
        Stage::Replacing(why) => no(R::Replacing, why),
        Stage::Deleting(None) => no(R::Deleting, "the machine is being deleted"),
        Stage::Deleting(Some((reason, message))) | Stage::Blocked(reason, message) => no(*reason, message),
        Stage::Untouched | Stage::Kept(_) => {
            let old = find(&object.status, ConditionType::Provisioned);
            let value = old.map_or(Value::False, |old| match old.status.as_str() {
                "True" => Value::True,
                _ => Value::False,
            });
            match (stage, old) {
                (Stage::Kept(Some((reason, message))), _) => facet(value, reason.as_str(), message),
                (_, Some(old)) => facet(value, &old.reason, &old.message),
                (_, None) => facet(value, R::Creating.as_str(), "the machine is about to be made"),
            }
        }
    }
}

fn facet(value: Value, reason: &str, message: &str) -> Facet {
    Facet { kind: ConditionType::Provisioned, value, reason: reason.to_owned(), message: message.to_owned() }
}

/// Ready says whether it can be leased, with the reason of whichever condition forbids it.
pub(super) fn ready(provisioned: &Facet, probed: &Probed) -> Facet {
    let (value, from) = match (provisioned.value, probed.facet.value) {
        (Value::True, Value::True) => (Value::True, &probed.facet),
        (Value::True, Value::False | Value::Unknown) => (Value::False, &probed.facet),
        (Value::False | Value::Unknown, _) => (Value::False, provisioned),
    };
    Facet { kind: ConditionType::Ready, value, reason: from.reason.clone(), message: from.message.clone() }
}

/// The phase.
pub(super) fn phase(object: &ObjectFacts, stage: &Stage, provisioned: &Facet, probed: &Probed) -> Phase {
    match stage {
        Stage::Kept(_) if provisioned.value != Value::True => object.status.phase,
        Stage::Deleting(_) => Phase::Deleting,
        Stage::Draining(_) | Stage::Replacing(_) => Phase::Replacing,
        Stage::Blocked(reason, _) => reason.phase_when_blocked(),
        Stage::Creating
        | Stage::Provisioning(_)
        | Stage::Running
        | Stage::External(_)
        | Stage::Kept(_)
        | Stage::Untouched => match (provisioned.value, probed.facet.value) {
            (Value::True, Value::True) => Phase::Ready,
            (Value::True, Value::False) => Phase::Unhealthy,
            (Value::True, Value::Unknown) if probed.facet.reason == NO_PROBE_URL => Phase::Pending,
            (Value::True, Value::Unknown) | (Value::False | Value::Unknown, _) => Phase::Provisioning,
        },
    }
}
