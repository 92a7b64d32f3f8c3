//! What can go wrong with a provider call, and what each case tells the host to do.

use std::time::Duration;

/// A failed call: the reason decides, the message is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", reason.label())]
pub struct Failure {
    /// Decides what happens next.
    pub reason: Reason,
    /// For people; at most 1 KiB, secrets masked, no times or request ids.
    pub message: String,
    /// When to try again, clamped to 1 s..1 h.
    pub retry_after: Option<Duration>,
    /// HTTP status of upstream.
    pub upstream_status: Option<u16>,
    /// Upstream's own code.
    pub upstream_code: Option<String>,
}

impl Failure {
    /// A failure without upstream details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
            upstream_status: None,
            upstream_code: None,
        }
    }

    /// What the host does about it.
    pub fn class(&self) -> FailureClass {
        self.reason.class()
    }

    /// Nobody upstream was asked: the provider had as many calls under way as it may, or rests.
    pub fn got_no_permit(&self) -> bool {
        self.reason == Reason::Host(HostFault::NoPermit)
    }
}

/// Reasons of the contract, plus those that the host itself finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Upstream fault, network, unknown outcome.
    Transient,
    /// Rate limit.
    Throttled,
    /// A limit of the account.
    Quota,
    /// The location has none left.
    Capacity,
    /// Credentials or permissions, or an egress that is not granted.
    Denied,
    /// Something the request refers to is missing upstream.
    Missing,
    /// The request can't ever work; JSON pointer to the field, `""` if unknown.
    Invalid(String),
    /// The name belongs to a machine without our tags.
    NameTaken,
    /// Our machine is in the middle of another operation.
    Busy,
    /// The id can't be reached with this config.
    OutOfScope,
    /// Like `Invalid` when no field is at fault.
    Permanent,
    /// The provider can't do it.
    Unsupported,
    /// Anything else the provider said.
    Other(String),
    /// The call did not end well for a reason inside the host's bounds.
    Host(HostFault),
}

/// Faults that the host finds itself. All are transient for the Proxy and count against the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostFault {
    /// The guest trapped or threw.
    Trap,
    /// The deadline passed.
    Deadline,
    /// The CPU budget was used up.
    Cpu,
    /// The memory limit was reached.
    Memory,
    /// The answer broke the contract.
    BadAnswer,
    /// No permit was free; asked again soon, not a fault of the guest.
    NoPermit,
    /// A request of the call did not leave, or its answer was not waited for, since this process may not act: it says
    /// nothing about the machine or its spec.
    HeldBack,
}

/// What the host does about a failure: one class, one behaviour, one row in `docs/lifecycle.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Back-off per Proxy.
    Retry,
    /// No call of the instance begins for a while, and a back-off per Proxy.
    Throttle,
    /// `QuotaExceeded`, retried at the quota poll.
    Quota,
    /// Condition, slow retry.
    Slow,
    /// Latched until the spec, config or provider changes (create and validate-create only).
    Latch,
    /// `NameConflict`, slow retry; never adopted, never deleted.
    NameConflict,
    /// Retried soon.
    Soon,
    /// Nothing is touched; shown to the administrator.
    HandsOff,
}

impl Reason {
    /// Constant word for metrics, events and conditions.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Quota => "quota",
            Self::Capacity => "capacity",
            Self::Denied => "denied",
            Self::Missing => "missing",
            Self::Invalid(_) => "invalid",
            Self::NameTaken => "name_taken",
            Self::Busy => "busy",
            Self::OutOfScope => "out_of_scope",
            Self::Permanent => "permanent",
            Self::Unsupported => "unsupported",
            Self::Other(_) => "other",
            Self::Host(HostFault::Trap) => "trap",
            Self::Host(HostFault::Deadline) => "deadline",
            Self::Host(HostFault::Cpu) => "cpu",
            Self::Host(HostFault::Memory) => "memory",
            Self::Host(HostFault::BadAnswer) => "bad_answer",
            Self::Host(HostFault::NoPermit) => "no_permit",
            Self::Host(HostFault::HeldBack) => "held_back",
        }
    }

    /// What the host does about it.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Transient
            | Self::Other(_)
            | Self::Host(
                HostFault::Trap
                | HostFault::Deadline
                | HostFault::Cpu
                | HostFault::Memory
                | HostFault::BadAnswer
                | HostFault::HeldBack,
            ) => FailureClass::Retry,
            Self::Throttled => FailureClass::Throttle,
            Self::Quota | Self::Capacity => FailureClass::Quota,
            Self::Denied | Self::Missing => FailureClass::Slow,
            Self::Invalid(_) | Self::Permanent | Self::Unsupported => FailureClass::Latch,
            Self::NameTaken => FailureClass::NameConflict,
            Self::Busy | Self::Host(HostFault::NoPermit) => FailureClass::Soon,
            Self::OutOfScope => FailureClass::HandsOff,
        }
    }
}
