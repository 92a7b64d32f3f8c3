//! Who leads: what to do about the one Lease that several processes of the operator share.
//!
//! **Invariant: two processes never believe at the same moment that they lead.** A leader believes it until
//! [`Timing::renew`] after the *start* of its last renewal that succeeded. Another one takes the Lease only after
//! it has seen no change of it for [`Timing::lease`], by its own clock (time in which it could see nothing is left
//! out); times that others wrote are never compared with ours. Each write names the version of the Lease that it
//! replaces, so of two writers one fails.
//!
//! **A leader whose deadline passed pauses.** It does nothing more, but it has not lost anything yet: whoever leads
//! next has to be in the Lease first, and raises its count of transitions. So if it finds the Lease with its own
//! identity and that count, and replaces that very version, nobody else has led since its last renewal, and it
//! leads again, with all that it remembers. Whatever else it finds (another holder, none, no Lease, another object,
//! another count) means that somebody may have led; and a Lease in an earlier version than it had, that what this
//! process remembers may never have been. Then it stops for good.
//!
//! All of it is pure: [`Candidate`] is what one process knows, [`Candidate::decide`] names the next step and its
//! row in `docs/leader.md`, and what came of the step is told to the candidate. The clock that `now` is taken
//! from must go on while the machine is suspended.

mod candidate;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use candidate::Candidate;

/// Longest duration that is believed of another's Lease: an edited Lease must not lock everybody out.
pub const MOST_DURATION: Duration = Duration::from_mins(1);

/// The duration in a Lease that its holder gave up. A Lease without a holder and with any other, or with
/// none, was emptied by somebody else, and its holder may not know it yet.
pub const GIVEN_UP: Duration = Duration::from_secs(1);

/// Longest time that a request about the Lease takes. A holder that was cut off tries again so long, and
/// [`Timing::retry`], after the API server is back at the latest.
pub const REQUEST: Duration = Duration::from_secs(5);

/// The three durations of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Unchanged for so long, the Lease of another is free.
    pub lease: Duration,
    /// So long after the start of its last renewal a leader leads; well below `lease`.
    pub renew: Duration,
    /// Between two renewals, and between two looks at the Lease of another.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// The Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Of this object: one that was made anew has another.
    pub uid: String,
    /// Changes with each write, whoever writes; a number that only rises, if it is one.
    pub version: String,
    /// How often it changed hands; whoever takes it counts.
    pub transitions: i32,
    /// Who holds it; none if it was given up.
    pub holder: Option<String>,
    /// For how long its holder wants to be believed; zero if that is not said.
    pub duration: Duration,
}

/// What to do next, and the row of the table that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The row of the table in `docs/leader.md`.
    pub row: &'static str,
    /// The step.
    pub step: Step,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Look,
    /// Make the Lease, held by this process.
    Create,
    /// Write this process into the Lease, as its new holder.
    Take,
    /// Write the Lease that this process holds anew.
    Renew,
    /// Nothing, for so long.
    Wait(Duration),
    /// This process led and may no longer act, until a renewal succeeds. It need not end.
    Pause,
    /// This process led and no longer does, or may have been followed by another one. It must end.
    Stop(Loss),
}

/// How the lead was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Somebody deleted the Lease.
    #[error("the Lease was deleted by somebody else")]
    Deleted,
    /// Somebody emptied the Lease.
    #[error("the holder of the Lease was taken out by somebody else")]
    Emptied,
    /// Another process is in the Lease.
    #[error("the Lease is held by {0} now")]
    Taken(String),
    /// It is another object.
    #[error("the Lease was deleted and made anew by somebody else")]
    Replaced,
    /// It names this process, and was another's in between.
    #[error(
        "the Lease names this process, but its leaseTransitions are not what they were: somebody else held it in \
         between"
    )]
    ChangedHands,
    /// It is in an earlier version than it had.
    #[error(
        "the Lease is in an earlier version than it was: etcd was restored from a backup, and what this process \
         remembers may never have been"
    )]
    Restored,
}
