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
