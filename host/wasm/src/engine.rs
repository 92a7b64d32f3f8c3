//! The one engine of the process, the thread that advances its epoch, and the threads that guests run on.
//!
//! One engine because compiled code, type registries and the epoch are per engine. The ticker is an OS
//! thread, not a task: a guest that never yields must not be able to stop the clock that ends it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use wasmtime::{Config, Engine, OptLevel, PoolingAllocationConfig};

use crate::limits::{INSTANCES, MEMORIES, TABLE_ELEMENTS, TABLES};
use crate::threads::GuestThreads;

/// Time between two looks at the CPU budget of a running guest.
const TICK: Duration = Duration::from_millis(10);

/// Stacks of one call: the one that it runs on, and one to spare.
const STACKS: u16 = 2;
/// What wasmtime itself keeps of one instance, at most: a few words per function, global and import. Bounded by the
/// size of the component anyway.
const MOST_METADATA: usize = 16 << 20;

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

/// The same with room for the memories, tables and stacks of so many calls, mapped once: each call takes its
/// part, and the kernel discards at the end what it wrote there. Mapping room anew for each call takes longer than
/// all else that a short call does, and interrupts the other processors.
///
/// Nothing stays resident: writing over a memory by ourselves would be faster still for some guests, but that
/// nothing of one guest is left for the next should not rest on our finding each page that it touched.
fn with_room(calls: u32) -> Config {
    let of_all = |each: u16| calls.saturating_mul(each.into());
    let mut room = PoolingAllocationConfig::new();
    room.total_component_instances(calls)
        .total_core_instances(of_all(INSTANCES))
        .max_core_instances_per_component(INSTANCES.into())
        .total_memories(of_all(MEMORIES))
        .max_memories_per_component(MEMORIES.into())
        .max_memories_per_module(MEMORIES.into())
        .total_tables(of_all(TABLES))
        .max_tables_per_component(TABLES.into())
        .max_tables_per_module(TABLES.into())
        .table_elements(TABLE_ELEMENTS)
        .total_stacks(of_all(STACKS))
        .max_core_instance_size(MOST_METADATA)
        .max_component_instance_size(MOST_METADATA)
        .linear_memory_keep_resident(0)
        .table_keep_resident(0)
        .async_stack_keep_resident(0);
    let mut config = settings();
    // Stacks too: nothing else gives their memory back.
    config.async_stack_zeroing(true).allocation_strategy(room);
    config
}

/// An engine for so many calls at once. Where the system refuses that much address space (a limit of the
/// process, strict accounting of memory), each call maps its own: slower, otherwise the same.
fn roomy_engine(calls: u32) -> wasmtime::Result<Engine> {
    Engine::new(&with_room(calls)).or_else(|error| {
        tracing::warn!(
            calls,
            error = %format!("{error:#}"),
            "no address space to reserve for provider calls, each maps its own: calls cost more. Look at `ulimit -v` \
             and vm.overcommit_memory, or lower --provider-memory-mib"
        );
        bare_engine()
    })
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
    /// Builds the engine, for at most so many calls at once, and starts its threads.
    pub(crate) fn start(calls: u32) -> Result<Self, EngineError> {
        let engine = roomy_engine(calls).map_err(|error| EngineError::Engine(format!("{error:#}")))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permits::most_calls;
    use crate::registry::DEFAULT_MEMORY_MIB;

    #[test]
    fn what_the_child_compiles_fits_an_engine_with_room() {
        let roomy = Engine::new(&with_room(4)).unwrap();
        assert_eq!(compatibility(&roomy), compatibility(&bare_engine().unwrap()));
    }

    /// Else all tests of calls would pass without what calls are made of.
    #[test]
    fn there_is_room_for_the_calls_that_the_defaults_let_in() {
        let engine = roomy_engine(most_calls(DEFAULT_MEMORY_MIB)).unwrap();
        assert!(engine.pooling_allocator_metrics().is_some());
    }

    #[test]
    fn without_address_space_to_reserve_there_is_an_engine_all_the_same() {
        assert!(Engine::new(&with_room(8_192)).is_err(), "more than a processor can address");
        assert!(roomy_engine(8_192).unwrap().pooling_allocator_metrics().is_none());
    }
}
