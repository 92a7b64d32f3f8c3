//! Requests to a provider and its answers, already converted and checked.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Failure, Secret};
use crate::ids::{Incarnation, InstanceId};

/// Tags of a machine, in order. Keys `[a-z][a-z0-9-]{0,62}`, values `[a-z0-9-]{0,63}` when ours; a
/// machine may carry others.
pub type Tags = BTreeMap<String, String>;

/// User and password that a proxy demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name.
    pub username: Secret<String>,
    /// Password.
    pub password: Secret<String>,
}

/// What a machine is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateRequest {
    /// `px-<uid>`.
    pub name: String,
    /// Lower-case UUID, equal for all retries of one attempt.
    pub attempt_key: String,
    /// Where the proxy listens, 1..65535.
    pub port: u16,
    /// `spec.placement` as JSON, `{}` when absent.
    pub placement: Map<String, Value>,
    /// `spec.parameters`, `{}` when absent.
    pub parameters: Map<String, Value>,
    /// The resolved cloud-init text.
    pub bootstrap: Option<Secret<String>>,
    /// Credentials the machine must demand; only for providers with [`super::ProviderInfo::takes_access`].
    pub access: Option<Credentials>,
    /// Ownership and spec tags.
    pub tags: Tags,
}

/// Answer of `validate_create`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreatePlan {
    /// The id that create will return, where it follows from the request.
    pub id: Option<InstanceId>,
    /// Zone or region, for back-off after a lack of capacity.
    pub location: Option<String>,
    /// For people.
    pub warnings: Vec<String>,
}

/// Names one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRef {
    /// As the provider returned it.
    pub id: InstanceId,
    /// If present only that incarnation is meant.
    pub incarnation: Option<Incarnation>,
    /// Tags that prove ownership.
    pub owner: Tags,
}

/// State of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    /// Being made.
    Provisioning,
    /// Runs; may be probed.
    Running,
    /// Going to `Stopped`, not by a delete.
    Stopping,
    /// Does not run and will not by itself; exists.
    Stopped,
    /// An accepted delete is under way.
    Deleting,
    /// Exists and will never run.
    Failed,
    /// Any other: wait, lease nothing.
    Other(String),
}

/// Where a machine can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// IPv4, IPv6 without brackets, or DNS name.
    pub address: String,
    /// Never 0: the port asked for is filled in by the host.
    pub port: u16,
    /// `public`, `private` or another word.
    pub scope: String,
    /// Only where the upstream chose them.
    pub credentials: Option<Credentials>,
}

/// A machine as the provider sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Enough for `get` and `delete`.
    pub id: InstanceId,
    /// Its name upstream.
    pub name: String,
    /// Its identity upstream.
    pub incarnation: Option<Incarnation>,
    /// Its state.
    pub state: InstanceState,
    /// In the provider's order of preference; empty = no address yet.
    pub endpoints: Vec<Endpoint>,
    /// When it was made, if known.
    pub created_at: Option<jiff::Timestamp>,
    /// Zone or region.
    pub location: Option<String>,
    /// What goes wrong with it.
    pub problem: Option<Failure>,
    /// All tags as stored upstream.
    pub tags: Tags,
}

impl Instance {
    /// One of which no more is known.
    pub fn bare(id: InstanceId, name: impl Into<String>, state: InstanceState) -> Self {
        Self {
            id,
            name: name.into(),
            incarnation: None,
            state,
            endpoints: Vec::new(),
            created_at: None,
            location: None,
            problem: None,
            tags: Tags::default(),
        }
    }
}

/// Answer of `get`.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// It exists.
    Found(Box<Instance>),
    /// It certainly does not; why, if known.
    Absent(Option<Failure>),
}

/// Answer of `delete`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// Nothing is left; `get` is still asked before it is believed.
    Gone,
    /// Accepted; when to ask `get` again.
    InProgress(Option<Duration>),
}

/// All pages of a listing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// The machines found.
    pub items: Vec<Instance>,
    /// What could not be listed now; empty = complete.
    pub unreachable: Vec<String>,
}

impl Listing {
    /// True if nothing was unreachable.
    pub fn is_complete(&self) -> bool {
        self.unreachable.is_empty()
    }
}
