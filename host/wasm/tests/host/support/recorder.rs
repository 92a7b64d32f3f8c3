//! Keeps what is recorded of each call.

use std::sync::{Arc, Mutex};

use egress_proxies_core::ids::ProviderName;
use egress_proxies_wasm::registry::{CallRecord, CallRecorder};

/// Operation and outcome.
type Seen = (&'static str, &'static str);

/// What was seen of each call; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Seen>>>);

impl Recorder {
    pub(crate) fn shared(&self) -> Arc<dyn CallRecorder> {
        Arc::new(self.clone())
    }

    pub(crate) fn outcomes(&self, op: &str) -> Vec<&'static str> {
        self.0.lock().unwrap().iter().filter(|(found, _)| *found == op).map(|(_, outcome)| *outcome).collect()
    }
}

impl CallRecorder for Recorder {
    fn call(&self, record: &CallRecord<'_>) {
        self.0.lock().unwrap().push((record.op, record.outcome));
    }

    fn no_permit(&self, _: &ProviderName) {}
}
