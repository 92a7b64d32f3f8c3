//! What garbage collection measures. The metrics room implements it.

use egress_proxies_core::gc::Seen;
use egress_proxies_core::ids::ProviderName;

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassOutcome {
    /// Everything was listed.
    Complete,
    /// A provider, or a part of one, could not be listed; the rest was.
    Incomplete,
    /// The Proxies could not be listed: nothing was decided.
    Failed,
    /// This process may no longer act: what was left to do was not done.
    NotLeading,
}

impl PassOutcome {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Complete, Self::Incomplete, Self::Failed, Self::NotLeading];

    /// Constant word for a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::NotLeading => "not_leading",
        }
    }
}

/// What became of a machine that was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Removed {
    /// Its delete was accepted.
    Deleted,
    /// A dry run: it would have been deleted.
    DryRun,
    /// The last look showed a reason to leave it.
    Spared,
    /// It could not be looked at, or its delete failed; the next pass tries again.
    Failed,
}

impl Removed {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Deleted, Self::DryRun, Self::Spared, Self::Failed];

    /// Constant word for a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::DryRun => "dry_run",
            Self::Spared => "spared",
            Self::Failed => "failed",
        }
    }
}

/// Measures of garbage collection.
pub trait GcMetrics: Send + Sync + 'static {
    /// A pass ended.
    fn pass(&self, outcome: PassOutcome);
    /// What a pass saw of a provider, and how many machines without tags, where the provider can tell. None:
    /// it could not be listed, what was known of it is out of date.
    fn seen(&self, provider: &ProviderName, seen: Option<(&Seen, Option<usize>)>);
    /// What became of a machine of a provider that was to go.
    fn removed(&self, provider: &ProviderName, removed: Removed);
}
