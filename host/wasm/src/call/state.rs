//! What one store holds: the guest's world for one call, made fresh and thrown away after it.

use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::log::{GuestLog, GuestOutput, Level};
use crate::bindings::egress_proxies::provider::{host_log, model};
use crate::gate::{CallGate, Hooks};
use crate::limits::MemoryLimiter;

/// Resources that a guest may hold at once.
pub(super) const MOST_RESOURCES: usize = 1_024;
/// Random bytes of one request.
const MOST_RANDOM: u64 = 64 * 1024;
/// Headers of one message, as wasi:http counts them.
const MOST_FIELDS: usize = 16 * 1024;

/// Data of one store.
pub(crate) struct GuestState {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    hooks: Hooks,
    log: GuestLog,
    outputs: [GuestOutput; 2],
    pub(crate) limiter: MemoryLimiter,
}

impl GuestState {
    /// No files, no environment, no arguments, no sockets; clocks, randomness, a log and the gate.
    pub(crate) fn new(gate: Arc<CallGate>, log: GuestLog, memory_mib: u32) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MOST_RESOURCES);
        let outputs =
            [GuestOutput::new(log.clone(), Level::Info), GuestOutput::new(log.clone(), Level::Warn)];
        let [stdout, stderr] = outputs.clone();
        let wasi = WasiCtx::builder().stdout(stdout).stderr(stderr).max_random_size(MOST_RANDOM).build();
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(MOST_FIELDS);
        Self { table, wasi, http, hooks: Hooks(gate), log, outputs, limiter: MemoryLimiter::new(memory_mib) }
    }

    /// What the guest writes, for as long as anybody listens.
    pub(super) fn words(&self) -> Words {
        Words { outputs: self.outputs.clone(), log: self.log.clone() }
    }
}

/// The outputs of one guest and their log.
pub(super) struct Words {
    outputs: [GuestOutput; 2],
    log: GuestLog,
}

impl Words {
    /// Writes out what is left in the guest's buffers.
    pub(super) fn finish(&self) {
        self.outputs.iter().for_each(GuestOutput::finish);
    }

    /// The same for the last time, with how much was dropped.
    pub(super) fn close(&self) {
        self.finish();
        self.log.close();
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.hooks, table: &mut self.table, ctx: &mut self.http }
    }
}

impl model::Host for GuestState {}

impl host_log::Host for GuestState {
    fn emit(
        &mut self,
        level: host_log::Level,
        message: String,
        fields: Vec<model::Pair>,
    ) -> wasmtime::Result<()> {
        let level = match level {
            host_log::Level::Debug => Level::Debug,
            host_log::Level::Info => Level::Info,
            host_log::Level::Warn => Level::Warn,
            host_log::Level::Error => Level::Error,
        };
        self.log.line_of(level, &message, fields.iter().map(|pair| (pair.key.as_str(), pair.value.as_str())));
        Ok(())
    }
}
