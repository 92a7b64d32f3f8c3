//! Bounds of each field of a provider entry. Each message names the field, the value and what is allowed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use egress_proxies_core::provider::{MaxUnavailable, ProviderSettings, Replacement};
use ipnet::IpNet;
use serde_json::{Map, Value};

use super::file::{
    NumberOrText, RawEgress, RawKubernetes, RawLimits, RawProvider, RawReplacement, RawSource,
};
use super::{
    EgressAuth, EgressRule, EntryFault, KubernetesGrant, KubernetesResource, LEAST_MEMORY_MIB, Limits,
    ProviderConfig, Source,
};
use crate::gate::{METHODS, address, target};

/// Largest `config` document.
const CONFIG_BYTES: usize = 64 * 1024;

fn fault<T>(text: impl Into<String>) -> Result<T, EntryFault> {
    Err(EntryFault(text.into()))
}

/// What the operator uses without asking the guest.
pub(super) fn settings(raw: &RawProvider) -> Result<ProviderSettings, EntryFault> {
    attributes(&raw.attributes)?;
    let probe_url = raw.health_check.as_ref().and_then(|check| check.url.clone());
    if let Some(url) = &probe_url {
        probe(url)?;
    }
    let delete_only = match raw.mode.as_deref() {
        None => false,
        Some("deleteOnly") => true,
        Some(other) => return fault(format!("mode {other:?} is not known; leave it out or use deleteOnly")),
    };
    let replacement = raw.replacement.as_ref().map(replacement).transpose()?.unwrap_or_default();
    let address_cidrs = cidrs("addressCidrs", &raw.address_cidrs)?.into();
    let attributes = raw.attributes.clone();
    Ok(ProviderSettings { probe_url, attributes, address_cidrs, delete_only, replacement })
}

pub(super) fn entry(raw: RawProvider, folder: &Path) -> Result<ProviderConfig, EntryFault> {
    document(&raw.config)?;
    let settings = settings(&raw)?;
    at_most("egress", raw.egress.len(), 64)?;
    let egress = raw.egress.into_iter().enumerate().map(|(at, rule)| egress(at, rule));
    Ok(ProviderConfig {
        source: source(raw.source, folder)?,
        config: raw.config,
        kubernetes: raw.kubernetes.map(kubernetes).transpose()?,
        egress: egress.collect::<Result<_, _>>()?,
        limits: raw.limits.map_or_else(|| Ok(Limits::default()), |raw| limits(&raw))?,
        settings,
    })
}

fn at_most(field: &str, count: usize, most: usize) -> Result<(), EntryFault> {
    if count > most {
        fault(format!("{field} has {count} entries; at most {most} are allowed"))
    } else {
        Ok(())
    }
}

/// A whole number within bounds, or the default.
fn number(field: &str, given: Option<i64>, least: u32, most: u32, default: u32) -> Result<u32, EntryFault> {
    let Some(given) = given else { return Ok(default) };
    match u32::try_from(given) {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        Ok(_) | Err(_) => fault(format!("{field} is {given}; it must be {least} to {most}")),
    }
}

fn document(config: &Map<String, Value>) -> Result<(), EntryFault> {
    let bytes = serde_json::to_vec(config).map_or(usize::MAX, |text| text.len());
    if bytes > CONFIG_BYTES {
        return fault(format!("config has {bytes} bytes as JSON; at most {CONFIG_BYTES} are allowed"));
    }
    Ok(())
}

fn attributes(attributes: &BTreeMap<String, String>) -> Result<(), EntryFault> {
    at_most("attributes", attributes.len(), 32)?;
    for (key, value) in attributes {
        if key.is_empty() {
            return fault("attributes: a key is empty; write what it is about, such as geo: eu");
        }
        if key.len() > 63 || value.len() > 256 {
            return fault(format!(
                "attributes: {key:?} or its value is too long; keys have 1-63 bytes, values at most 256"
            ));
        }
        if key.chars().chain(value.chars()).any(char::is_control) {
            return fault(format!(
                "attributes: {key:?} or its value has a line break or another control character; remove it"
            ));
        }
    }
    Ok(())
}

fn probe(url: &str) -> Result<(), EntryFault> {
    match http::Uri::try_from(url) {
        Ok(uri)
            if matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && !uri.authority().is_some_and(|authority| authority.as_str().contains('@')) =>
        {
            Ok(())
        }
        Ok(_) | Err(_) => fault(format!(
            "healthCheck.url {url:?} must be an http:// or https:// URL with a host and without user and password"
        )),
    }
}

fn source(raw: RawSource, folder: &Path) -> Result<Source, EntryFault> {
    let sha256 = raw.sha256.map(|text| digest("source.sha256", &text)).transpose()?;
    match (raw.file, raw.https, raw.oci) {
        (Some(file), None, None) if !file.is_empty() => Ok(Source::File { path: folder.join(file), sha256 }),
        (None, Some(url), None) => match sha256 {
            Some(sha256) if url.starts_with("https://") => Ok(Source::Https { url, sha256 }),
            Some(_) => fault(format!("source.https {url:?} must start with https://")),
            None => fault("source.https needs source.sha256, the digest of the file in hex"),
        },
        (None, None, Some(reference)) => match (reference.rsplit_once("@sha256:"), sha256) {
            (Some((name, hex)), None) if !name.is_empty() => {
                digest("source.oci", hex)?;
                Ok(Source::Oci { reference })
            }
            (Some(_), _) => fault("source.oci has its digest in the reference; remove source.sha256"),
            (None, _) => fault(format!("source.oci {reference:?} must end with @sha256:<64 hex digits>")),
        },
        _ => fault("source must have exactly one of file, https and oci"),
    }
}

