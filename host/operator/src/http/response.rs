//! What clients get, as it stands on the wire. Credentials are in [`LeasedProxy`] and nowhere else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use egress_proxies_core::crd::{Mode, Phase};
use egress_proxies_core::facts::{Auth, ProxyFacts};
use egress_proxies_core::pool::{Granted, Usage, staying_machine};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::proxy_url::{server, with_credentials};

/// The Proxies that match.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProxyList {
    /// In order of their ids.
    pub(super) proxies: Vec<ProxyItem>,
    /// How many.
    pub(super) count: usize,
}

/// A Proxy without credentials.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProxyItem {
    /// `namespace/name`.
    pub(super) id: String,
    /// Address: IPv4, IPv6 without brackets, or DNS name; null while there is no machine.
    #[schema(required)]
    ip: Option<String>,
    /// Port; null while there is no machine.
    #[schema(required)]
    port: Option<u16>,
    /// `http://host:port`; null while there is no machine.
    #[schema(required)]
    server: Option<String>,
    /// Who makes the machine.
    mode: ModeField,
    /// Provider of a Managed one.
    #[schema(required)]
    provider: Option<String>,
    /// What selectors go by.
    attributes: BTreeMap<String, String>,
    /// Probes through it succeed, and it is not about to go.
    pub(super) healthy: bool,
    /// State in one word.
    phase: PhaseField,
    /// Latency of a probe, as of the last change worth reporting.
    #[schema(required)]
    latency_millis: Option<u64>,
    /// Live leases.
    active_leases: u32,
    /// Most concurrent leases; null = no limit.
    #[schema(required)]
    max_leases: Option<u32>,
    /// Most concurrent leases per target; null = no limit.
    #[schema(required)]
    max_leases_per_target: Option<u32>,
    /// The proxy demands credentials; a lease brings them.
    auth_required: bool,
    /// Kept and probed, never leased.
    suspended: bool,
}

/// A Proxy with what holds it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProxyDetail {
    /// The Proxy.
    #[serde(flatten)]
    item: ProxyItem,
    /// Live leases, earliest end first; without ids, since who knows an id may release the lease.
    leases: Vec<LeaseInfo>,
    /// Running cooldowns.
    cooldowns: Vec<CooldownInfo>,
    /// A client found it unreachable, and no probe has succeeded since.
    reported_unreachable: bool,
}

/// A live lease.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseInfo {
    /// Host that it is for; null = any.
    #[schema(required)]
    target: Option<String>,
    /// Who holds it.
    #[schema(required)]
    holder: Option<String>,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// A running cooldown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CooldownInfo {
    /// Host that it covers; null = every host.
    #[schema(required)]
    target: Option<String>,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    until: Timestamp,
}

/// A lease.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseReply {
    /// Opaque; the key to renew, report and release.
    #[serde(rename = "leaseID")]
    lease_id: String,
    /// What to connect through.
    proxy: LeasedProxy,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// Time from the grant or renewal to the end.
    ttl_seconds: u64,
}

/// What to connect through.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeasedProxy {
    /// `namespace/name`.
    id: String,
    /// Address: IPv4, IPv6 without brackets, or DNS name.
    ip: String,
    /// Port.
    port: u16,
    /// `http://user:password@host:port`, percent-encoded, for clients that take one URL.
    url: String,
    /// `http://host:port`, for clients that take credentials apart.
    server: String,
    /// User name as it is; null if none is demanded.
    #[schema(required)]
    username: Option<String>,
    /// Password as it is; null if none is demanded.
    #[schema(required)]
    password: Option<String>,
    /// The proxy demands credentials. With null above they cannot be given: the operator runs without API
    /// tokens and therefore gives none away, or, in a renewal, their Secret cannot be read now; then those
    /// that came with the lease go on working.
    auth_required: bool,
    /// Who makes the machine.
    mode: ModeField,
    /// Provider of a Managed one.
    #[schema(required)]
    provider: Option<String>,
    /// What selectors go by.
    attributes: BTreeMap<String, String>,
    /// Latency of a probe, as of the last change worth reporting.
    #[schema(required)]
    latency_millis: Option<u64>,
}

