//! Tags of a machine: whose it is and what it was made from. The host alone shortens values, to a charset
//! that every cloud takes (`[a-z0-9-]{0,63}`); providers store them byte for byte.
//!
//! Ownership is proved by the uid and cluster tags and nothing else: names are for people.

use sha2::{Digest, Sha256};

use crate::ids::{ProviderName, ProxyKey, ProxyUid, machine_name};
use crate::provider::{Instance, Tags};

use super::SpecHash;
use super::hash::hex;

const UID: &str = "proxy-operator-uid";
const CLUSTER: &str = "proxy-operator-cluster";
const NAMESPACE: &str = "proxy-operator-namespace";
const NAME: &str = "proxy-operator-name";
const PROVIDER: &str = "proxy-operator-provider";
const SPEC: &str = "proxy-operator-spec";
const LONGEST: usize = 63;

/// The owner of a machine: one Proxy of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    uid: String,
    cluster: String,
}

impl Owner {
    /// The Proxy `uid` in `cluster`.
    pub fn new(uid: &ProxyUid, cluster: &str) -> Self {
        Self { uid: shorten(uid.as_str()), cluster: shorten(cluster) }
    }

    /// The tags that prove it.
    pub fn tags(&self) -> Tags {
        Tags::from([(UID.to_owned(), self.uid.clone()), (CLUSTER.to_owned(), self.cluster.clone())])
    }

    /// True if the machine carries them.
    pub fn owns(&self, instance: &Instance) -> bool {
        instance.tags.get(UID) == Some(&self.uid) && instance.tags.get(CLUSTER) == Some(&self.cluster)
    }
}

/// All tags of a new machine.
pub fn machine_tags(owner: &Owner, key: &ProxyKey, provider: &ProviderName, spec: &SpecHash) -> Tags {
    let mut tags = owner.tags();
    tags.insert(NAMESPACE.to_owned(), shorten(&key.namespace));
    tags.insert(NAME.to_owned(), shorten(&key.name));
    tags.insert(PROVIDER.to_owned(), shorten(provider.as_str()));
    tags.insert(SPEC.to_owned(), spec.tag());
    tags
}

/// Those of a new machine's tags that prove whose it is.
pub fn owner_tags_of(tags: &Tags) -> Tags {
    tags.iter()
        .filter(|(key, _)| [UID, CLUSTER].contains(&key.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// Those of a machine's tags that a decision about the one Proxy needs that it may be of.
pub(super) fn decisive(tags: &Tags) -> Tags {
    let needed = |(key, _): &(&String, &String)| [UID, CLUSTER, SPEC].contains(&key.as_str());
    tags.iter().filter(needed).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The name of the machine that belongs to these tags' uid; none if they name none.
pub fn machine_name_of(owner: &Tags) -> Option<String> {
    let uid = ProxyUid::parse(owner.get(UID)?.as_str()).ok()?;
    Some(machine_name(&uid))
}

/// The spec tag that a machine carries.
pub fn spec_tag_of(instance: &Instance) -> Option<&str> {
    instance.tags.get(SPEC).map(String::as_str)
}

/// The tag that all machines of a cluster carry, whatever their Proxy and provider.
pub fn cluster_tags(cluster: &str) -> Tags {
    Tags::from([(CLUSTER.to_owned(), shorten(cluster))])
}

/// The tags that all machines carry which the operator of this cluster made for this entry of its providers config.
pub fn provider_tags(cluster: &str, provider: &ProviderName) -> Tags {
    let mut tags = cluster_tags(cluster);
    tags.insert(PROVIDER.to_owned(), shorten(provider.as_str()));
    tags
}

/// True if the operator of this cluster made the machine for this entry of its providers config.
pub fn is_made_by(instance: &Instance, cluster: &str, provider: &ProviderName) -> bool {
    provider_tags(cluster, provider).iter().all(|(key, value)| instance.tags.get(key) == Some(value))
}

/// The uid of the Proxy that a machine says it is of.
pub fn uid_of(instance: &Instance) -> Option<ProxyUid> {
    // A uid has the charset of tags, so it was never shortened.
    instance.tags.get(UID).and_then(|uid| ProxyUid::parse(uid.as_str()).ok())
}

/// True if the machine says whose it is, whoever that may be.
pub fn has_owner_tags(instance: &Instance) -> bool {
    [UID, CLUSTER].iter().all(|key| instance.tags.contains_key(*key))
}

/// True if the machine says that its Proxy is in this namespace.
pub fn is_in_namespace(instance: &Instance, namespace: &str) -> bool {
    instance.tags.get(NAMESPACE) == Some(&shorten(namespace))
}

/// Namespace and name of the Proxy that a machine was made for; none where the tags may hold shortened ones.
pub fn key_of(instance: &Instance) -> Option<ProxyKey> {
    let whole = |key: &str| instance.tags.get(key).filter(|text| !text.is_empty() && !may_be_shortened(text));
    Some(ProxyKey::new(whole(NAMESPACE)?, whole(NAME)?))
}

fn may_be_shortened(text: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.rsplit_once('-').is_some_and(|(_, tail)| tail.len() == 12 && tail.bytes().all(hex))
}

/// The text itself if it fits `[a-z0-9-]{0,63}`; else what fits of it, `-` and 12 hex of its hash.
pub(super) fn shorten(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.len() <= LONGEST && text.chars().all(allowed) {
        return text.to_owned();
    }
    let kept: String = text
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if allowed(c) { c } else { '-' })
        .take(LONGEST - 13)
        .collect();
    let digest: String = hex(&Sha256::digest(text.as_bytes())).chars().take(12).collect();
    format!("{kept}-{digest}")
}