fn digest(field: &str, text: &str) -> Result<String, EntryFault> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        Ok(hex.to_owned())
    } else {
        fault(format!("{field} {text:?} is no digest; it must be 64 lower-case hex digits"))
    }
}

fn dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn kubernetes(raw: RawKubernetes) -> Result<KubernetesGrant, EntryFault> {
    if !dns_label(&raw.namespace) {
        return fault(format!("kubernetes.namespace {:?} is no name of a namespace", raw.namespace));
    }
    if raw.service_account.len() > 253 || !raw.service_account.split('.').all(dns_label) {
        return fault(format!("kubernetes.serviceAccount {:?} is no name of one", raw.service_account));
    }
    let mut resources = Vec::new();
    for name in &raw.resources {
        let Some(resource) = KubernetesResource::from_plural(name) else {
            let known = KubernetesResource::ALL.map(KubernetesResource::plural).join(", ");
            return fault(format!("kubernetes.resources: {name:?} is not known; this release knows {known}"));
        };
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    if resources.is_empty() {
        return fault(
            "kubernetes.resources is empty; list what the provider may use, such as [pods, secrets]",
        );
    }
    Ok(KubernetesGrant { namespace: raw.namespace, service_account: raw.service_account, resources })
}

fn egress(at: usize, raw: RawEgress) -> Result<EgressRule, EntryFault> {
    let field = format!("egress[{at}]");
    let origin = target::origin(&raw.origin).map_err(|why| EntryFault(format!("{field}.origin: {why}")))?;
    if origin.host == target::KUBERNETES_HOST {
        return fault(format!("{field}.origin: access to the cluster is granted by the field kubernetes"));
    }
    if raw.methods.is_empty() {
        return fault(format!("{field}.methods is empty; list those that are allowed, such as [GET, POST]"));
    }
    if let Some(method) = raw.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
        return fault(format!("{field}.methods: {method:?} is not one of {}", METHODS.join(", ")));
    }
    let path_prefix = raw.path_prefix.unwrap_or_else(|| "/".to_owned());
    target::path(&path_prefix).map_err(|why| EntryFault(format!("{field}.pathPrefix: {why}")))?;
    match raw.auth.as_deref() {
        None | Some("none") => {}
        Some(kind @ ("google" | "bearer" | "basic" | "header")) => {
            return fault(format!("{field}.auth: {kind} is not supported yet in this release; only none is"));
        }
        Some("kubernetes") => {
            return fault(format!("{field}.auth: access to the cluster is granted by the field kubernetes"));
        }
        Some(other) => return fault(format!("{field}.auth {other:?} is not known; only none is")),
    }
    if let Some(reference) = raw.ca_secret_ref {
        let key = reference.key.unwrap_or_else(|| "ca.crt".to_owned());
        return fault(format!(
            "{field}.caSecretRef ({}, {key}) is not supported yet in this release; use an origin with a public certificate",
            reference.name
        ));
    }
    let allow_cidrs = cidrs(&format!("{field}.allowCidrs"), &raw.allow_cidrs)?;
    Ok(EgressRule { origin, methods: raw.methods, path_prefix, auth: EgressAuth::None, allow_cidrs })
}

fn cidrs(field: &str, texts: &[String]) -> Result<Vec<IpNet>, EntryFault> {
    at_most(field, texts.len(), 32)?;
    let mut nets = Vec::new();
    for text in texts {
        let Ok(net) = text.parse::<IpNet>() else {
            return fault(format!("{field}: {text:?} is no network; write it like 10.0.0.0/8"));
        };
        if address::never_allowed_in(net) {
            return fault(format!(
                "{field}: {text} contains link-local, metadata or multicast addresses, which are never allowed"
            ));
        }
        nets.push(net.trunc());
    }
    Ok(nets)
}

fn limits(raw: &RawLimits) -> Result<Limits, EntryFault> {
    let default = Limits::default();
    Ok(Limits {
        memory_mib: number("limits.memoryMiB", raw.memory_mib, LEAST_MEMORY_MIB, 512, default.memory_mib)?,
        cpu_ms: number("limits.cpuMs", raw.cpu_ms, 100, 60_000, default.cpu_ms)?,
        concurrency: number("limits.concurrency", raw.concurrency, 1, 64, default.concurrency)?,
    })
}

fn replacement(raw: &RawReplacement) -> Result<Replacement, EntryFault> {
    let field = "replacement.maxUnavailable";
    let max_unavailable = match &raw.max_unavailable {
        None => Replacement::default().max_unavailable,
        Some(NumberOrText::Number(count)) => {
            MaxUnavailable::Count(number(field, Some(*count), 1, 100_000, 1)?)
        }
        Some(NumberOrText::Text(text)) => match text.strip_suffix('%').and_then(|n| n.parse::<i64>().ok()) {
            Some(percent) => MaxUnavailable::Percent(number(field, Some(percent), 1, 100, 20)?),
            None => return fault(format!("{field} {text:?} must be a share like 20% or a number from 1")),
        },
    };
    let seconds = number("replacement.drainSeconds", raw.drain_seconds, 0, 86_400, 300)?;
    Ok(Replacement { max_unavailable, drain: Duration::from_secs(seconds.into()) })
}
