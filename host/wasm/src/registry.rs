//! All configured providers by name: loads them in the background and answers what became of each.
//!
//! A provider that cannot be loaded is `Failed` and disturbs nobody. Looking a name up never waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::{Lookup, ProviderInfo, ProviderSettings, Providers, Reason};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bindings::Provider as Guest;
pub use crate::call::record::{CallRecord, CallRecorder, NoRecorder};
use crate::call::{self, CallSetup, Instance, Op};
use crate::config::{ProviderConfig, ProvidersConfig};
use crate::convert::{self, Report};
pub use crate::engine::EngineError;
use crate::engine::GuestEngine;
use crate::gate::kubernetes::{Access, KubernetesTransportFactory};
use crate::gate::plain::PlainClient;
use crate::gate::{Errand, Fence, Policy};
use crate::load::{self, CheckError, CompileCommand, LoadFault, Loaded, Loader, Stage, hex};
use crate::permits::{HOST_MIB, MemoryPool, Permits, TURN, most_calls};
use crate::provider::WasmProvider;
use crate::report::{ProviderReport, ProviderState};
use crate::threads::Seats;

/// Time until a provider that met a time-out is loaded again: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Memory of all calls in flight unless it is set: enough for a call with the largest limit in each share.
pub(crate) const DEFAULT_MEMORY_MIB: u32 = 2304;

/// What the host needs from the operator.
#[derive(Clone)]
pub struct HostConfig {
    /// Folder for compiled components; made with mode 0700, must be ours alone.
    pub store_dir: PathBuf,
    /// How the compile child is started.
    pub compile_command: CompileCommand,
    /// Who sends requests to the operator's own cluster; without it such grants fail their provider.
    pub kubernetes: Option<Arc<dyn KubernetesTransportFactory>>,
    /// Whether this process may change anything outside of it.
    pub fence: Fence,
    /// Who counts calls.
    pub recorder: Arc<dyn CallRecorder>,
    /// Memory in MiB that all calls in flight may have together; a quarter of it is for deletes.
    pub memory_mib: u32,
}

impl HostConfig {
    /// With 2304 MiB for calls in flight, no cluster and no metrics.
    pub fn new(store_dir: PathBuf, compile_command: CompileCommand) -> Self {
        Self {
            store_dir,
            compile_command,
            kubernetes: None,
            fence: Fence::open(),
            recorder: Arc::new(NoRecorder),
            memory_mib: DEFAULT_MEMORY_MIB,
        }
    }
}

impl std::fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostConfig")
            .field("store_dir", &self.store_dir)
            .field("compile_command", &self.compile_command)
            .field("memory_mib", &self.memory_mib)
            .finish_non_exhaustive()
    }
}

/// Why the host cannot start. Faults of single providers are not among these.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No engine or no threads.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The interfaces of this build do not fit together.
    #[error("the provider interfaces could not be linked: {0}")]
    Link(String),
    /// No TLS.
    #[error("the TLS client could not be built: {0}")]
    Tls(String),
}

/// The provider host: engine, threads and all providers. Dropping it ends every call.
pub struct ProviderHost {
    shared: Arc<Shared>,
    loading: TaskTracker,
    stop: CancellationToken,
    // Last: its threads end when the rest is gone.
    engine: GuestEngine,
}

struct Shared {
    entries: Mutex<BTreeMap<ProviderName, Entry>>,
    /// As configured, however loading ends.
    settings: BTreeMap<ProviderName, ProviderSettings>,
    changed: watch::Sender<u64>,
    calls: TaskTracker,
    /// Ends calls that are still under way after the grace period.
    cut: CancellationToken,
}

struct Entry {
    report: ProviderReport,
    provider: Option<Arc<WasmProvider>>,
}

impl std::fmt::Debug for ProviderHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderHost").field("reports", &self.reports()).finish_non_exhaustive()
    }
}

