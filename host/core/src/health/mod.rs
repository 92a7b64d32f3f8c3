//! Judging probes: what a result means, when a verdict changes, and when the next probe is due.
//!
//! All of it is pure. The engine of the operator keeps one [`HealthState`] per machine, asks [`judge`] after
//! each probe and [`next_due`] for the next, and counts [`Standing`]s per probe URL for [`suspect_target`].
//! The tables are in `docs/health.md`; the tests here have a row for each of their lines.
//!
//! **Invariant: a verdict never rests on one event that can have another cause than the machine** — it takes
//! a row of failures, and a row that nearly the whole fleet shows at once speaks against the probe target.

mod due;
mod fleet;
mod judge;
mod outcome;

pub use due::{MIN_FORCED_GAP, forced_due, known_due, next_due};
pub use fleet::{GroupCount, MIN_GROUP, Standing, restore, standing, suspect_target};
pub use judge::{HealthState, Hold, Judgement, MIN_REPORT_INTERVAL, SETTLE_TIME, judge};
pub use outcome::{Blame, Outcome, PROBE_SUCCEEDED, ProbeReason};

#[cfg(test)]
mod tests;
