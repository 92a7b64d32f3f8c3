//! Where a request goes, in one canonical form, or why it cannot be told for certain.
//!
//! Pure. Rules compare exactly, so every spelling that another parser might read differently is refused
//! here instead of being repaired: user information, empty or encoded path segments, dots, control bytes.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use crate::call::mask::beginning;
use crate::config::Origin;

/// The name under which guests reach the API server of the operator's own cluster.
pub(crate) const KUBERNETES_HOST: &str = "kubernetes.internal";

/// Bytes of a text that are quoted in a message.
const MOST_SHOWN: usize = 80;
/// Longest path with query.
const PATH_BYTES: usize = 8 * 1024;

/// Quoted, and as much of it as a message may hold.
fn shown(text: &str) -> String {
    let (start, cut) = beginning(text, MOST_SHOWN);
    format!("{start:?}{}", if cut { "..." } else { "" })
}

/// Parses `scheme://host[:port]` as written in a config or by a guest.
pub(crate) fn origin(text: &str) -> Result<Origin, String> {
    let ascii = ascii(text)?;
    let uri = http::Uri::try_from(&*ascii)
        .map_err(|_| format!("{} is no origin; write scheme://host[:port]", shown(text)))?;
    let path = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    if !(path.is_empty() || path == "/") || text.ends_with('/') {
        return Err(format!("{} has a path; write scheme://host[:port]", shown(text)));
    }
    origin_of(&uri)
}

/// Names of other alphabets in the form that URLs have.
fn ascii(text: &str) -> Result<Cow<'_, str>, String> {
    if text.is_ascii() {
        return Ok(Cow::Borrowed(text));
    }
    let wrong = || format!("{} is no origin; write scheme://host[:port]", shown(text));
    let (scheme, authority) = text.split_once("://").ok_or_else(wrong)?;
    let (name, port) = match authority.split_once(':') {
        Some((name, port)) => (name, format!(":{port}")),
        None => (authority, String::new()),
    };
    let name = idna::domain_to_ascii_strict(name).map_err(|_| wrong())?;
    Ok(Cow::Owned(format!("{scheme}://{name}{port}")))
}

/// The canonical origin of a request.
pub(crate) fn origin_of(uri: &http::Uri) -> Result<Origin, String> {
    let https = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        Some(other) => return Err(format!("scheme {} is not https or http", shown(other))),
        None => return Err("the scheme is missing; write https://host".to_owned()),
    };
    let authority = uri.authority().ok_or("the host is missing; write https://host")?;
    if authority.as_str().contains('@') {
        return Err("user and password in a URL are not allowed".to_owned());
    }
    let host = host(authority.host())?;
    // Not `authority.port()`: it says "none" of a port that is no number.
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => {
            if https {
                443
            } else {
                80
            }
        }
        Some(rest) => rest
            .strip_prefix(':')
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .filter(|port| *port != 0)
            .ok_or("the port must be 1 to 65535")?,
        None => return Err("the host cannot be told from the port".to_owned()),
    };
    Ok(Origin { https, host, port })
}

/// Lower case, ASCII, without trailing dot; IPv6 without brackets. Numbers that are only almost an IPv4
/// address (`2130706433`, `127.1`, `0x7f.1`) are refused: resolvers read them as one.
fn host(text: &str) -> Result<String, String> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match inner.parse::<IpAddr>() {
            Ok(ip) if ip.is_ipv6() => Ok(ip.to_string()),
            Ok(_) | Err(_) => Err(format!("{} is no IPv6 address", shown(text))),
        };
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(ip.to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let ascii = idna::domain_to_ascii_strict(name).map_err(|_| format!("{} is no host name", shown(text)))?;
    let last = ascii.rsplit('.').next().unwrap_or_default();
    let numeric = last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit());
    if ascii.is_empty() || ascii.len() > 253 || numeric {
        return Err(format!("{} is no host name; write an IP address as four numbers", shown(text)));
    }
    Ok(ascii)
}

