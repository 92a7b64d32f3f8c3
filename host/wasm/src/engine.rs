//! The one engine of the process, the thread that advances its epoch, and the threads that guests run on.
//!
//! One engine because compiled code, type registries and the epoch are per engine. The ticker is an OS
//! thread, not a task: a guest that never yields must not be able to stop the clock that ends it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use wasmtime::{Config, Engine, OptLevel};

use crate::threads::GuestThreads;

/// Time between two looks at the CPU budget of a running guest.
const TICK: Duration = Duration::from_millis(10);

/// Settings that decide both what is compiled and what may run. The compile child uses the same, so that
/// its artefacts fit.
fn settings() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_wide_arithmetic(false);
    config
}

/// The engine of this process, without a ticker: what the compile child needs.
pub(crate) fn bare_engine() -> wasmtime::Result<Engine> {
    Engine::new(&settings())
}

/// What an artefact is compiled for: wasmtime's version and every flag that changes code.
pub(crate) fn compatibility(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Engine, ticker and guest threads, alive as long as this value.
#[derive(Debug)]
pub(crate) struct GuestEngine {
    engine: Engine,
    threads: GuestThreads,
}

impl GuestEngine {
    /// Builds the engine and starts its threads.
    pub(crate) fn start() -> Result<Self, EngineError> {
        let engine = bare_engine().map_err(|error| EngineError::Engine(format!("{error:#}")))?;
        let weak = engine.weak();
        std::thread::Builder::new()
            .name("guest-epoch".into())
            .spawn(move || {
                loop {
                    #[expect(clippy::disallowed_methods, reason = "this is the ticker's own OS thread")]
                    std::thread::sleep(TICK);
                    // The thread ends with the engine: nobody is left to interrupt.
                    let Some(engine) = weak.upgrade() else { return };
                    engine.increment_epoch();
                }
            })
            .map_err(EngineError::Thread)?;
        Ok(Self { engine, threads: GuestThreads::start()? })
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where guest calls run.
    pub(crate) fn threads(&self) -> &GuestThreads {
        &self.threads
    }
}

/// Why the host cannot start at all.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine refused its settings: a fault of this build.
    #[error("the WebAssembly engine could not be built: {0}")]
    Engine(String),
    /// The system gave no thread.
    #[error("could not start the threads for provider calls; check the process and thread limits")]
    Thread(#[source] std::io::Error),
}
