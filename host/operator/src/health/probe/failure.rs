//! Failures of a probe and what a person can do about each.
//!
//! Texts hold no times, ports, counters or texts of the operating system: a failure that repeats must read the
//! same, or each probe would write status. They never hold credentials.

use std::io;
use std::time::Duration;

use egress_proxies_core::facts::{Auth, CaPem};
use egress_proxies_core::health::ProbeReason;
use rustls::CertificateError;

use super::budget::Stage;
use super::url::Scheme;

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: ProbeReason,
    pub(super) message: String,
}

/// Whose bytes could not be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// The proxy, answering CONNECT.
    Proxy,
    /// The target, or the proxy in its place.
    Answer,
}

impl Failure {
    fn new(reason: ProbeReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The name of the proxy leads nowhere.
    pub(super) fn dns() -> Self {
        Self::new(
            ProbeReason::Dns,
            "the proxy's host name cannot be resolved; correct spec.endpoint.host or its DNS record",
        )
    }

    /// The name of the proxy could not be looked up.
    pub(super) fn resolve(error: &io::Error) -> Self {
        if is_our_limit(error) { Self::our_limit() } else { Self::dns() }
    }

    /// Nothing can be connected to from here, whatever the proxy does.
    fn our_limit() -> Self {
        Self::new(
            ProbeReason::OperatorLimit,
            "the operator itself has no file descriptor, memory, or local address and port left to connect from; raise its limits (open files, memory, net.ipv4.ip_local_port_range) or lower --max-probes-in-flight",
        )
    }

    pub(super) fn unreachable() -> Self {
        Self::new(
            ProbeReason::Unreachable,
            "there is no way to the proxy's address; check routes, network policies and the address itself",
        )
    }

    pub(super) fn ca() -> Self {
        Self::new(
            ProbeReason::CaInvalid,
            "the CA certificates for the probe cannot be read; put whole PEM certificates into the Secret that spec.healthCheck.caSecretRef names",
        )
    }

    fn ca_missing(fault: &str, why: &str) -> Self {
        let message = format!(
            "TLS inside the tunnel failed: {fault}, and the certificates that spec.healthCheck.caSecretRef names cannot be read: {why}"
        );
        Self::new(ProbeReason::CaSecretMissing, message)
    }

    pub(super) fn probe_url(fault: &str) -> Self {
        let message = format!(
            "the probe URL cannot be used: {fault}; set it in spec.healthCheck.url, in the provider's healthCheck.url or in the operator's flag"
        );
        Self::new(ProbeReason::ProbeUrlInvalid, message)
    }

    pub(super) fn endpoint_not_allowed(what: &str) -> Self {
        let message = format!(
            "the endpoint leads to {what}, where probes are not sent; set spec.endpoint.host to the proxy's address, or allow local endpoints with the operator's flag"
        );
        Self::new(ProbeReason::EndpointNotAllowed, message)
    }

    pub(super) fn machine_not_allowed(what: &str) -> Self {
        let message = format!(
            "the name of the machine leads to {what}, where probes are not sent; if its machines may be there, list the network in addressCidrs of the provider in the providers config"
        );
        Self::new(ProbeReason::EndpointNotAllowed, message)
    }

    pub(super) fn timeout(stage: Stage, timeout: Duration) -> Self {
        let (step, remedy) = match stage {
            Stage::Resolve => ("finding the address of the proxy", "check the cluster's DNS"),
            Stage::Connect => (
                "connecting to the proxy",
                "check that it runs and that firewalls let the operator reach its port",
            ),
            Stage::Tunnel => {
                ("waiting for the proxy to answer CONNECT", "check that the proxy can reach the probe target")
            }
            Stage::Tls => {
                ("in the TLS handshake inside the tunnel", "check the proxy's way to the probe target")
            }
            Stage::Answer => {
                ("waiting for the answer to the request", "check the proxy's way to the probe target")
            }
        };
        let seconds = timeout.as_secs_f64();
        let message = format!(
            "the probe took more than {seconds} s, {step}; {remedy}, or raise spec.healthCheck.timeoutSeconds"
        );
        Self::new(ProbeReason::Timeout, message)
    }

    /// No TCP connection to the proxy.
    pub(super) fn connect(error: &io::Error) -> Self {
        if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset) {
            return Self::new(
                ProbeReason::Refused,
                "nothing listens on the proxy's address and port; check that the proxy runs and that the port is right",
            );
        }
        if is_our_limit(error) { Self::our_limit() } else { Self::unreachable() }
    }

