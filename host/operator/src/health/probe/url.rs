//! The probe URL, taken apart.

use http::Uri;

use super::failure::Failure;

/// How the target is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Absolute-form through the proxy.
    Http,
    /// CONNECT, TLS inside.
    Https,
}

impl Scheme {
    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A probe URL that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeUrl {
    pub(super) scheme: Scheme,
    /// IPv6 in brackets.
    host: String,
    port: u16,
    path: String,
}

/// A probe URL as logs and conditions may show it: no user name, no password, no query.
pub(in crate::health) fn shown(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let (text, _) = text.split_at(end);
    if ProbeUrl::parse(text).is_ok() {
        return text.to_owned();
    }
    // What cannot be used is not taken apart: whatever stands before the last '@' may be a password.
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("...@{rest}"))
}

impl ProbeUrl {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let uri: Uri = text.parse().map_err(|_| Failure::probe_url("it is no URL in plain ASCII"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(_) | None => return Err(Failure::probe_url("it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| Failure::probe_url("it has no host"))?;
        let host = authority.host().to_owned();
        if authority.as_str().contains('@') {
            return Err(Failure::probe_url("it must not hold a user name or a password"));
        }
        let port = match authority.as_str().strip_prefix(host.as_str()) {
            Some("") => scheme.default_port(),
            Some(_) => authority
                .port_u16()
                .filter(|port| *port != 0)
                .ok_or_else(|| Failure::probe_url("its port must be between 1 and 65535"))?,
            None => return Err(Failure::probe_url("it has no valid host")),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self { scheme, host, port, path: path.to_owned() })
    }

    /// `host:port`, as CONNECT wants it: the port always, IPv6 in brackets.
    pub(super) fn connect_authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The `Host` header of the request itself: a port only if it is not the usual one.
    pub(super) fn host_header(&self) -> String {
        if self.port == self.scheme.default_port() { self.host.clone() } else { self.connect_authority() }
    }

    /// Absolute-form, for a plain request through the proxy.
    pub(super) fn absolute_form(&self) -> String {
        format!("http://{}{}", self.host_header(), self.path)
    }

    /// Origin-form, for the request inside the tunnel.
    pub(super) fn origin_form(&self) -> &str {
        &self.path
    }

    /// The name that the certificate inside the tunnel must be for.
    pub(super) fn server_name(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn no_secret_of_a_url_is_shown() {
        for (url, expected) in [
            ("https://target.example/health", "https://target.example/health"),
            ("https://target.example/health?token=hunter2#x", "https://target.example/health"),
            ("https://target.example/@home", "https://target.example/@home"),
            ("https://user:hunter2@target.example/a?b", "...@target.example/a"),
            ("https:/user:hunter2@target.example/", "...@target.example/"),
            ("user:hunter2@target.example", "...@target.example"),
            ("https://user:hunt@er2@target.example/", "...@target.example/"),
            ("", ""),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
    }
}
