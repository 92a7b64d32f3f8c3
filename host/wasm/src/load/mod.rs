//! From an entry of the providers config to a provider that can be called. One stage after the other;
//! where one fails, the provider is `Failed` with that stage and a reason that says what to do, and the
//! others go on.
//!
//! Never accepts anything compiled outside, never runs a guest without its bounds, and grants a guest no
//! network before it is ready.

pub(crate) mod compile;
mod schema;
mod source;
mod store;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use egress_proxies_core::provider::{Failure, HostFault, Reason};
use tokio::sync::{OnceCell, Semaphore};
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use crate::audit::{self, AuditError};
use crate::bindings::{Provider, ProviderPre, egress_proxies::provider::host_log};
use crate::call::mask::one_line;
use crate::call::state::GuestState;
use crate::call::{self, CallSetup, Instance, Op};
use crate::config::Source;
use crate::convert::{self, Description};
use crate::engine;
use crate::gate::{Errand, linked};
use crate::permits::MemoryPool;
pub(crate) use compile::CompileCommand;
pub(crate) use schema::{CheckError, DocumentSchema, check};
pub(crate) use source::hex;
use store::ArtefactStore;

/// Where loading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Config,
    Source,
    Read,
    Kind,
    Audit,
    Compile,
    Instantiate,
    Describe,
    Schema,
    Kubernetes,
    Validate,
}

impl Stage {
    /// Constant word for states, events and metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Source => "source",
            Self::Read => "read",
            Self::Kind => "kind",
            Self::Audit => "audit",
            Self::Compile => "compile",
            Self::Instantiate => "instantiate",
            Self::Describe => "describe",
            Self::Schema => "schema",
            Self::Kubernetes => "kubernetes",
            Self::Validate => "validate",
        }
    }
}

/// Longest reason: it becomes the message of a condition, and parts of it are the component's words.
const MOST_REASON: usize = 1024;

/// Why a provider could not be loaded. Made by `new` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadFault {
    pub(crate) stage: Stage,
    pub(crate) reason: String,
    /// Only the time was short: another try may succeed.
    pub(crate) passing: bool,
}

impl LoadFault {
    pub(crate) fn new(stage: Stage, reason: impl Into<String>) -> Self {
        Self { stage, reason: one_line(&reason.into(), MOST_REASON), passing: false }
    }

    /// A call that is part of loading failed.
    pub(crate) fn of_call(stage: Stage, failure: &Failure) -> Self {
        let passing = matches!(failure.reason, Reason::Host(HostFault::Deadline));
        Self { passing, ..Self::new(stage, failure.message.clone()) }
    }
}

/// A component that was compiled, linked, tried and described: shared by all instances of one digest.
pub(crate) struct Loaded {
    pub(crate) digest: String,
    pub(crate) contract: String,
    pub(crate) guest: ProviderPre<GuestState>,
    pub(crate) description: Description,
    pub(crate) config_schema: Arc<DocumentSchema>,
    pub(crate) placement_schema: Arc<DocumentSchema>,
    pub(crate) parameters_schema: Arc<DocumentSchema>,
}

type Cell = Arc<OnceCell<Result<Arc<Loaded>, LoadFault>>>;

/// Loads components, each digest once.
pub(crate) struct Loader {
    engine: Engine,
    linker: Linker<GuestState>,
    compatibility: String,
    store: Result<ArtefactStore, LoadFault>,
    command: CompileCommand,
    memory: MemoryPool,
    /// One compilation at a time: it takes a core and 350 MB.
    compiling: Semaphore,
    loaded: Mutex<HashMap<String, Cell>>,
}

impl Loader {
    /// `store_dir` is made if it is not there; a fault of it shows on each provider, not here.
    pub(crate) fn new(
        engine: &Engine,
        store_dir: &Path,
        command: CompileCommand,
        memory: MemoryPool,
    ) -> wasmtime::Result<Self> {
        Ok(Self {
            engine: engine.clone(),
            linker: linker(engine)?,
            compatibility: engine::compatibility(engine),
            store: ArtefactStore::open(store_dir),
            command,
            memory,
            compiling: Semaphore::new(1),
            loaded: Mutex::default(),
        })
    }

