//! How a call ended: the guest's answer, or the one reason why there is none.

use std::time::Duration;

use egress_proxies_core::provider::{Failure, HostFault, Reason};
use tokio::time::error::Elapsed;
use wasmtime::{Trap, WasmBacktrace};

use super::Op;
use super::log::GuestLog;
use crate::limits::{CpuMeter, MemoryLimiter};

/// What was noted while the call ran.
pub(super) struct Evidence<'a> {
    pub(super) op: Op,
    pub(super) denial: Option<String>,
    pub(super) limiter: &'a MemoryLimiter,
    pub(super) meter: &'a CpuMeter,
    pub(super) log: &'a GuestLog,
    pub(super) timeout: Duration,
}

/// A refused request wins over everything: whatever the guest says next, the grant is what is missing.
pub(super) fn judge<T>(
    evidence: Evidence<'_>,
    answer: Result<wasmtime::Result<T>, Elapsed>,
) -> Result<T, Failure> {
    let op = evidence.op.label();
    if let Some(denial) = evidence.denial {
        return Err(Failure::new(Reason::Denied, denial));
    }
    let fault = |fault, message: String| Err(Failure::new(Reason::Host(fault), message));
    match answer {
        Ok(Ok(answer)) => Ok(answer),
        Err(_elapsed) => fault(
            HostFault::Deadline,
            format!("{op} did not answer within {} s", evidence.timeout.as_secs_f32().ceil()),
        ),
        Ok(Err(_)) if evidence.meter.was_exceeded() => {
            fault(HostFault::Cpu, format!("{op} used up its CPU budget; raise limits.cpuMs if it needs more"))
        }
        Ok(Err(_)) if evidence.limiter.was_refused() => fault(
            HostFault::Memory,
            format!("{op} reached its memory limit; raise limits.memoryMiB if it needs more"),
        ),
        Ok(Err(error)) => {
            let (kind, what) = explain(&error);
            let tail = evidence.log.tail();
            let words = if tail.is_empty() { String::new() } else { format!("; its last words: {tail}") };
            fault(kind, format!("{op} {what}{words}"))
        }
    }
}

/// A trap happened inside the guest; anything else is an answer that could not be read.
fn explain(error: &wasmtime::Error) -> (HostFault, String) {
    let cause = error.root_cause().to_string();
    if cause.contains("fuel allocated for hostcalls") {
        return (HostFault::BadAnswer, "passed more than 8 MiB to the host".to_owned());
    }
    if error.downcast_ref::<Trap>().is_some() || error.downcast_ref::<WasmBacktrace>().is_some() {
        (HostFault::Trap, format!("trapped: {cause}"))
    } else {
        (HostFault::BadAnswer, format!("gave an answer that breaks the contract: {cause}"))
    }
}
