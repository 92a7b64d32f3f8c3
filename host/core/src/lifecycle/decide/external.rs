//! External Proxies: nothing is made, no finalizer is set, no provider is asked.

use crate::time::Now;

use super::rest;
use crate::lifecycle::{Decision, Observed, Requeue, Stage, StatusIntent};

/// The endpoint stands in the spec; only health changes.
pub(super) fn decide(observed: &Observed, now: Now) -> Decision {
    let stage = if observed.object.deleting { Stage::Untouched } else { Stage::External };
    let status = StatusIntent { stage, machine: None, latch: None };
    rest(observed, "external", status, Requeue::OnChange, now)
}