impl ProviderHost {
    /// Starts the engine and begins to load every provider; returns at once.
    ///
    /// # Errors
    /// If the machine gives no threads, or this build is broken. Never because of a provider.
    pub fn start(host: HostConfig, providers: ProvidersConfig) -> Result<Arc<Self>, StartError> {
        let engine = GuestEngine::start(most_calls(host.memory_mib))?;
        let memory = MemoryPool::new(host.memory_mib);
        let command = host.compile_command.clone();
        let loader = Loader::new(engine.engine(), &host.store_dir, command, memory.clone())
            .map_err(|error| StartError::Link(format!("{error:#}")))?;
        let client = PlainClient::new().map_err(|error| StartError::Tls(error.to_string()))?;
        let shared = Arc::new(Shared {
            entries: Mutex::default(),
            settings: providers.settings,
            changed: watch::channel(0).0,
            calls: TaskTracker::new(),
            cut: CancellationToken::new(),
        });
        let stop = CancellationToken::new();
        let setting = Arc::new(Setting {
            loader,
            client,
            memory,
            seats: engine.threads().seats().clone(),
            shared: Arc::clone(&shared),
            stopping: stop.clone(),
            host,
        });
        let loading = TaskTracker::new();
        for (name, entry) in providers.entries {
            match entry {
                Err(fault) => {
                    let fault = LoadFault::new(Stage::Config, fault.to_string());
                    tracing::warn!(provider = %name, reason = %fault.reason, "a provider's config is faulty");
                    shared.insert(&name, ProviderReport::faulty(&name, &fault));
                }
                Ok(config) => {
                    shared.insert(&name, ProviderReport::loading(&name, &config));
                    let (setting, stop) = (Arc::clone(&setting), stop.clone());
                    let load = async move { stop.run_until_cancelled(setting.load(name, config)).await };
                    loading.spawn_on(load, engine.threads().seats().take().handle());
                }
            }
        }
        loading.close();
        Ok(Arc::new(Self { shared, loading, stop, engine }))
    }

    /// How each provider is, in order of names.
    pub fn reports(&self) -> Vec<ProviderReport> {
        self.shared.lock().values().map(|entry| entry.report.clone()).collect()
    }

    /// A number that grows with each change of a provider's state.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Waits until no provider is loading any more. One that met a time-out may be tried again later.
    pub async fn loaded(&self) {
        let mut changed = self.changed();
        while self.shared.lock().values().any(|entry| entry.report.state == ProviderState::Loading) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Stops loading, lets no call begin any more, waits up to `grace` for those under way, then cancels
    /// the rest. True if there was no rest.
    pub async fn shutdown(&self, grace: Duration) -> bool {
        self.stop.cancel();
        self.shared.calls.close();
        let ended = tokio::time::timeout(grace, self.shared.calls.wait()).await.is_ok();
        if !ended {
            tracing::warn!(calls = self.shared.calls.len(), "provider calls still under way are cancelled");
        }
        // Also if all had ended: one that had its permits before may begin only now.
        self.shared.cut.cancel();
        self.shared.calls.wait().await;
        self.loading.wait().await;
        tracing::debug!(engine = ?self.engine, "the provider host has stopped");
        ended
    }
}

impl Providers for ProviderHost {
    fn lookup(&self, name: &ProviderName) -> Lookup {
        let entries = self.shared.lock();
        let Some(entry) = entries.get(name) else {
            return Lookup::Unknown { configured: entries.keys().cloned().collect() };
        };
        match (&entry.provider, entry.report.stage) {
            (Some(provider), _) => Lookup::Ready(Arc::<WasmProvider>::clone(provider)),
            (None, Some(stage)) => {
                Lookup::Failed { stage, reason: entry.report.reason.clone().unwrap_or_default() }
            }
            (None, None) => Lookup::Loading,
        }
    }

    fn settings(&self, name: &ProviderName) -> Option<ProviderSettings> {
        self.shared.settings.get(name).cloned()
    }

