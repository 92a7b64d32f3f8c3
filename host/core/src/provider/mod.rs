//! The provider as the rest of the operator sees it: a few calls, plain values, one error type.
//!
//! `host/wasm` implements [`Provider`] with a component; tests implement it with a fake that keeps real
//! state. Nothing here knows of WIT or wasmtime: policy sits on this side of the conversion.

mod failure;
mod replacement;
mod secret;
mod types;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use failure::{Failure, FailureClass, HostFault, Reason};
pub use replacement::{MaxUnavailable, Replacement};
pub use secret::Secret;
pub use types::{
    CreatePlan, CreateRequest, Credentials, Deletion, Endpoint, Instance, InstanceRef, InstanceState,
    Listing, Observation, Tags,
};

use ipnet::IpNet;

use crate::ids::ProviderName;

/// A call under way. Dropping it cancels the call; the effect upstream is then unknown.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A loaded provider instance. Every call is bounded in time by the implementation; answers are already
/// checked against the contract (lengths, ids, addresses), so callers may trust their shape, never their
/// truth.
pub trait Provider: Send + Sync {
    /// What is known about this instance without calling it.
    fn info(&self) -> &ProviderInfo;
    /// No network. Errors latch: the request can't work until the spec, config or provider changes.
    fn validate_create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, CreatePlan>;
    /// Idempotent on `request.name`. After a deadline or fault the outcome is unknown: `get` or
    /// `list_owned` before another create.
    fn create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, Instance>;
    /// `Absent` is certain; "could not tell" is an error.
    fn get<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Observation>;
    /// Safe to repeat. Only this incarnation, only if the owner tags match.
    fn delete<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Deletion>;
    /// All pages of the machines that carry all of these tags. `Listing::unreachable` empty = the whole
    /// truth up to [`ProviderInfo::list_lag`].
    fn list_owned<'a>(&'a self, owner: &'a Tags) -> Call<'a, Listing>;
    /// All pages of the machines whose name starts so and that lack any of these tags: to be counted, never to
    /// be touched. Many clouds cannot look for what is missing; a provider need not offer it.
    fn list_untagged<'a>(&'a self, _owner: &'a Tags, _prefix: &'a str) -> Call<'a, Listing> {
        Box::pin(async {
            Err(Failure::new(Reason::Unsupported, "this provider does not list machines without our tags"))
        })
    }
}

/// Facts of a loaded instance that decisions depend on.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderInfo {
    /// Name in the providers config.
    pub name: ProviderName,
    /// `sha256:<hex>` of the component.
    pub digest: String,
    /// Hash of the instance's configuration, part of the latch key.
    pub config_hash: String,
    /// What this config can reach; the same scope means the same machines are visible.
    pub scope: String,
    /// Longest bootstrap (cloud-init) in bytes; 0 = takes none.
    pub bootstrap_max_bytes: u32,
    /// How far lists may lag behind `get`: for so long a new machine may be missing from them.
    pub list_lag: Duration,
    /// The provider can make machines demand credentials.
    pub takes_access: bool,
    /// Longest time that one create, get, delete or list can take, the host's own waiting included.
    pub longest_call: Duration,
    /// Operator-side settings of the instance.
    pub settings: ProviderSettings,
}

impl ProviderInfo {
    /// One of which no more is known, that takes nothing and answers at once.
    pub fn bare(name: ProviderName) -> Self {
        Self {
            name,
            digest: String::new(),
            config_hash: String::new(),
            scope: String::new(),
            bootstrap_max_bytes: 0,
            list_lag: Duration::ZERO,
            takes_access: false,
            longest_call: Duration::ZERO,
            settings: ProviderSettings::default(),
        }
    }
}

/// What the providers config says of an instance that the guest never sees.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderSettings {
    /// Default probe URL of its Proxies; the Proxy's own wins.
    pub probe_url: Option<String>,
    /// Attributes that each of its Proxies has unless it sets them itself.
    pub attributes: BTreeMap<String, String>,
    /// Where its machines may be besides public addresses.
    pub address_cidrs: Arc<[IpNet]>,
    /// New machines are refused; get, delete and list go on.
    pub delete_only: bool,
    /// How its machines are replaced.
    pub replacement: Replacement,
}

/// What the registry says of a provider name.
#[derive(Clone)]
pub enum Lookup {
    /// Ready for calls.
    Ready(Arc<dyn Provider>),
    /// Still being loaded: wait, write no condition.
    Loading,
    /// Could not be loaded; `stage` is a constant word, `reason` is for people.
    Failed {
        /// Where loading stopped, such as `read`, `audit`, `compile`, `describe`, `schema`, `validate`.
        stage: &'static str,
        /// What to do about it.
        reason: String,
    },
    /// Not in the providers config; the names that are, in order.
    Unknown {
        /// Names in the config.
        configured: Vec<ProviderName>,
    },
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(provider) => f.debug_tuple("Ready").field(&provider.info().name).finish(),
            Self::Loading => f.write_str("Loading"),
            Self::Failed { stage, reason } => {
                f.debug_struct("Failed").field("stage", stage).field("reason", reason).finish()
            }
            Self::Unknown { configured } => {
                f.debug_struct("Unknown").field("configured", configured).finish()
            }
        }
    }
}

/// The set of configured providers, by name.
pub trait Providers: Send + Sync {
    /// Looks a name up. Cheap; no I/O.
    fn lookup(&self, name: &ProviderName) -> Lookup;
    /// What the providers config says of a name, whether or not its component could be loaded: machines
    /// that run keep their attributes and their probe while a provider is loading or has failed. None if
    /// the config has no such entry, or one that cannot be read. Cheap; no I/O.
    fn settings(&self, name: &ProviderName) -> Option<ProviderSettings>;
    /// Whether there are such settings. Asked on each change of a Proxy, so without a copy of them where that can be.
    fn has_settings(&self, name: &ProviderName) -> bool {
        self.settings(name).is_some()
    }
}
