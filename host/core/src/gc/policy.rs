//! Limits of garbage collection. All but one are flags of the operator.

use std::time::Duration;

/// Limits. `Default` has the documented values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// A machine younger than this is never deleted: its Proxy may be about to name it.
    pub min_age: Duration,
    /// Most deletes of one pass, over all providers.
    pub max_deletes: usize,
    /// When more than this share of a provider's machines looks abandoned, the observer is suspected and none
    /// of them is deleted. 100 = never.
    pub suspect_percent: u8,
    /// Fewer abandoned machines than this raise no suspicion: in a small fleet one orphan is a large share.
    pub suspect_from: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { min_age: Duration::from_mins(10), max_deletes: 20, suspect_percent: 80, suspect_from: 5 }
    }
}