/// Refuses paths that two parsers could read differently.
pub(crate) fn path(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err(format!("{} must start with /", shown(text)));
    }
    if text.len() > PATH_BYTES {
        return Err(format!("the path is longer than {PATH_BYTES} bytes"));
    }
    if text.bytes().any(|b| b <= 0x20 || b >= 0x7f || matches!(b, b'\\' | b'?' | b'#')) {
        return Err("the path has characters that must be percent-encoded".to_owned());
    }
    let lower = text.to_ascii_lowercase();
    let encoded = lower.split('%').skip(1).filter_map(|rest| rest.get(..2));
    if encoded.clone().count() != lower.matches('%').count()
        || encoded.clone().any(|hex| !hex.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        return Err("the path has a broken percent-encoding".to_owned());
    }
    // Control bytes, ".", "/", "\", "%" and DEL must not hide in an encoding.
    if encoded.clone().any(|hex| hex < "20" || matches!(hex, "2e" | "2f" | "5c" | "25" | "7f")) {
        return Err("the path hides a dot, a slash, a percent sign or a control character".to_owned());
    }
    let segments = text.split('/').skip(1);
    let last = text.matches('/').count().saturating_sub(1);
    for (at, segment) in segments.enumerate() {
        if segment == "." || segment == ".." || (segment.is_empty() && at != last) {
            return Err("the path has an empty segment or a dot segment".to_owned());
        }
    }
    Ok(())
}

/// True if `path` is `prefix` or below it, on segment boundaries.
pub(crate) fn below(path: &str, prefix: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_spelling() {
        for (text, expected) in [
            ("https://API.Example.com.", "https://api.example.com"),
            ("https://api.example.com:443", "https://api.example.com"),
            ("http://api.example.com:8080", "http://api.example.com:8080"),
            ("https://[::1]:8443", "https://[::1]:8443"),
            ("https://München.example:8443", "https://xn--mnchen-3ya.example:8443"),
            ("https://münchen.example", "https://xn--mnchen-3ya.example"),
        ] {
            assert_eq!(origin(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn spellings_that_hide_the_host_are_refused() {
        for bad in [
            "https://user@api.example.com",
            "https://user:pw@api.example.com",
            "https://2130706433",
            "https://127.1",
            "https://0x7f.0.0.1",
            "https://0x7f000001",
            "https://127.0.0.0x1",
            "https://api.example.com:0",
            "https://api.example.com:",
            "https://api.example.com:+80",
            "https://api.example.com:99999",
            "ftp://api.example.com",
            "api.example.com",
            "https://api.example.com/path",
            "https://münchen.example/path",
            "https://user@münchen.example",
            "https://",
        ] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_quotes_the_beginning_of_a_long_text() {
        let long = "x".repeat(8 << 20);
        for error in [path(&long).unwrap_err(), origin(&long).unwrap_err(), host(&long).unwrap_err()] {
            assert!(error.len() < 200, "{} bytes", error.len());
        }
    }

    #[test]
    fn paths_that_two_parsers_could_read_differently_are_refused() {
        for bad in [
            "",
            "a",
            "//a",
            "/a//b",
            "/a/../b",
            "/a/..",
            "/./a",
            "/a%2fb",
            "/a%2e%2e/b",
            "/a%2E./b",
            "/a%5cb",
            "/a%00b",
            "/a%252e",
            "/a b",
            "/a\\b",
            "/a%",
            "/a%4",
            "/a%zz",
            "/a\u{e9}",
            "/a#b",
            "/%7f",
        ] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
        for good in ["/", "/a", "/a/", "/a/b.c", "/a%20b", "/a/...", "/a:b@c"] {
            assert!(path(good).is_ok(), "{good:?}: {:?}", path(good));
        }
    }

    #[test]
    fn prefixes_end_at_segments() {
        assert!(below("/a/b", "/a"));
        assert!(below("/a", "/a"));
        assert!(below("/a/b", "/a/"));
        assert!(below("/anything", "/"));
        assert!(!below("/ab", "/a"));
        assert!(!below("/b", "/a"));
    }
}
