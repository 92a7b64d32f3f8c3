//! What the lifecycle loop measures. The metrics room implements it; tests use [`Silent`].

use std::time::Duration;

/// A write to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// Finalizer and annotations of a Proxy.
    Metadata,
    /// Status of a Proxy.
    Status,
    /// An Event.
    Event,
}

impl Write {
    /// Constant word for a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Status => "status",
            Self::Event => "event",
        }
    }
}

/// How a write or a reconcile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As intended.
    Done,
    /// The object had changed meanwhile, or was gone.
    Stale,
    /// It failed.
    Failed,
}

impl Outcome {
    /// Constant word for a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Stale => "stale",
            Self::Failed => "failed",
        }
    }
}

/// Measures of the lifecycle loop.
pub trait LifecycleMetrics: Send + Sync + 'static {
    /// One reconcile ended after this time.
    fn reconciled(&self, outcome: Outcome, took: Duration);
    /// One write was sent and answered.
    fn wrote(&self, what: Write, outcome: Outcome);
    /// Objects planned for a reconcile now or later, objects being worked on, and for how long the one that is due
    /// and has waited longest has waited.
    fn queue(&self, planned: usize, running: usize, longest_wait: Duration);
}

/// Measures nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl LifecycleMetrics for Silent {
    fn reconciled(&self, _outcome: Outcome, _took: Duration) {}
    fn wrote(&self, _what: Write, _outcome: Outcome) {}
    fn queue(&self, _planned: usize, _running: usize, _longest_wait: Duration) {}
}
