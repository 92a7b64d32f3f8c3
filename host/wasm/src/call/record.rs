//! What is measured of each call. The operator turns it into metrics; nothing here decides anything.

use std::time::Duration;

use egress_proxies_core::ids::ProviderName;

/// One finished call.
#[derive(Debug, Clone, Copy)]
pub struct CallRecord<'a> {
    /// Name in the providers config.
    pub provider: &'a ProviderName,
    /// Constant word for the call, such as `get`.
    pub op: &'static str,
    /// `answered` (a failure of the guest's own is an answer too), the host's reason such as `deadline` or
    /// `bad_answer`, `denied`, or `cancelled` for a call that nobody waited for to its end.
    pub outcome: &'static str,
    /// Wall time.
    pub elapsed: Duration,
    /// CPU time of the guest.
    pub cpu: Duration,
    /// Most linear memory in use at once.
    pub memory_bytes: usize,
    /// Requests that it tried to make.
    pub requests: u32,
    /// At least one of them was refused.
    pub denied: bool,
}

/// Takes records of calls. Must not block.
pub trait CallRecorder: Send + Sync {
    /// Called once per finished call.
    fn call(&self, record: &CallRecord<'_>);
    /// A call was refused since no permit was free.
    fn no_permit(&self, provider: &ProviderName);
}

/// Records nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRecorder;

impl CallRecorder for NoRecorder {
    fn call(&self, _: &CallRecord<'_>) {}
    fn no_permit(&self, _: &ProviderName) {}
}