    fn has_settings(&self, name: &ProviderName) -> bool {
        self.shared.settings.contains_key(name)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ProviderName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, name: &ProviderName, report: ProviderReport) {
        self.lock().insert(name.clone(), Entry { report, provider: None });
        self.announce();
    }

    fn update(&self, name: &ProviderName, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.lock().get_mut(name) {
            change(entry);
        }
        self.announce();
    }

    fn announce(&self) {
        self.changed.send_modify(|number| *number = number.wrapping_add(1));
    }
}

/// What loading needs.
struct Setting {
    host: HostConfig,
    loader: Loader,
    client: PlainClient,
    memory: MemoryPool,
    seats: Seats,
    shared: Arc<Shared>,
    stopping: CancellationToken,
}

impl Setting {
    /// Loads a provider, and tries again where only the time was short: on a busy machine many of them are
    /// loaded at once.
    async fn load(&self, name: ProviderName, config: ProviderConfig) {
        let mut pause = FIRST_PAUSE;
        while let Err(fault) = self.try_load(&name, &config).await {
            tracing::warn!(provider = %name, stage = fault.stage.label(), reason = %fault.reason, "provider could not be loaded");
            self.shared.update(&name, |entry| entry.report.fail(&fault));
            if !fault.passing {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn try_load(&self, name: &ProviderName, config: &ProviderConfig) -> Result<(), LoadFault> {
        let (provider, report) = self.instance(name, config).await?;
        let policy = &provider.instance.policy;
        for line in policy.missing_grants() {
            tracing::warn!(provider = %name, "the provider asks for more than it is granted; to grant it, add to it in the providers config: {line}");
        }
        for warning in &report.warnings {
            tracing::warn!(provider = %name, "{warning}");
        }
        tracing::info!(provider = %name, digest = %provider.info.digest, scope = %report.scope, "provider is ready");
        self.shared.update(name, |entry| {
            entry.report.become_ready(&provider.loaded, &report, policy);
            entry.provider = Some(Arc::clone(&provider));
        });
        Ok(())
    }

    async fn instance(
        &self,
        name: &ProviderName,
        config: &ProviderConfig,
    ) -> Result<(Arc<WasmProvider>, Report), LoadFault> {
        self.check_memory(config)?;
        let policy =
            Policy::new(name.clone(), config.egress.clone(), self.access(config)?, self.client.clone());
        let policy = Arc::new(policy.behind(self.host.fence.clone()));
        let instance = self.context(name, config, policy);
        let loaded = self.loader.load(&config.source, Arc::clone(&instance)).await?;
        load::check(&loaded.config_schema, &config.config).await.map_err(|error| match error {
            CheckError::Fault(fault) => {
                LoadFault::new(Stage::Validate, format!("/config{}: {}", fault.pointer, fault.message))
            }
            CheckError::Undecided(why) => LoadFault::new(Stage::Validate, format!("/config {why}")),
        })?;
        let report = self.validate(&loaded, &instance).await?;
        let policy = instance.policy.with_needs(report.needs.clone());
        let instance = self.context(name, config, policy);
        let permits = Permits::new(&config.limits, self.memory.clone()).await;
        if !permits.has_memory_of_its_own() {
            tracing::warn!(provider = %name, "no memory is left that is for calls of this provider alone: others that hang can hold it up; raise --provider-memory-mib");
        }
        let provider = WasmProvider {
            info: info(name, config, &loaded, &report),
            permits,
            seats: self.seats.clone(),
            tasks: self.shared.calls.clone(),
            stopping: self.stopping.clone(),
            cut: self.shared.cut.clone(),
            loaded,
            instance,
            many: AtomicBool::new(false),
        };
        Ok((Arc::new(provider), report))
    }

    async fn validate(&self, loaded: &Loaded, instance: &Arc<Instance>) -> Result<Report, LoadFault> {
        let setup = CallSetup {
            op: Op::ValidateConfig,
            guest: loaded.guest.clone(),
            instance: Arc::clone(instance),
            mask: Default::default(),
            errand: Errand::Look,
            timeout: Op::ValidateConfig.deadline(),
        };
        let body: call::Body<_> = Box::new(|store, guest: &Guest, context| {
            Box::pin(async move {
                guest.egress_proxies_provider_meta().call_validate_config(store, &context).await
            })
        });
        let _permit = self.memory.wait(instance.limits.memory_mib).await;
        let report = call::run(setup, body).await.judged(|answer| match answer {
            Ok(given) => convert::report(given),
            Err(failure) => {
                let mut failure = convert::failure(failure, Op::ValidateConfig, &Default::default());
                if let Reason::Invalid(pointer) = &failure.reason
                    && !pointer.is_empty()
                    && !failure.message.starts_with(pointer.as_str())
                {
                    failure.message = format!("{pointer}: {}", failure.message);
                }
                Err(failure)
            }
        });
        report.map_err(|failure| LoadFault::of_call(Stage::Validate, &failure))
    }

    /// A limit that no pool could ever satisfy would look like an endless lack of permits.
    fn check_memory(&self, config: &ProviderConfig) -> Result<(), LoadFault> {
        let asked = config.limits.memory_mib;
        let most = (self.host.memory_mib / 4).saturating_sub(HOST_MIB);
        if asked > most {
            return Err(LoadFault::new(
                Stage::Config,
                format!(
                    "limits.memoryMiB is {asked} (128 if it is not set); with {} MiB for all calls together \
                     (--provider-memory-mib) it can be at most {most}, a quarter less {HOST_MIB} MiB that the \
                     host itself may need for a call: set it, or raise the flag",
                    self.host.memory_mib
                ),
            ));
        }
        Ok(())
    }

    fn access(&self, config: &ProviderConfig) -> Result<Option<Access>, LoadFault> {
        let Some(grant) = &config.kubernetes else { return Ok(None) };
        let fault = |why: String| LoadFault::new(Stage::Kubernetes, why);
        let Some(factory) = &self.host.kubernetes else {
            return Err(fault(
                "the operator has no connection to a cluster; remove the field kubernetes".into(),
            ));
        };
        let transport =
            factory.for_service_account(&grant.namespace, &grant.service_account).map_err(fault)?;
        Ok(Some(Access::new(grant.clone(), transport)))
    }

    fn context(&self, name: &ProviderName, config: &ProviderConfig, policy: Arc<Policy>) -> Arc<Instance> {
        Arc::new(Instance {
            name: name.clone(),
            config: Value::Object(config.config.clone()).to_string(),
            limits: config.limits,
            policy,
            namespace: config.kubernetes.as_ref().map(|grant| grant.namespace.clone()),
            recorder: Arc::clone(&self.host.recorder),
        })
    }
}

fn info(name: &ProviderName, config: &ProviderConfig, loaded: &Loaded, report: &Report) -> ProviderInfo {
    ProviderInfo {
        name: name.clone(),
        digest: loaded.digest.clone(),
        config_hash: config_hash(config),
        scope: report.scope.clone(),
        bootstrap_max_bytes: loaded.description.bootstrap_max_bytes,
        list_lag: loaded.description.list_lag,
        takes_access: loaded.description.takes_access,
        // One second for what surrounds a call.
        longest_call: TURN + Op::List.deadline() + Duration::from_secs(1),
        settings: config.settings.clone(),
    }
}

/// Of what a guest's verdict may depend on: a change of it gives a latched request another chance.
fn config_hash(config: &ProviderConfig) -> String {
    let grants = serde_json::json!({
        "config": config.config, "kubernetes": config.kubernetes, "egress": config.egress,
    });
    let mut text = String::new();
    canonical(&grants, &mut text);
    hex(&Sha256::digest(text)).chars().take(32).collect()
}

/// JSON with sorted keys.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            out.push('{');
            for (key, value) in map.iter().collect::<BTreeMap<_, _>>() {
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string());
        }
    }
}
