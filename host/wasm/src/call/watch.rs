//! Sees to it that each call is recorded and its last words are written, however it ends: answered, judged
//! a fault by whoever reads the answer, or dropped in the middle.

use std::sync::Arc;

use egress_proxies_core::provider::{Failure, Reason};
use tokio::time::Instant;

use super::mask::Mask;
use super::record::CallRecord;
use super::state::Words;
use super::{Instance, MOST_MESSAGE, Op};
use crate::gate::CallGate;
use crate::limits::{CpuMeter, Peak};

/// What a call that was dropped or cut off is recorded as.
const CANCELLED: &str = "cancelled";
/// What a call says that failed with a request that was not to leave.
const HELD_BACK: &str = "a request of the call was held back, since this process did not lead at that moment";

/// One call, from its first moment until it is recorded.
pub(super) struct Watch {
    pub(super) op: Op,
    pub(super) instance: Arc<Instance>,
    pub(super) began: Instant,
    pub(super) gate: Arc<CallGate>,
    pub(super) meter: Arc<CpuMeter>,
    pub(super) peak: Peak,
    pub(super) words: Words,
    pub(super) mask: Mask,
    pub(super) recorded: bool,
}

impl Watch {
    fn record(&mut self, outcome: &'static str) {
        self.recorded = true;
        self.instance.recorder.call(&CallRecord {
            provider: &self.instance.name,
            op: self.op.label(),
            outcome,
            elapsed: self.began.elapsed(),
            cpu: self.meter.spent(),
            memory_bytes: self.peak.bytes(),
            requests: self.gate.requests(),
            denied: self.gate.denial().is_some(),
        });
    }

    fn outcome(&self, result: Result<(), &Failure>) -> &'static str {
        match result {
            Err(failure) if self.gate.denial().is_some() || matches!(failure.reason, Reason::Host(_)) => {
                failure.reason.label()
            }
            // A failure in the guest's own words is an answer too.
            Ok(()) | Err(_) => "answered",
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.words.close();
        if !self.recorded {
            self.record(CANCELLED);
        }
    }
}

/// A call that has ended, and has to be judged.
pub(crate) struct Ended<T> {
    pub(super) answer: Result<T, Failure>,
    pub(super) watch: Watch,
}

impl<T> Ended<T> {
    /// What the answer means. It is recorded with that, and secrets of the call are hidden in what failed.
    pub(crate) fn judged<U>(mut self, judge: impl FnOnce(T) -> Result<U, Failure>) -> Result<U, Failure> {
        let held_back = self.watch.gate.held_back();
        let result = self.answer.and_then(judge).map_err(|mut failure| {
            // Whatever the guest makes of it: it says nothing about the machine or its spec.
            if held_back && !matches!(failure.reason, Reason::Host(_)) {
                return Failure::new(Reason::Transient, HELD_BACK.to_owned());
            }
            failure.message = self.watch.mask.line(&failure.message, MOST_MESSAGE);
            failure
        });
        let outcome = self.watch.outcome(result.as_ref().map(|_| ()));
        self.watch.record(outcome);
        result
    }
}
