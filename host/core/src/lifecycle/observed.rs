//! Everything that a decision about one Proxy may depend on, as plain values.
//!
//! The loop builds it from its stores (object, Secrets, provider registry, verdicts) and refreshes
//! [`Surroundings`] before each [`super::decide()`]; [`Pass`] and [`Memory`] change only through
//! [`super::absorb`].

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::crd::{
    ABANDON_ANNOTATION, ConditionType, FINALIZER, HealthCheckSpec, Mode, PLANNED_ID_ANNOTATION,
    PLANNED_SCOPE_ANNOTATION, Phase, Proxy, ProxySpec, ProxyStatus, REPLACE_ANNOTATION, SPEC_HASH_ANNOTATION,
};
use crate::facts::{Auth, Verdict};
use crate::ids::{InstanceId, InvalidId, ProviderName, ProxyKey, ProxyUid};
use crate::provider::{Lookup, ProviderInfo, Secret};

use super::hash::hex;
use super::{Memory, Pass, ProvisionedReason};

/// One Proxy, its surroundings, what this pass has learned, and what is remembered of it.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The object: from the store at first, then the answer of the latest look or write of this pass.
    pub object: ObjectFacts,
    /// What the object refers to.
    pub surroundings: Surroundings,
    /// Learned in this pass.
    pub pass: Pass,
    /// Remembered across passes of this process.
    pub memory: Memory,
}

impl Observed {
    /// Starts a pass.
    pub fn begin(object: ObjectFacts, surroundings: Surroundings, memory: Memory) -> Self {
        Self { object, surroundings, pass: Pass::default(), memory }
    }
}

/// The Proxy object as far as decisions need it.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectFacts {
    /// Namespace and name.
    pub key: ProxyKey,
    /// Identity.
    pub uid: ProxyUid,
    /// Generation of the spec.
    pub generation: i64,
    /// For guarded writes.
    pub resource_version: String,
    /// `deletionTimestamp` is set.
    pub deleting: bool,
    /// All finalizers, in order; others' survive our writes.
    pub finalizers: Vec<String>,
    /// Annotation [`SPEC_HASH_ANNOTATION`].
    pub spec_hash: Option<String>,
    /// Annotation [`PLANNED_ID_ANNOTATION`], if it is a valid id.
    pub planned_id: Option<InstanceId>,
    /// Annotation [`PLANNED_SCOPE_ANNOTATION`].
    pub planned_scope: Option<String>,
    /// Annotation [`REPLACE_ANNOTATION`], if it is not empty; one that is too long stands as its hash.
    pub replace_nonce: Option<String>,
    /// Annotation [`ABANDON_ANNOTATION`] is `true`.
    pub abandon: bool,
    /// What the user asks for.
    pub spec: ProxySpec,
    /// What was reported last.
    pub status: ProxyStatus,
}

