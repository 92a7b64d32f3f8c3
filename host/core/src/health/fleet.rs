//! If everything looks broken, suspect the observer.
//!
//! Proxies with one probe URL form a group. When nearly all of those that were healthy begin to fail, the
//! target or our own network is the likelier cause than so many proxies at once.

use crate::facts::ProbePlan;
use crate::health::{HealthState, Judgement};
use crate::time::Now;

/// Groups with fewer members than this do not begin to be suspected: two of two may well be broken.
pub const MIN_GROUP: usize = 5;
/// So many failures after its fall a machine still counts: with a threshold of 1 machines
/// fall one by one before it shows that all of them do.
const RECENT: u32 = 1;

/// How one machine counts in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not at all: no verdict yet, unhealthy for long, or failing for a cause that is its own.
    Outside,
    /// Healthy, and the last probe passed (or none ended yet).
    Passing,
    /// Was healthy, and now fails for a cause that need not be its own.
    Failing,
}

/// How many machines of a group stand where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCount {
    /// Of [`Standing::Passing`].
    pub passing: usize,
    /// Of [`Standing::Failing`].
    pub failing: usize,
}

impl GroupCount {
    /// Counts a machine in.
    pub fn add(&mut self, standing: Standing) {
        match standing {
            Standing::Outside => {}
            Standing::Passing => self.passing = self.passing.saturating_add(1),
            Standing::Failing => self.failing = self.failing.saturating_add(1),
        }
    }

    /// Takes a machine out that was counted in with this standing.
    pub fn remove(&mut self, standing: Standing) {
        match standing {
            Standing::Outside => {}
            Standing::Passing => self.passing = self.passing.saturating_sub(1),
            Standing::Failing => self.failing = self.failing.saturating_sub(1),
        }
    }
}

/// How a machine counts.
pub fn standing(state: &HealthState, plan: &ProbePlan) -> Standing {
    let fell_just_now = state.since_fall.is_some_and(|count| count <= RECENT);
    match state.verdict {
        Some(true) if state.failures == 0 => Standing::Passing,
        Some(_) if state.own_fault(plan) => Standing::Outside,
        Some(true) => Standing::Failing,
        Some(false) if fell_just_now && state.failures > 0 => Standing::Failing,
        Some(false) | None => Standing::Outside,
    }
}

/// Whether the target of a group is to be suspected: more than 80 % failing of a group that is large enough
/// raises it, half or less clears it, in between it stays as it is. A group that shrinks clears nothing: when
/// one of five leaves, the target is no better, and the other four would fall together.
pub fn suspect_target(suspected: bool, group: GroupCount) -> bool {
    let GroupCount { passing, failing } = group;
    let members = passing.saturating_add(failing);
    let raised = members >= MIN_GROUP && failing > passing.saturating_mul(4);
    failing > passing && (suspected || raised)
}

/// Takes back a fall of this machine that happened on the way to the suspicion; none if there was none.
pub fn restore(state: &HealthState, plan: &ProbePlan, now: Now) -> Option<Judgement> {
    let fell = state.verdict == Some(false) && standing(state, plan) == Standing::Failing;
    fell.then(|| state.clone().healthy_again(now))
}
