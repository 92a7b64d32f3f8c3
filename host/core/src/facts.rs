//! What the loops tell one another. Plain values over watch channels that `app` connects: lifecycle,
//! health and pool never import each other.
//!
//! - lifecycle -> health, pool: [`Fleet`], from the Proxy objects and what they refer to. Every replica
//!   publishes it, leader or not.
//! - health -> lifecycle: [`Verdicts`]. health -> pool: [`GoodProbe`].
//! - pool -> lifecycle: [`LeaseCounts`]. pool -> health: [`ProbeRequest`].
//! - health -> whoever raises the alarm: [`Suspicions`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::crd::{Mode, Phase};
use crate::ids::{Incarnation, ProviderName, ProxyKey, ProxyUid};
use crate::provider::Credentials;
use crate::time::Moment;

/// All Proxies by uid. Cheap to clone; one writer replaces entries copy-on-write.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// False until every store behind it was filled once: then nobody may conclude from an absence.
    pub ready: bool,
    /// The Proxies.
    pub proxies: Arc<BTreeMap<ProxyUid, Arc<ProxyFacts>>>,
}

/// One Proxy as health and pool need it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyFacts {
    /// Namespace and name.
    pub key: ProxyKey,
    /// Identity of the object.
    pub uid: ProxyUid,
    /// Managed or External.
    pub mode: Mode,
    /// Provider instance, for Managed.
    pub provider: Option<ProviderName>,
    /// Attributes of the Proxy over those of its provider.
    pub attributes: BTreeMap<String, String>,
    /// Concurrent leases in all.
    pub max_leases: Option<u32>,
    /// Concurrent leases per target.
    pub max_leases_per_target: Option<u32>,
    /// Kept and probed, never leased.
    pub suspend: bool,
    /// The object is being deleted.
    pub deleting: bool,
    /// A machine was made for it, or may have been. Managed only.
    pub begun: bool,
    /// Phase in status.
    pub phase: Phase,
    /// The machine to probe and to lease; none before it has an address and while it is being replaced.
    pub machine: Option<Machine>,
    /// Credentials that clients and probes present.
    pub auth: Auth,
    /// Healthy condition in status, for this machine.
    pub healthy: Option<bool>,
    /// Latency in status.
    pub latency: Option<Duration>,
    /// How to probe it; none if no URL is configured anywhere.
    pub probe: Option<ProbePlan>,
}

impl ProxyFacts {
    /// A Proxy of which nothing is known but who it is: no limits, no machine, nothing to probe or to lease.
    pub fn new(key: ProxyKey, uid: ProxyUid, mode: Mode) -> Self {
        Self {
            key,
            uid,
            mode,
            provider: None,
            attributes: BTreeMap::new(),
            max_leases: None,
            max_leases_per_target: None,
            suspend: false,
            deleting: false,
            begun: false,
            phase: Phase::Pending,
            machine: None,
            auth: Auth::None,
            healthy: None,
            latency: None,
            probe: None,
        }
    }

    /// Its machine is going, or the whole Proxy is.
    pub fn is_leaving(&self) -> bool {
        let leaving = match self.phase {
            Phase::Deleting | Phase::Replacing => true,
            Phase::Pending | Phase::Provisioning | Phase::Ready | Phase::Unhealthy | Phase::Failed => false,
        };
        leaving || self.deleting
    }

    /// It can't become ready without a change by a person.
    pub fn has_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// The machine that may be used now and in the near future, whatever its health: none while the Proxy is
    /// being deleted or its machine replaced.
    pub fn staying_machine(&self) -> Option<&Machine> {
        self.machine.as_ref().filter(|_| !self.is_leaving())
    }

    /// Clients can be sent there, suspended or not.
    pub fn serves(&self) -> bool {
        self.staying_machine().is_some() && self.healthy == Some(true)
    }
}

/// A machine that can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Health, leases and deletes are bound to it. External: `<host>:<port>` of the endpoint.
    pub incarnation: Incarnation,
    /// IPv4, IPv6 without brackets, or DNS name.
    pub address: String,
    /// Port of the proxy.
    pub port: u16,
}

/// Credentials of a Proxy as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// The Proxy asks for none.
    None,
    /// Read from its Secret, or chosen by the upstream.
    Known(Credentials),
    /// Asked for, but the Secret can't be read; why, for people.
    Missing(String),
}

/// CA certificates that a Proxy names, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaPem {
    /// PEM text, as it stands in the Secret.
    Read(String),
    /// The Secret, its label or its key is missing: what to do, for people. A certificate that only they
    /// would vouch for then says nothing about the machine.
    Missing(String),
}

/// How a Proxy is probed, defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbePlan {
    /// `http://` (absolute-form through the proxy) or `https://` (CONNECT, TLS inside).
    pub url: String,
    /// Statuses that count as success.
    pub expected_status: Vec<u16>,
    /// Time between probes.
    pub interval: Duration,
    /// Time for one probe, at most the interval.
    pub timeout: Duration,
    /// Successes in a row to become healthy.
    pub success_threshold: u32,
    /// Failures in a row to become unhealthy.
    pub failure_threshold: u32,
    /// Where a machine of its provider may be besides public addresses: what a name may lead to.
    pub networks: Arc<[IpNet]>,
    /// Further CA certificates for the TLS inside the tunnel; none if the Proxy names none.
    pub ca_pem: Option<CaPem>,
    /// Certificates inside the tunnel are not verified.
    pub insecure_skip_verify: bool,
}

/// What health knows of one Proxy's machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The machine it is about, and where it was probed; a verdict of another one, or of the same one at
    /// another address, is void.
    pub machine: Machine,
    /// The judgement after thresholds.
    pub healthy: bool,
    /// `ProbeSucceeded`, or the constant reason of the last failure such as `Refused` or `AuthRequired`.
    pub reason: &'static str,
    /// For people: no times, no counters.
    pub message: String,
    /// Of the last good probe, as reported (it moves only on a real change).
    pub latency: Option<Duration>,
    /// Time of the probe that changed this verdict.
    pub probed_at: jiff::Timestamp,
}

/// Verdicts by uid; an entry changes only when something worth a status write changed.
pub type Verdicts = Arc<BTreeMap<ProxyUid, Verdict>>;

/// Live leases by uid.
pub type LeaseCounts = Arc<BTreeMap<ProxyUid, u32>>;

/// A client said that a proxy is unreachable: probe it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Which Proxy.
    pub uid: ProxyUid,
    /// Which machine of it.
    pub incarnation: Incarnation,
}

/// A probe that a [`ProbeRequest`] asked for has succeeded. [`Verdicts`] cannot say it: a healthy proxy that
/// stays healthy changes no verdict. Sent over a bounded channel by `try_send`; a lost one does no harm,
/// because the pool asks again every 10 s for as long as it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoodProbe {
    /// Which Proxy.
    pub uid: ProxyUid,
    /// Which machine of it.
    pub incarnation: Incarnation,
    /// When the probe began. One that began before the client's report does not answer it.
    pub started: Moment,
}

/// Nearly all proxies with one probe URL failed at once: the target or our own network is suspected, and
/// no verdict turns unhealthy because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspicion {
    /// When it was raised.
    pub since: jiff::Timestamp,
    /// For people: what most of them fail with. No times, no counters.
    pub message: String,
}

/// Suspicions by probe URL, shown without user name, password and query; an entry is there exactly while the suspicion lasts.
pub type Suspicions = Arc<BTreeMap<String, Suspicion>>;
