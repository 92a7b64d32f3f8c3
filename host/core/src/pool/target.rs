//! The site that a client crawls, as a host: what capacity per target and cooldowns are counted by.
//!
//! `Example.COM.:443`, `example.com` and its fullwidth or IDN spellings are one target. Two spellings kept
//! apart would each get the whole capacity, and a ban reported under one would not hold under the other.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// Longest text that is looked at; a DNS name has at most 253 characters.
const MAX_TEXT: usize = 1024;

/// A normalised host: lower-case ASCII name without a trailing dot, IPv4, or IPv6 without brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target(String);

/// Why a text is no target; says what to pass instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("target {given:?} {fault}; pass the host alone, such as \"example.com\" or \"example.com:8443\"")]
pub struct InvalidTarget {
    /// What was given, cut to 80 characters.
    pub given: String,
    /// What is wrong with it.
    pub fault: &'static str,
}

impl Target {
    /// Normalises `host`, `host:port`, an IPv4 or IPv6 address, or `[IPv6]:port`. The port is checked and
    /// dropped: a site bans an address, whatever the port.
    ///
    /// # Errors
    /// If the text is no host, such as a URL; the error says what to pass instead.
    pub fn parse(text: &str) -> Result<Self, InvalidTarget> {
        normalise(text)
            .map(Self)
            .map_err(|fault| InvalidTarget { given: text.chars().take(80).collect(), fault })
    }

    /// The normalised host.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn normalise(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.len() > MAX_TEXT {
        return Err("is longer than a host name can be");
    }
    if text.contains("://") || text.contains(['/', '?', '#']) {
        return Err("is a URL or has a path");
    }
    if text.contains('@') {
        return Err("has a user name in it");
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("has a space or control character in it");
    }
    if let Some(rest) = text.strip_prefix('[') {
        return bracketed(rest);
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(address.to_canonical().to_string());
    }
    name_or_ipv4(without_port(text)?)
}

fn bracketed(rest: &str) -> Result<String, &'static str> {
    let (inside, after) = rest.split_once(']').ok_or("has an opening bracket that is never closed")?;
    let address: Ipv6Addr =
        inside.parse().map_err(|_| "has brackets around something that is no IPv6 address")?;
    match after.strip_prefix(':') {
        Some(port) => check_port(port)?,
        None if after.is_empty() => {}
        None => return Err("has text after the closing bracket"),
    }
    Ok(address.to_canonical().to_string())
}

fn without_port(text: &str) -> Result<&str, &'static str> {
    match text.split_once(':') {
        None => Ok(text),
        Some((_, port)) if port.contains(':') => Err("has several colons but is no IPv6 address"),
        Some((host, port)) => check_port(port).map(|()| host),
    }
}

fn check_port(port: &str) -> Result<(), &'static str> {
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(1..) if digits => Ok(()),
        Ok(_) | Err(_) => Err("has a port that is not 1-65535"),
    }
}

fn name_or_ipv4(host: &str) -> Result<String, &'static str> {
    let ascii = Uts46::new()
        .to_ascii(host.as_bytes(), AsciiDenyList::URL, Hyphens::Allow, DnsLength::VerifyAllowRootDot)
        .map_err(|_| "is no host name (labels of 1-63 characters, 253 in all)")?;
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() {
        return Err("is no host name (labels of 1-63 characters, 253 in all)");
    }
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return Ok(IpAddr::from(address).to_string());
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_host_are_one_target() {
        let rows = [
            ("example.com", "example.com"),
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("example.com:443", "example.com"),
            ("EXAMPLE.com.:8443", "example.com"),
            ("Bücher.example", "xn--bcher-kva.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("BU\u{308}CHER.example", "xn--bcher-kva.example"),
            ("ｅｘａｍｐｌｅ.com", "example.com"),
            ("example。com", "example.com"),
            ("my_host.internal", "my_host.internal"),
            ("localhost", "localhost"),
            ("192.0.2.7:80", "192.0.2.7"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[2001:db8:0:0::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ];
        for (given, expected) in rows {
            assert_eq!(Target::parse(given).map(|t| t.0).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_with_the_fault_and_an_example() {
        let rows = [
            ("", "is empty"),
            ("https://example.com/", "is a URL"),
            ("example.com/path", "has a path"),
            ("user@example.com", "user name"),
            ("exa mple.com", "space"),
            ("example.com:0", "1-65535"),
            ("example.com:65536", "1-65535"),
            ("example.com:+80", "1-65535"),
            ("example.com:", "1-65535"),
            ("a:b:c", "several colons"),
            ("[::1", "never closed"),
            ("[example.com]", "no IPv6 address"),
            ("[::1]x", "after the closing bracket"),
            (".", "no host name"),
            ("a..b", "no host name"),
            ("exa%6dple.com", "no host name"),
        ];
        for (given, fault) in rows {
            let message = Target::parse(given).expect_err(given).to_string();
            assert!(message.contains(fault), "{given:?}: {message}");
            assert!(message.contains("pass the host alone"), "{message}");
        }
        assert!(Target::parse(&format!("{}.com", "a".repeat(64))).is_err());
        assert!(Target::parse(&"a.".repeat(127)).is_ok());
        assert!(Target::parse(&"a.".repeat(128)).is_err());
        assert!(Target::parse(&"a".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing_and_never_panics(text in "\\PC{0,80}") {
            if let Ok(target) = Target::parse(&text) {
                prop_assert_eq!(Target::parse(target.as_str()), Ok(target));
            }
        }
    }
}
