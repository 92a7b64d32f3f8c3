//! What a probe found. Reasons are constants: they become condition reasons and metric labels.

use std::fmt;
use std::time::Duration;

/// Reason of a verdict that a good probe made.
pub const PROBE_SUCCEEDED: &str = "ProbeSucceeded";

/// Why a probe failed. One of them per remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeReason {
    /// Nothing listens on the proxy's port.
    Refused,
    /// Some step did not end within the probe's time.
    Timeout,
    /// The proxy's own name does not resolve.
    Dns,
    /// No route to the proxy.
    Unreachable,
    /// The proxy asks for credentials, or refuses those it was given.
    AuthRequired,
    /// The proxy asks for credentials, and the Secret with them cannot be read.
    AuthSecretMissing,
    /// The proxy's rules forbid the probe.
    Denied,
    /// The proxy could not reach the probe target.
    BadGateway,
    /// The proxy answered CONNECT with another status.
    TunnelRefused,
    /// TLS inside the tunnel failed: an intercepting proxy, or a certificate that is not valid.
    Tls,
    /// The target answered with a status that is not expected.
    UnexpectedStatus,
    /// What answers does not speak HTTP, or broke off.
    ProtocolError,
    /// The endpoint is one that probes must not be sent to.
    EndpointNotAllowed,
    /// The probe URL cannot be used.
    ProbeUrlInvalid,
    /// The further CA certificates are not PEM.
    CaInvalid,
    /// The operator has no file descriptors, memory or local ports left, so the proxy was not asked.
    OperatorLimit,
    /// The certificate is not trusted, and the Secret with the further CA certificates cannot be read.
    CaSecretMissing,
}

/// Whom a failure speaks against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// This proxy alone, whatever the others do.
    Proxy,
    /// The proxy, the target, or the way there: what the others do decides.
    Undecided,
    /// Ourselves: says nothing about the machine, and never takes a healthy one away.
    Ours,
}

impl ProbeReason {
    /// All of them, in the order of `docs/health.md`.
    pub const ALL: [Self; 17] = [
        Self::Refused,
        Self::Timeout,
        Self::Dns,
        Self::Unreachable,
        Self::AuthRequired,
        Self::AuthSecretMissing,
        Self::Denied,
        Self::BadGateway,
        Self::TunnelRefused,
        Self::Tls,
        Self::UnexpectedStatus,
        Self::ProtocolError,
        Self::EndpointNotAllowed,
        Self::ProbeUrlInvalid,
        Self::CaInvalid,
        Self::OperatorLimit,
        Self::CaSecretMissing,
    ];

    /// As it stands in a condition and in a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "Refused",
            Self::Timeout => "Timeout",
            Self::Dns => "Dns",
            Self::Unreachable => "Unreachable",
            Self::AuthRequired => "AuthRequired",
            Self::AuthSecretMissing => "AuthSecretMissing",
            Self::Denied => "Denied",
            Self::BadGateway => "BadGateway",
            Self::TunnelRefused => "TunnelRefused",
            Self::Tls => "Tls",
            Self::UnexpectedStatus => "UnexpectedStatus",
            Self::ProtocolError => "ProtocolError",
            Self::EndpointNotAllowed => "EndpointNotAllowed",
            Self::ProbeUrlInvalid => "ProbeUrlInvalid",
            Self::CaInvalid => "CaInvalid",
            Self::OperatorLimit => "OperatorLimit",
            Self::CaSecretMissing => "CaSecretMissing",
        }
    }

    /// Whom it speaks against.
    pub const fn blame(self) -> Blame {
        match self {
            // The proxy's host or the proxy itself said it.
            Self::Refused | Self::AuthRequired | Self::EndpointNotAllowed => Blame::Proxy,
            Self::Timeout
            | Self::Dns
            | Self::Unreachable
            | Self::Denied
            | Self::BadGateway
            | Self::TunnelRefused
            | Self::Tls
            | Self::UnexpectedStatus
            | Self::ProtocolError
            | Self::ProbeUrlInvalid => Blame::Undecided,
            Self::AuthSecretMissing | Self::OperatorLimit | Self::CaInvalid | Self::CaSecretMissing => {
                Blame::Ours
            }
        }
    }
}

impl fmt::Display for ProbeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The result of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// An expected answer came through the proxy.
    Passed {
        /// From the first packet to the head of the answer.
        latency: Duration,
    },
    /// It did not.
    Failed {
        /// Why.
        reason: ProbeReason,
        /// For people: what to do. No times, no counters, so that a repeated failure reads the same.
        message: String,
    },
}