    /// The connection broke off before CONNECT was answered.
    pub(super) fn broken() -> Self {
        Self::protocol(Speaker::Proxy, "the connection broke off before it answered CONNECT")
    }

    pub(super) fn protocol(speaker: Speaker, fault: &str) -> Self {
        let message = match speaker {
            Speaker::Proxy => format!("the proxy failed: {fault}; see the proxy's log"),
            Speaker::Answer => {
                format!(
                    "no whole answer came through the proxy: {fault}; see the proxy's log and the probe target"
                )
            }
        };
        Self::new(ProbeReason::ProtocolError, message)
    }

    /// A fault in the answer to the request.
    pub(super) fn answer(error: &hyper::Error) -> Self {
        let fault = if error.is_parse_too_large() {
            return Self::head_too_large();
        } else if error.is_parse() {
            "it is not HTTP/1"
        } else if error.is_incomplete_message() {
            "the connection was closed too early"
        } else {
            "the connection broke off"
        };
        Self::protocol(Speaker::Answer, fault)
    }

    pub(super) fn head_too_large() -> Self {
        Self::protocol(Speaker::Answer, "it has more than 16 KiB of headers")
    }

    /// The proxy answered CONNECT with something else than 2xx.
    pub(super) fn connect_status(status: u16, auth: &Auth) -> Self {
        match status {
            401 | 407 => Self::auth_required(status, auth),
            403 => Self::new(
                ProbeReason::Denied,
                "the proxy answered CONNECT with 403: its rules forbid the operator's address, or the host or port of the probe URL; allow them in the proxy's configuration",
            ),
            502..=504 => Self::new(
                ProbeReason::BadGateway,
                format!(
                    "the proxy answered CONNECT with {status}: it cannot reach the probe target; check its DNS and its way out"
                ),
            ),
            _ => Self::new(
                ProbeReason::TunnelRefused,
                format!(
                    "the proxy answered CONNECT with {status}: it must allow CONNECT to the host and port of the probe URL"
                ),
            ),
        }
    }

    /// The proxy answered a plain request in its own name, and does not ask for credentials.
    pub(super) fn proxys_own(status: u16) -> Self {
        match status {
            403 => Self::new(
                ProbeReason::Denied,
                "the proxy answered with 403: its rules forbid the operator's address or the probe URL; allow them in the proxy's configuration",
            ),
            502..=504 => Self::new(
                ProbeReason::BadGateway,
                format!(
                    "the proxy answered with {status}: it cannot reach the probe target; check its DNS and its way out"
                ),
            ),
            _ => Self::new(
                ProbeReason::UnexpectedStatus,
                format!(
                    "the proxy answered in its own name with an error page, status {status}; see the proxy's log"
                ),
            ),
        }
    }

    /// The proxy asks for credentials.
    pub(super) fn auth_required(status: u16, auth: &Auth) -> Self {
        match auth {
            Auth::None => Self::new(
                ProbeReason::AuthRequired,
                format!(
                    "the proxy asks for credentials ({status}) and the Proxy names none; set spec.auth.secretRef"
                ),
            ),
            Auth::Known(_) => Self::new(
                ProbeReason::AuthRequired,
                format!(
                    "the proxy refused the credentials ({status}); correct the user name and password in its Secret, or the proxy's user list"
                ),
            ),
            Auth::Missing(why) => Self::new(
                ProbeReason::AuthSecretMissing,
                format!("the proxy asks for credentials ({status}), which cannot be read: {why}"),
            ),
        }
    }