    /// Everything up to and including `describe`. `instance` gives the bounds of that call.
    pub(crate) async fn load(
        &self,
        source: &Source,
        instance: Arc<Instance>,
    ) -> Result<Arc<Loaded>, LoadFault> {
        let wanted = source.clone();
        let file = tokio::task::spawn_blocking(move || source::read(&wanted))
            .await
            .map_err(|error| LoadFault::new(Stage::Read, format!("reading stopped: {error}")))??;
        loop {
            let cell = {
                let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(loaded.entry(file.sha256.clone()).or_default())
            };
            let mut own = false;
            let result = cell
                .get_or_init(|| {
                    own = true;
                    self.prepare(&file, Arc::clone(&instance))
                })
                .await
                .clone();
            let Err(fault) = &result else { return result };
            // The next instance of it tries anew: the fault may have been the disk's.
            self.loaded
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|_, other| !Arc::ptr_eq(other, &cell));
            // What a call came to depends on the limits of the instance that made it.
            if own || fault.stage != Stage::Describe {
                return result;
            }
        }
    }

    async fn prepare(&self, file: &source::Bytes, instance: Arc<Instance>) -> Result<Arc<Loaded>, LoadFault> {
        let audit = audit::audit(&file.bytes).map_err(|error| match error {
            AuditError::Kind(why) => LoadFault::new(Stage::Kind, why),
            AuditError::Interface(why) => LoadFault::new(Stage::Audit, format!("the component {why}")),
        })?;
        if !audit.denied_imports.is_empty() {
            tracing::debug!(provider = %instance.name, imports = ?audit.denied_imports, "these imports link and fail when used");
        }
        let component = self.component(file).await?;
        let link = |error: wasmtime::Error| {
            LoadFault::new(Stage::Instantiate, format!("the component does not fit the contract: {error:#}"))
        };
        let guest = self.linker.instantiate_pre(&component).and_then(ProviderPre::new).map_err(link)?;
        let description = self.describe(&guest, instance).await?;
        Ok(Arc::new(Loaded {
            digest: format!("sha256:{}", file.sha256),
            contract: audit.contract,
            guest,
            config_schema: schema("config-schema", description.config_schema.clone()).await?,
            placement_schema: schema("placement-schema", description.placement_schema.clone()).await?,
            parameters_schema: schema("parameters-schema", description.parameters_schema.clone()).await?,
            description,
        }))
    }

    /// The trial instantiation (types of exports are checked there) and the first call.
    async fn describe(
        &self,
        guest: &ProviderPre<GuestState>,
        instance: Arc<Instance>,
    ) -> Result<Description, LoadFault> {
        let _permit = self.memory.wait(instance.limits.memory_mib).await;
        let setup = CallSetup {
            op: Op::Describe,
            guest: guest.clone(),
            instance,
            mask: Default::default(),
            errand: Errand::Look,
            timeout: Op::Describe.deadline(),
        };
        let body: call::Body<_> = Box::new(|store, provider: &Provider, _context| {
            Box::pin(async move { provider.egress_proxies_provider_meta().call_describe(store).await })
        });
        let described = call::run(setup, body).await.judged(convert::description);
        described.map_err(|failure| LoadFault::of_call(Stage::Describe, &failure))
    }

    /// From the store, or compiled into it.
    async fn component(&self, file: &source::Bytes) -> Result<Component, LoadFault> {
        let store = self.store.clone()?;
        let artefact = store.path(&file.sha256, &self.compatibility);
        if artefact.exists() {
            match ArtefactStore::is_ours(&artefact).and_then(|()| self.map(&artefact)) {
                Ok(component) => return Ok(component),
                Err(error) => {
                    tracing::warn!(path = %artefact.display(), error = %format!("{error:#}"), "a compiled component is damaged; compiling it again");
                }
            }
        }
        let _turn = self
            .compiling
            .acquire()
            .await
            .map_err(|_| LoadFault::new(Stage::Compile, "the host is shutting down"))?;
        if !artefact.exists() || ArtefactStore::is_ours(&artefact).and_then(|()| self.map(&artefact)).is_err()
        {
            tracing::info!(digest = %file.sha256, bytes = file.bytes.len(), "compiling a provider; a large one takes half a minute");
            compile::compile(&self.command, &file.bytes, &store.scratch(&file.sha256), &artefact).await?;
        }
        ArtefactStore::is_ours(&artefact).and_then(|()| self.map(&artefact)).map_err(|error| {
            LoadFault::new(Stage::Compile, format!("the compiled component could not be used: {error:#}"))
        })
    }

    #[expect(
        unsafe_code,
        reason = "the file was written by our compile child into a folder that only we can write"
    )]
    fn map(&self, artefact: &Path) -> wasmtime::Result<Component> {
        // SAFETY: artefacts come from this program alone: `ArtefactStore::open` made sure that the folder
        // is ours with mode 0700 and no link, `is_ours` that the file is ours alone, and nothing from outside
        // is ever put there.
        unsafe { Component::deserialize_file(&self.engine, artefact) }
    }
}

/// Compiles one schema on a thread that may wait: its patterns take a while.
async fn schema(name: &'static str, text: Option<String>) -> Result<Arc<DocumentSchema>, LoadFault> {
    let compiled = tokio::task::spawn_blocking(move || DocumentSchema::compile(text.as_deref())).await;
    let fault = |why: String| LoadFault::new(Stage::Schema, format!("the provider's {name} {why}"));
    match compiled {
        Ok(Ok(schema)) => Ok(Arc::new(schema)),
        Ok(Err(why)) => Err(fault(why)),
        Err(error) => Err(fault(format!("could not be compiled: {error}"))),
    }
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    linked::add_to_linker(&mut linker)?;
    host_log::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |state| state)?;
    Ok(linker)
}
