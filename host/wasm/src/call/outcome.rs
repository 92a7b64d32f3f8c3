//! How a call ended: the guest's answer, or the one reason why there is none.

use std::time::Duration;

use egress_proxies_core::provider::{Failure, HostFault, Reason};
use tokio::time::error::Elapsed;
use wasmtime::component::ResourceTableError;
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::Op;
use super::log::GuestLog;
use super::state::MOST_RESOURCES;
use crate::limits::{CpuMeter, MemoryLimiter, Refused, TABLE_ELEMENTS};

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
        Ok(Err(error)) => {
            let (kind, what) = explain(&error, evidence.limiter.refused());
            let tail = evidence.log.tail();
            let words = if tail.is_empty() { String::new() } else { format!("; its last words: {tail}") };
            fault(kind, format!("{op} {what}{words}"))
        }
    }
}

/// A limit that ended it, or a trap inside the guest; anything else is an answer that could not be read.
fn explain(error: &wasmtime::Error, refused: Option<Refused>) -> (HostFault, String) {
    match refused {
        Some(Refused::Memory) => {
            let what = "reached its memory limit; raise limits.memoryMiB if it needs more";
            return (HostFault::Memory, what.to_owned());
        }
        Some(Refused::Table) => {
            let what =
                format!("needs more than {TABLE_ELEMENTS} table elements, more than any provider may have");
            return (HostFault::Memory, what);
        }
        None => {}
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return (HostFault::Trap, format!("ended itself with exit code {}", exit.0));
    }
    if matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
        return (
            HostFault::Trap,
            format!("holds more than {MOST_RESOURCES} requests, bodies and other handles"),
        );
    }
    let cause = error.root_cause().to_string();
    if cause.contains("fuel allocated for hostcalls") {
        return (HostFault::BadAnswer, "passed more than 8 MiB to the host".to_owned());
    }
    // wasmtime has no type for these.
    if cause.starts_with("resource limit exceeded:") {
        return (HostFault::Trap, format!("is made of too many parts: {cause}"));
    }
    if error.downcast_ref::<Trap>().is_some() || error.downcast_ref::<WasmBacktrace>().is_some() {
        (HostFault::Trap, format!("trapped: {cause}"))
    } else {
        (HostFault::BadAnswer, format!("gave an answer that breaks the contract: {cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_words_of_its_own() {
        let exit = wasmtime::Error::from(I32Exit(1));
        let full = wasmtime::Error::from(ResourceTableError::Full);
        let parts = wasmtime::Error::msg("resource limit exceeded: instance count too high at 257");
        let other = wasmtime::Error::msg("invalid utf-8");
        for (error, refused, kind, word) in [
            (&other, Some(Refused::Memory), HostFault::Memory, "raise limits.memoryMiB"),
            (&other, Some(Refused::Table), HostFault::Memory, "table elements"),
            (&exit, None, HostFault::Trap, "exit code 1"),
            (&full, None, HostFault::Trap, "1024 requests"),
            (&parts, None, HostFault::Trap, "too many parts"),
            (&other, None, HostFault::BadAnswer, "breaks the contract"),
        ] {
            let (found, what) = explain(error, refused);
            assert_eq!(found, kind, "{what}");
            assert!(what.contains(word), "{what}");
            assert_eq!(what.contains("memoryMiB"), refused == Some(Refused::Memory), "{what}");
        }
    }
}