    pub(super) fn unexpected_status(status: u16, expected: &[u16], scheme: Scheme) -> Self {
        let wanted = if expected.is_empty() {
            "200".to_owned()
        } else {
            expected.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
        };
        let redirect = if (300..400).contains(&status) { " (redirects are not followed)" } else { "" };
        let (who, remedy) = match scheme {
            Scheme::Https => ("the probe target", ""),
            Scheme::Http => {
                ("the probe target, or the proxy in its place,", "; an https:// URL shows whose answer it is")
            }
        };
        let message = format!(
            "{who} answered with {status}{redirect}, expected {wanted}; correct spec.healthCheck.url or expectedStatus{remedy}"
        );
        Self::new(ProbeReason::UnexpectedStatus, message)
    }

    /// The TLS handshake inside the tunnel failed.
    pub(super) fn tls(error: &io::Error, ca_pem: Option<&CaPem>) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let fault = match inner {
            Some(rustls::Error::InvalidCertificate(certificate)) => {
                let fault = certificate_fault(certificate);
                if let Some(CaPem::Missing(why)) = ca_pem {
                    return Self::ca_missing(fault, why);
                }
                fault
            }
            Some(_) => "the peer does not speak TLS as it should",
            None => "the tunnel was closed during the handshake",
        };
        let message = format!(
            "TLS inside the tunnel failed: {fault}; if the proxy is not meant to intercept, do not trust it, else name its CA in spec.healthCheck.caSecretRef"
        );
        Self::new(ProbeReason::Tls, message)
    }

    /// TLS cannot be set up at all.
    pub(super) fn tls_setup(error: &rustls::Error) -> Self {
        Self::new(
            ProbeReason::Tls,
            format!("TLS cannot be set up in the operator: {error}; report this as a bug"),
        )
    }
}

/// True if the operator's own process or node has run out of something, so that the proxy was not even asked.
fn is_our_limit(error: &io::Error) -> bool {
    use libc::{EADDRNOTAVAIL, EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    let codes = [EADDRNOTAVAIL, EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// By hand, because the texts of rustls hold times.
fn certificate_fault(error: &CertificateError) -> &'static str {
    use CertificateError as E;
    if matches!(error, E::Expired | E::ExpiredContext { .. }) {
        "the certificate has expired"
    } else if matches!(error, E::NotValidYet | E::NotValidYetContext { .. }) {
        "the certificate is not valid yet"
    } else if matches!(error, E::NotValidForName | E::NotValidForNameContext { .. }) {
        "the certificate is for another host"
    } else if matches!(error, E::UnknownIssuer) {
        "the certificate is self-signed or from an unknown CA"
    } else {
        "the certificate is not valid"
    }
}

#[cfg(test)]
mod tests {
    use egress_proxies_core::health::Blame;

    use super::*;

    #[test]
    fn what_the_operator_has_run_out_of_speaks_against_no_proxy() {
        let codes =
            [libc::EADDRNOTAVAIL, libc::EAGAIN, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
        for error in codes.map(io::Error::from_raw_os_error) {
            for failure in [Failure::connect(&error), Failure::resolve(&error)] {
                assert_eq!(failure.reason, ProbeReason::OperatorLimit, "{error}");
                assert_eq!(failure.reason.blame(), Blame::Ours);
                assert!(failure.message.contains("raise its limits"), "{}", failure.message);
            }
        }
        for code in [libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EPERM, libc::ECONNREFUSED] {
            let failure = Failure::connect(&io::Error::from_raw_os_error(code));
            assert_ne!(failure.reason.blame(), Blame::Ours, "{failure:?}");
        }
    }
}