impl fmt::Debug for LeasedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedProxy").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Who makes the machine.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = Mode)]
pub(super) enum ModeField {
    /// A provider.
    Managed,
    /// It exists elsewhere.
    External,
}

/// State in one word, as in the status of the Proxy.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct PhaseField(Phase);

impl PartialSchema for PhaseField {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("State in one word."))
            .enum_values(Some(Phase::ALL.map(Phase::as_str)))
            .into()
    }
}

impl ToSchema for PhaseField {
    fn name() -> Cow<'static, str> {
        "Phase".into()
    }
}

/// Whether credentials may leave in a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CredentialPolicy {
    /// The client showed a token.
    Give,
    /// The API is open to anybody: give none.
    Withhold,
}

impl ProxyItem {
    /// The Proxy with this many live leases.
    pub(super) fn new(facts: &ProxyFacts, active_leases: u32) -> Self {
        let machine = facts.machine.as_ref();
        Self {
            id: facts.key.to_string(),
            ip: machine.map(|m| m.address.clone()),
            port: machine.map(|m| m.port),
            server: machine.map(server),
            mode: facts.mode.into(),
            provider: facts.provider.as_ref().map(ToString::to_string),
            attributes: facts.attributes.clone(),
            healthy: facts.healthy == Some(true) && staying_machine(facts).is_some(),
            phase: PhaseField(facts.phase),
            latency_millis: millis(facts),
            active_leases,
            max_leases: facts.max_leases,
            max_leases_per_target: facts.max_leases_per_target,
            auth_required: facts.auth != Auth::None,
            suspended: facts.suspend,
        }
    }
}

impl ProxyDetail {
    /// The Proxy with its leases and cooldowns.
    pub(super) fn new(facts: &ProxyFacts, usage: Usage) -> Self {
        let active = u32::try_from(usage.leases.len()).unwrap_or(u32::MAX);
        let host = |target: egress_proxies_core::pool::Target| target.to_string();
        Self {
            item: ProxyItem::new(facts, active),
            leases: usage
                .leases
                .into_iter()
                .map(|lease| LeaseInfo {
                    target: lease.target.map(host),
                    holder: lease.holder,
                    expires_at: lease.expires_at,
                })
                .collect(),
            cooldowns: usage
                .cooldowns
                .into_iter()
                .map(|(target, until)| CooldownInfo { target: target.map(host), until })
                .collect(),
            reported_unreachable: usage.reported_unreachable,
        }
    }
}

impl LeaseReply {
    /// The lease, with credentials if they may leave.
    pub(super) fn new(granted: &Granted, policy: CredentialPolicy) -> Self {
        let facts = &granted.proxy;
        let credentials = match (&facts.auth, policy) {
            (Auth::Known(credentials), CredentialPolicy::Give) => Some(credentials),
            (Auth::Known(_) | Auth::None | Auth::Missing(_), _) => None,
        };
        Self {
            lease_id: granted.id.to_string(),
            proxy: LeasedProxy {
                id: facts.key.to_string(),
                ip: granted.machine.address.clone(),
                port: granted.machine.port,
                url: credentials
                    .map_or_else(|| server(&granted.machine), |c| with_credentials(&granted.machine, c)),
                server: server(&granted.machine),
                username: credentials.map(|c| c.username.expose().clone()),
                password: credentials.map(|c| c.password.expose().clone()),
                auth_required: facts.auth != Auth::None,
                mode: facts.mode.into(),
                provider: facts.provider.as_ref().map(ToString::to_string),
                attributes: facts.attributes.clone(),
                latency_millis: millis(facts),
            },
            expires_at: granted.expires_at,
            ttl_seconds: granted.ttl.as_secs(),
        }
    }
}

fn millis(facts: &ProxyFacts) -> Option<u64> {
    facts.latency.map(|latency| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX))
}

impl From<Mode> for ModeField {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Managed => Self::Managed,
            Mode::External => Self::External,
        }
    }
}