impl ObjectFacts {
    /// Reads an object that came from the API server.
    ///
    /// # Errors
    /// Only for an object without a valid uid.
    pub fn of(proxy: &Proxy) -> Result<Self, InvalidId> {
        let meta = &proxy.metadata;
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).cloned();
        Ok(Self {
            key: ProxyKey::new(
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            ),
            uid: ProxyUid::parse(meta.uid.clone().unwrap_or_default())?,
            generation: meta.generation.unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            spec_hash: annotation(SPEC_HASH_ANNOTATION),
            planned_id: annotation(PLANNED_ID_ANNOTATION).and_then(|id| InstanceId::parse(id).ok()),
            planned_scope: annotation(PLANNED_SCOPE_ANNOTATION),
            replace_nonce: annotation(REPLACE_ANNOTATION).and_then(|text| nonce(&text)),
            abandon: annotation(ABANDON_ANNOTATION).as_deref() == Some("true"),
            spec: proxy.spec.clone(),
            status: proxy.status.clone().unwrap_or_default(),
        })
    }

    /// What has to be known of an object that is gone when it is asked for: which it was, where its machine is, and
    /// whether that drains or was left behind. Nothing that only a living object needs, which is most of it. Never
    /// decide on this without a look at the API server before.
    #[must_use]
    pub fn remains(&self) -> Self {
        let abandoned = ProvisionedReason::Abandoned.as_str();
        let said = self.status.conditions.iter().filter(|condition| condition.reason == abandoned);
        Self {
            spec: ProxySpec {
                placement: None,
                parameters: None,
                cloud_init: None,
                endpoint: None,
                auth: None,
                attributes: BTreeMap::new(),
                health_check: HealthCheckSpec::default(),
                provider: self.spec.provider.clone(),
                ..self.spec
            },
            status: ProxyStatus {
                phase: self.status.phase,
                provider_id: self.status.provider_id.clone(),
                provider_scope: self.status.provider_scope.clone(),
                incarnation: self.status.incarnation.clone(),
                ip: self.status.ip.clone(),
                conditions: said.cloned().collect(),
                ..ProxyStatus::default()
            },
            key: self.key.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            finalizers: self.finalizers.clone(),
            spec_hash: None,
            planned_id: self.planned_id.clone(),
            planned_scope: self.planned_scope.clone(),
            replace_nonce: None,
            ..*self
        }
    }

    /// True if our finalizer is there.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == FINALIZER)
    }

    /// True for Proxies whose machine we make.
    pub fn is_managed(&self) -> bool {
        match self.spec.mode {
            Mode::Managed => true,
            Mode::External => false,
        }
    }

    /// The machine's id in status, if it is a valid one.
    pub fn recorded_id(&self) -> Option<InstanceId> {
        self.status.provider_id.as_deref().and_then(|id| InstanceId::parse(id).ok())
    }

    /// The status says that the machine is left behind, and the person who said so has not taken it back.
    pub fn is_abandoned(&self) -> bool {
        let provisioned = ConditionType::Provisioned.as_str();
        let said = self.status.conditions.iter().any(|condition| {
            condition.type_ == provisioned && condition.reason == ProvisionedReason::Abandoned.as_str()
        });
        said && self.deleting && self.abandon
    }

    /// The identity of the machine that the status shows while its leases run out.
    pub fn draining(&self) -> Option<&str> {
        let status = &self.status;
        let drains = status.phase == Phase::Replacing && status.ip.is_some() && !self.deleting;
        status.incarnation.as_deref().filter(|_| drains)
    }

    /// True if clients can be sent to the machine that the status names.
    pub fn serves(&self) -> bool {
        let healthy = self.status.conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Healthy.as_str() && condition.status == "True"
        });
        let leaving = match self.status.phase {
            Phase::Replacing | Phase::Deleting => true,
            Phase::Pending | Phase::Provisioning | Phase::Ready | Phase::Unhealthy | Phase::Failed => false,
        };
        healthy && !leaving && self.status.ip.is_some()
    }

    /// The provider that the spec names, if the name is a valid one.
    pub fn provider(&self) -> Option<ProviderName> {
        self.spec.provider.as_deref().and_then(|name| ProviderName::parse(name).ok())
    }
}

/// Longest nonce that stands in the status as it is.
const NONCE_BYTES: usize = 128;

fn nonce(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() > NONCE_BYTES {
        return Some(format!("sha256:{}", hex(&Sha256::digest(text))));
    }
    (!text.is_empty()).then(|| text.to_owned())
}

/// What the object refers to, looked up anew before each decision. No I/O is needed for any of it.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Identity of this cluster, for the ownership tags.
    pub cluster: String,
    /// What the registry says of the provider. External: not looked at.
    pub provider: ProviderView,
    /// The cloud-init text.
    pub cloud_init: CloudInitView,
    /// The proxy credentials.
    pub auth: Auth,
    /// A probe URL is configured for it somewhere (Proxy, provider or flag).
    pub probe_configured: bool,
    /// What health says, of whatever machine.
    pub verdict: Option<Verdict>,
    /// Live leases, as the pool counts them.
    pub leases: u32,
}

/// What the registry says of a provider, without the provider itself.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderView {
    /// Not in the providers config; the names that are.
    Unknown(Vec<ProviderName>),
    /// Being loaded: wait, write nothing.
    Loading,
    /// Could not be loaded.
    Failed {
        /// Constant word.
        stage: &'static str,
        /// For people.
        reason: String,
    },
    /// Takes calls.
    Ready(ProviderFacts),
}

/// What decisions need to know of a loaded provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderFacts {
    /// See [`ProviderInfo`]; the settings' `delete_only` refuses creates.
    pub info: ProviderInfo,
}

impl ProviderFacts {
    /// Two absences further apart than this prove that no create is under way any more: the longest call
    /// and the time for which lists may lag behind.
    pub fn settle(&self) -> Duration {
        self.info.longest_call + self.info.list_lag
    }
}

impl From<&Lookup> for ProviderView {
    fn from(lookup: &Lookup) -> Self {
        match lookup {
            Lookup::Ready(provider) => Self::Ready(ProviderFacts { info: provider.info().clone() }),
            Lookup::Loading => Self::Loading,
            Lookup::Failed { stage, reason } => Self::Failed { stage, reason: reason.clone() },
            Lookup::Unknown { configured } => Self::Unknown(configured.clone()),
        }
    }
}

/// The cloud-init text as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudInitView {
    /// The Proxy has none.
    NotUsed,
    /// Inline, or read from its Secret.
    Resolved(Secret<String>),
    /// The Secret, its label or its key is missing: what to do, for people, without times.
    Problem(String),
}
