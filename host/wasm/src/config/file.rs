//! The file as it is written: names, types and nothing else. Values are judged in `check`.

use std::collections::BTreeMap;
use std::path::Path;

use egress_proxies_core::ids::ProviderName;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::FileError;

const API_VERSION: &str = "crawl.example.com/v1alpha1";
const KIND: &str = "ProvidersConfig";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    api_version: ApiVersion,
    kind: Kind,
    providers: BTreeMap<ProviderName, RawProvider>,
}

/// Refused while the reader still knows where it is.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct ApiVersion;

impl TryFrom<String> for ApiVersion {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text == API_VERSION { Ok(Self) } else { Err(format!("apiVersion {text:?} is not {API_VERSION}")) }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Kind;

impl TryFrom<String> for Kind {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text == KIND { Ok(Self) } else { Err(format!("kind {text:?} is not {KIND}")) }
    }
}

/// One provider as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawProvider {
    pub(super) source: RawSource,
    #[serde(default)]
    pub(super) config: Map<String, Value>,
    pub(super) kubernetes: Option<RawKubernetes>,
    pub(super) health_check: Option<RawHealthCheck>,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) replacement: Option<RawReplacement>,
    #[serde(default)]
    pub(super) address_cidrs: Vec<String>,
    #[serde(default)]
    pub(super) egress: Vec<RawEgress>,
    pub(super) limits: Option<RawLimits>,
    pub(super) mode: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawSource {
    pub(super) file: Option<String>,
    pub(super) https: Option<String>,
    pub(super) oci: Option<String>,
    pub(super) sha256: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawKubernetes {
    pub(super) namespace: String,
    pub(super) service_account: String,
    pub(super) resources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawHealthCheck {
    pub(super) url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawReplacement {
    pub(super) max_unavailable: Option<NumberOrText>,
    pub(super) drain_seconds: Option<i64>,
}

/// What `replacement.maxUnavailable` takes: a share or a number.
pub(super) enum NumberOrText {
    Number(i64),
    Text(String),
}

impl<'de> Deserialize<'de> for NumberOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShareOrNumber)
    }
}

/// Names the field where it is neither: serde's own words would be those of this type.
struct ShareOrNumber;

impl Visitor<'_> for ShareOrNumber {
    type Value = NumberOrText;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("replacement.maxUnavailable as a share like 20% or a whole number from 1")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Number(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Number(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Text(text.to_owned()))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawEgress {
    pub(super) origin: String,
    pub(super) methods: Vec<String>,
    pub(super) path_prefix: Option<String>,
    pub(super) auth: Option<String>,
    pub(super) ca_secret_ref: Option<RawSecretRef>,
    #[serde(default)]
    pub(super) allow_cidrs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawSecretRef {
    pub(super) name: String,
    pub(super) key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawLimits {
    #[serde(rename = "memoryMiB")]
    pub(super) memory_mib: Option<i64>,
    pub(super) cpu_ms: Option<i64>,
    pub(super) concurrency: Option<i64>,
}

pub(super) fn parse(text: &str, path: &Path) -> Result<BTreeMap<ProviderName, RawProvider>, FileError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        FileError::Parse { path: path.to_owned(), line, column, message: message(&error) }
    })?;
    let File { api_version: ApiVersion, kind: Kind, providers } = file;
    Ok(providers)
}

/// The reader's text without the position, which stands in front of it already.
fn message(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let end = [" at line ", "\n"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    text.get(..end).unwrap_or(&text).to_owned()
}
