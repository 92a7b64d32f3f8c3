//! What a Proxy's own Squid configuration (`cloudInit`) may say.
//!
//! It is read in the middle of the main configuration, behind its refusals. Order alone does not protect
//! those: a second `acl` of the same name adds to the first, a second `auth_param` replaces it, a
//! `cache_peer` leads around them, `include` reads anything. So only directives that can do none of this
//! pass, and lines must look the same to this check and to Squid's own parser: no continuations, no line
//! longer than its buffer, no control characters. Must never quote a line: the text is secret.

use egress_proxies_provider_sdk::failure::invalid;
use egress_proxies_provider_sdk::model::Failure;

use crate::squid::ACCESS_LISTS;

/// Squid reads lines of up to 8 KiB and takes what is behind for another line.
const MOST_LINE: usize = 4096;
/// Longest name of an access list that Squid takes.
const MOST_NAME: usize = 63;
/// Longest word that is called a directive in messages.
const MOST_WORD: usize = 64;
/// Access lists that Squid has by itself, and words with a meaning of their own.
const BUILT_IN: [&str; 7] =
    ["all", "manager", "localhost", "to_localhost", "to_linklocal", "CONNECT", "none"];

/// Directives that refuse more, or change how something is served and not whom, where to and by whom.
const ALLOWED: [&str; 61] = [
    "acl",
    "append_domain",
    "cache_mgr",
    "check_hostnames",
    "client_delay_access",
    "client_delay_initial_bucket_level",
    "client_delay_parameters",
    "client_delay_pools",
    "client_idle_pconn_timeout",
    "client_ip_max_connections",
    "client_lifetime",
    "client_persistent_connections",
    "client_request_buffer_max_size",
    "connect_retries",
    "connect_timeout",
    "delay_access",
    "delay_class",
    "delay_initial_bucket_level",
    "delay_parameters",
    "delay_pools",
    "dns_defnames",
    "dns_nameservers",
    "dns_retransmit_interval",
    "dns_timeout",
    "forward_max_tries",
    "forward_timeout",
    "forwarded_for",
    "half_closed_clients",
    "http_access",
    "http_reply_access",
    "http_upgrade_request_protocols",
    "httpd_suppress_version_string",
    "logformat",
    "miss_access",
    "pconn_lifetime",
    "persistent_request_timeout",
    "pipeline_prefetch",
    "quick_abort_max",
    "quick_abort_min",
    "quick_abort_pct",
    "range_offset_limit",
    "read_timeout",
    "reply_body_max_size",
    "reply_header_access",
    "reply_header_add",
    "reply_header_max_size",
    "reply_header_replace",
    "request_body_max_size",
    "request_header_access",
    "request_header_add",
    "request_header_max_size",
    "request_header_replace",
    "request_start_timeout",
    "request_timeout",
    "retry_on_error",
    "server_idle_pconn_timeout",
    "server_persistent_connections",
    "strip_query_terms",
    "via",
    "visible_hostname",
    "write_timeout",
];

/// Judges the configuration of one Proxy. `further` are the directives that the administrator allows too.
pub(crate) fn check(text: &str, further: &[String]) -> Result<(), Failure> {
    for (index, line) in text.split('\n').enumerate() {
        check_line(line, further).map_err(|why| {
            let number = index.saturating_add(1);
            invalid("/bootstrap", format!("cloudInit, line {number}: {why}"))
        })?;
    }
    Ok(())
}

fn check_line(line: &str, further: &[String]) -> Result<(), String> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.len() > MOST_LINE {
        return Err(format!("has {} bytes; up to {MOST_LINE} are taken, split it", line.len()));
    }
    if line.chars().any(|character| character.is_control() && character != '\t') {
        return Err("has control characters; remove them".to_owned());
    }
    if line.trim_end().ends_with('\\') {
        return Err("ends with a backslash; write each directive on one line".to_owned());
    }
    // Blanks of other scripts are none to Squid.
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let directive = match words.next() {
        None => return Ok(()),
        Some(word) if word.starts_with('#') => return Ok(()),
        Some(word) => word,
    };
    if !ALLOWED.contains(&directive) && !further.iter().any(|allowed| allowed == directive) {
        return Err(format!(
            "{} may lift the proxy's own rules, or is not known here; remove it, or have the administrator add it to extraDirectives in this provider's config",
            shown(directive)
        ));
    }
    if directive == "acl" { check_name(words.next().unwrap_or_default()) } else { Ok(()) }
}

/// The name of an access list. Squid compares them without regard to case.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !starts_well || name.len() > MOST_NAME || !name.bytes().all(is_plain) {
        return Err(format!(
            "an acl's name has up to {MOST_NAME} letters, digits, underscores, dots and dashes and begins with a letter or digit"
        ));
    }
    let taken = ACCESS_LISTS.iter().chain(&BUILT_IN).find(|taken| taken.eq_ignore_ascii_case(name));
    match taken {
        Some(taken) => {
            Err(format!("acl {taken} is one of the proxy's own and cannot be added to; rename yours"))
        }
        None => Ok(()),
    }
}

/// A directive's name; nothing that could be a piece of something secret.
fn shown(word: &str) -> &str {
    let is_name = word.len() <= MOST_WORD
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_name { word } else { "what it begins with is no directive that is allowed: it" }
}

#[cfg(test)]
mod tests;
