//! What the API tells whoever counts.

/// How a request for a lease ended; each is one value of a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseOutcome {
    /// A new lease.
    Granted,
    /// The session's lease, renewed.
    Renewed,
    /// No Proxy matches.
    NoSuchProxy,
    /// Proxies match, none can be leased now.
    Busy,
    /// The session asked for something else.
    SessionConflict,
    /// The machine went away in between.
    MachineGone,
    /// The request was refused as it stood.
    Invalid,
    /// The Proxies are not known yet.
    NotReady,
    /// As many leases are live as are kept.
    TooManyLeases,
    /// This replica stands by.
    NotLeader,
}

impl LeaseOutcome {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Granted,
        Self::Renewed,
        Self::NoSuchProxy,
        Self::Busy,
        Self::SessionConflict,
        Self::MachineGone,
        Self::Invalid,
        Self::NotReady,
        Self::TooManyLeases,
        Self::NotLeader,
    ];

    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Renewed => "renewed",
            Self::NoSuchProxy => "no_such_proxy",
            Self::Busy => "busy",
            Self::SessionConflict => "session_conflict",
            Self::MachineGone => "machine_gone",
            Self::Invalid => "invalid",
            Self::NotReady => "not_ready",
            Self::TooManyLeases => "too_many_leases",
            Self::NotLeader => "not_leader",
        }
    }
}

/// Counts requests for leases.
pub trait LeaseMetrics: Send + Sync {
    /// A request for a lease ended so.
    fn lease_request(&self, outcome: LeaseOutcome);
}

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetrics;

impl LeaseMetrics for NoMetrics {
    fn lease_request(&self, _: LeaseOutcome) {}
}
