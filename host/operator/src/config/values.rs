//! What the value of a flag may be. Each refusal says the rule; clap adds the flag.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::TypedValueParser;
use egress_proxies_core::provider::Secret;

/// Name of this process in Events if none is given.
const INSTANCE: &str = "egress-proxies-operator";

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let rule = "write it as 500ms, 5s, 1m or 2h, from 100ms to 24h";
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| format!("{text:?} is no duration: {rule}"))?;
    let span = Duration::try_from(parsed).map_err(|_| format!("{text:?} is negative: {rule}"))?;
    if (Duration::from_millis(100)..=Duration::from_hours(24)).contains(&span) {
        Ok(span)
    } else {
        Err(format!("{text:?} is out of range: {rule}"))
    }
}

/// How often something is done, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Never.
    Off,
    /// This often.
    Every(Duration),
}

/// `0`, or a duration that is long enough for a pass.
pub(super) fn interval(text: &str) -> Result<Interval, String> {
    if text == "0" {
        return Ok(Interval::Off);
    }
    let span = duration(text).map_err(|why| format!("{why}; or 0 to turn it off"))?;
    if span < Duration::from_secs(10) {
        return Err(format!("{text:?} is too short: at least 10s, or 0 to turn it off"));
    }
    Ok(Interval::Every(span))
}

pub(super) fn cluster_id(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=63).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err("it becomes a tag of each machine: 1-63 of a-z, 0-9 and '-'".to_owned())
    }
}

/// Names of namespaces from one occurrence of the flag, or from the variable.
#[derive(Debug, Clone)]
pub(super) struct NamespaceList(pub(super) Vec<String>);

/// Blank items are left out: a variable that is set and blank is as good as none.
pub(super) fn namespaces(text: &str) -> Result<NamespaceList, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let checked = names.map(|name| {
        if dns_label(name) {
            Ok(name.to_owned())
        } else {
            Err(format!("{name:?} is no name of a namespace: 1-63 of a-z, 0-9 and '-', as in a,b"))
        }
    });
    Ok(NamespaceList(checked.collect::<Result<_, _>>()?))
}

fn dns_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A name of a Kubernetes object.
pub(super) fn object_name(text: &str) -> Result<String, String> {
    if dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("it names a Kubernetes object: 1-63 of a-z, 0-9 and '-', with '-' inside only".to_owned())
    }
}

/// As [`object_name`]; blank is as good as none.
pub(super) fn object_name_or_none(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Ok(String::new()),
        name => object_name(name),
    }
}

/// The API server takes no Event whose `reportingInstance` is longer.
pub(super) fn instance(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Ok(INSTANCE.to_owned()),
        name if name.len() <= 128 => Ok(name.to_owned()),
        _ => Err("it stands in Events: 1-128 characters".to_owned()),
    }
}

/// Reads a probe URL. A refusal does not repeat the value, which clap would do for any simpler parser: it may
/// hold a password.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeUrlParser;

impl TypedValueParser for ProbeUrlParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let text = value.to_str().unwrap_or_default();
        let refuse = |fault| {
            let message = format!(
                "--probe-url (or PROBE_URL) cannot be used: {fault}; give a URL such as https://example.com/health\n"
            );
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, message).with_cmd(command)
        };
        probe_url(text).map_err(refuse)
    }
}

fn probe_url(text: &str) -> Result<String, &'static str> {
    let uri: http::Uri = text.parse().map_err(|_| "it is no URL in plain ASCII")?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) | None => return Err("it must start with http:// or https://"),
    }
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if authority.contains('@') {
        return Err(
            "it must not hold a user name or a password, which everybody would see who sees the target",
        );
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err("it has no host");
    }
    Ok(text.to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "clap's parsers give a Result")]
pub(super) fn secret(text: &str) -> Result<Secret<String>, String> {
    Ok(Secret::new(text.to_owned()))
}
