//! The providers config file: what the administrator grants, read once and checked before anything runs.
//!
//! A file that cannot be read, is no YAML, or has an unknown or ill-typed field is an error of the whole
//! file, with line and column. A value out of its bounds is a fault of that provider only: the entry
//! becomes [`EntryFault`] and the other providers run. Nothing is expanded (`${ENV}` stays as it is) and
//! nothing is granted that is not written here.

mod check;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::ProviderSettings;
use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Map, Value};

/// Largest config file.
const FILE_BYTES: u64 = 1 << 20;

/// All configured providers, in order of their names.
#[derive(Debug, Clone, Default)]
pub struct ProvidersConfig {
    /// One entry per name; a faulty entry fails its provider only.
    pub entries: BTreeMap<ProviderName, Result<ProviderConfig, EntryFault>>,
    /// What the operator uses without asking the guest: also of entries that are faulty elsewhere, since
    /// their machines may be running.
    pub settings: BTreeMap<ProviderName, ProviderSettings>,
}

/// Why one entry cannot be used. The text names the field, the value and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EntryFault(pub String);

/// Why the whole file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file could not be read.
    #[error("could not read the providers config {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is larger than 1 MiB.
    #[error("the providers config {} is larger than 1 MiB", .0.display())]
    TooLarge(PathBuf),
    /// The text is not a providers config.
    #[error("{path}:{line}:{column}: {message}", path = path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong there.
        message: String,
    },
}

/// One provider instance as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderConfig {
    /// Where the component is.
    pub source: Source,
    /// The document that the guest gets.
    pub config: Map<String, Value>,
    /// What it may do in the operator's own cluster.
    pub kubernetes: Option<KubernetesGrant>,
    /// Which other requests it may make.
    pub egress: Vec<EgressRule>,
    /// Bounds of its calls.
    pub limits: Limits,
    /// What the operator uses without asking the guest.
    pub settings: ProviderSettings,
}

/// Where a component comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A file; relative paths were resolved against the folder of the config file.
    File {
        /// Where it is.
        path: PathBuf,
        /// Expected digest in lower-case hex.
        sha256: Option<String>,
    },
    /// A download.
    Https {
        /// From where.
        url: String,
        /// Expected digest in lower-case hex.
        sha256: String,
    },
    /// An artefact in a registry, by manifest digest.
    Oci {
        /// `registry/name@sha256:<hex>`.
        reference: String,
    },
}

/// What a provider may do in the operator's own cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesGrant {
    /// The only namespace.
    pub namespace: String,
    /// Whose rights its requests have.
    pub service_account: String,
    /// Plural names of the resources it may use.
    pub resources: Vec<KubernetesResource>,
}

/// Resources that the gate knows how to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KubernetesResource {
    /// Pods; fields that reach beyond the pod are refused.
    Pods,
    /// Secrets; only `create` of the one that belongs to the machine's Pod.
    Secrets,
}

impl KubernetesResource {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Pods, Self::Secrets];

    /// Plural name, as in API paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Secrets => "secrets",
        }
    }

    /// The resource with this plural name.
    pub fn from_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.plural() == plural)
    }
}

/// One kind of request that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressRule {
    /// Scheme, host and port, exact.
    pub origin: Origin,
    /// Upper-case methods.
    pub methods: Vec<String>,
    /// Path or a parent of it, on segment boundaries.
    pub path_prefix: String,
    /// What the host adds.
    pub auth: EgressAuth,
    /// Addresses that are allowed although they are not public.
    pub allow_cidrs: Vec<IpNet>,
}

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// TLS or not.
    pub https: bool,
    /// Lower case, without trailing dot, in ASCII form; IPv6 without brackets.
    pub host: String,
    /// Explicit, also when it is the default of the scheme.
    pub port: u16,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, default) = if self.https { ("https", 443) } else { ("http", 80) };
        if self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
            write!(f, "{scheme}://[{}]", self.host)?;
        } else {
            write!(f, "{scheme}://{}", self.host)?;
        }
        if self.port == default { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which credentials the host adds to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EgressAuth {
    /// None.
    None,
}

/// Least `limits.memoryMiB`.
pub(crate) const LEAST_MEMORY_MIB: u32 = 16;

/// Bounds of one provider's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Linear memory of one call in MiB, over all memories of the component.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u32,
    /// CPU time of one call.
    pub cpu_ms: u32,
    /// Calls at the same time; deletes have as many of their own.
    pub concurrency: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_mib: 128, cpu_ms: 5_000, concurrency: 8 }
    }
}

impl ProvidersConfig {
    /// Reads and checks the file. Relative component paths resolve against its folder.
    ///
    /// # Errors
    /// If the file cannot be read, is too large, or is no providers config; with line and column.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let read = |source| FileError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(read)?.len() > FILE_BYTES {
            return Err(FileError::TooLarge(path.to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        Self::parse(&text, path)
    }

    /// Checks the text of a file; `path` is used in messages and to resolve relative paths.
    ///
    /// # Errors
    /// If the text is no providers config; with line and column.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let file = file::parse(text, path)?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let settings = file.iter().filter_map(|(name, raw)| Some((name.clone(), check::settings(raw).ok()?)));
        let settings = settings.collect();
        let entries = file.into_iter().map(|(name, raw)| (name, check::entry(raw, folder))).collect();
        Ok(Self { entries, settings })
    }
}
