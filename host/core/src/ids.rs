//! Names and identities as types of their own, so that a name cannot stand where a uid is meant.
//!
//! Values that come from outside are built by parsing; the error says what is allowed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is no valid identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: {rule}")]
pub struct InvalidId {
    /// What was being parsed, such as `instance id`.
    pub what: &'static str,
    /// The refused text, cut to 80 characters.
    pub value: String,
    /// What is allowed.
    pub rule: &'static str,
}

impl InvalidId {
    fn new(what: &'static str, value: &str, rule: &'static str) -> Self {
        Self { what, value: value.chars().take(80).collect(), rule }
    }
}

/// Namespace and name of a Proxy. For people and for API paths; never proof of identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProxyKey {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl ProxyKey {
    /// Builds a key from parts that the API server has already checked.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ProxyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses the text.
            ///
            /// # Errors
            /// If it is not valid; the error says what is allowed.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                let check: fn(&str) -> bool = $check;
                if check(&text) { Ok(Self(text)) } else { Err(InvalidId::new($what, &text, $rule)) }
            }

            /// The text as it was parsed.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

fn printable(text: &str, most: usize) -> bool {
    !text.is_empty() && text.len() <= most && text.bytes().all(|b| (0x21..=0x7e).contains(&b))
}

text_id!(
    /// Kubernetes uid of a Proxy: unique for ever, the only identity that machines are tied to.
    ProxyUid, "proxy uid", "1-63 of a-z, 0-9 and '-'",
    |t| !t.is_empty() && t.len() <= 63 && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);
text_id!(
    /// Name of a provider instance in the providers config, such as `gcp-eu`.
    ProviderName, "provider name", "[a-z][a-z0-9-]{0,62}",
    |t| t.len() <= 63
        && t.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);
text_id!(
    /// A provider's own id of a machine: opaque, stable, enough for `get` and `delete`.
    InstanceId, "instance id", "1-512 printable ASCII characters without spaces",
    |t| printable(t, 512)
);
text_id!(
    /// Upstream's identity of one machine (pod uid, numeric instance id): another one for a machine made
    /// anew under the same id.
    Incarnation, "incarnation", "1-512 printable ASCII characters without spaces",
    |t| printable(t, 512)
);
text_id!(
    /// Opaque id of a lease, as given to a client.
    LeaseId, "lease id", "1-256 printable ASCII characters without spaces",
    |t| printable(t, 256)
);

/// How the name of each machine begins.
pub const MACHINE_PREFIX: &str = "px-";

/// The name that the operator gives to the machine of a Proxy: `px-<uid>`.
pub fn machine_name(uid: &ProxyUid) -> String {
    format!("{MACHINE_PREFIX}{uid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_a_hostile_provider_might_return() {
        for bad in ["", "a b", "a\0b", "a\nb", "zürich"] {
            assert!(InstanceId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(InstanceId::parse("x".repeat(512)).is_ok());
        assert!(InstanceId::parse("x".repeat(513)).is_err());
    }

    #[test]
    fn the_error_names_the_value_and_the_rule() {
        let error = ProviderName::parse("GCP").unwrap_err().to_string();
        assert_eq!(error, "provider name \"GCP\" is not valid: [a-z][a-z0-9-]{0,62}");
    }
}
