//! Durations and limits of the lifecycle. Four are flags of the operator: the polls while a machine is made,
//! deleted, running, and after a lack of quota; so are the two caps per minute. The others are fixed.

use std::time::Duration;

use super::Caps;

/// Durations and limits. `Default` has the documented values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Between two looks at a machine that is being made.
    pub provisioning_poll: Duration,
    /// The shortest such time: looks at a new machine begin with it and become rarer with its age.
    pub young_poll: Duration,
    /// Between two looks at a machine that is being deleted.
    pub deletion_poll: Duration,
    /// Between two looks at a running machine.
    pub drift_poll: Duration,
    /// Until the next try after a lack of quota or capacity.
    pub quota_poll: Duration,
    /// Until the next try after what only an administrator can fix; the longest wait of any retry.
    pub slow_poll: Duration,
    /// First wait of an exponential back-off.
    pub backoff_first: Duration,
    /// Longest wait of an exponential back-off for calls without a class of their own.
    pub backoff_most: Duration,
    /// Longest wait before a machine that vanishes again and again is made anew.
    pub vanish_most: Duration,
    /// A machine that ran this long ends the counting of vanished ones.
    pub settled_after: Duration,
    /// A machine that does not run after this long is deleted and made anew.
    pub provisioning_deadline: Duration,
    /// A delete is repeated after this long without an effect.
    pub delete_repeat: Duration,
    /// How long a live look at the object allows effects.
    pub fresh_for: Duration,
    /// How long a running machine waits for its first verdict before the status says that it runs.
    pub verdict_wait: Duration,
    /// A drain lasts at least this long if there is one: the pool must have heard of it before its count of
    /// leases says anything.
    pub drain_floor: Duration,
    /// An answer of validate-create that allowed a request is good for this long.
    pub checked_for: Duration,
    /// How much may be taken away at once.
    pub caps: Caps,
    /// Most effects of one pass; the rest is left to the next.
    pub most_steps: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            provisioning_poll: Duration::from_secs(5),
            young_poll: Duration::from_secs(1),
            deletion_poll: Duration::from_secs(5),
            drift_poll: Duration::from_mins(1),
            quota_poll: Duration::from_mins(5),
            slow_poll: Duration::from_mins(10),
            backoff_first: Duration::from_secs(2),
            backoff_most: Duration::from_mins(5),
            vanish_most: Duration::from_mins(5),
            settled_after: Duration::from_mins(10),
            provisioning_deadline: Duration::from_mins(15),
            delete_repeat: Duration::from_mins(2),
            fresh_for: Duration::from_secs(10),
            verdict_wait: Duration::from_secs(3),
            drain_floor: Duration::from_secs(3),
            checked_for: Duration::from_mins(10),
            caps: Caps::default(),
            most_steps: 64,
        }
    }
}
