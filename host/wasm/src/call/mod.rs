//! One call of a guest: a fresh store, bounds on everything, and a verdict on how it ended.
//!
//! The guest is instantiated, called once and dropped with all it holds; requests under way are cancelled
//! with it. Two bounds hold always: the deadline ends a call that waits, the CPU budget ends one that
//! works. What comes back is still in the guest's words; `convert` judges it.

pub(crate) mod log;
pub(crate) mod mask;
mod outcome;
pub(crate) mod record;
pub(crate) mod state;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::ids::ProviderName;
use tokio::time::Instant;
use wasmtime::{Store, UpdateDeadline};

use crate::bindings::{Provider, ProviderPre, egress_proxies::provider::model};
use crate::config::Limits;
use crate::gate::{CallGate, Errand, Network, Policy};
use crate::limits::CpuMeter;
use log::GuestLog;
use mask::Mask;
use record::CallRecorder;
use state::GuestState;
pub(crate) use watch::Ended;
use watch::Watch;

/// What the host copies out of a guest in one call, and into it.
const COPIED_BYTES: usize = 8 << 20;
/// Longest text of a failure.
const MOST_MESSAGE: usize = 1024;
/// Handles that a guest may hold.
const MOST_HANDLES: usize = 1_024;

/// The calls of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Describe,
    ValidateConfig,
    ValidateCreate,
    Create,
    Get,
    Delete,
    List,
}

impl Op {
    /// Constant word for logs and metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::ValidateConfig => "validate-config",
            Self::ValidateCreate => "validate-create",
            Self::Create => "create",
            Self::Get => "get",
            Self::Delete => "delete",
            Self::List => "list-by-tag",
        }
    }

    /// Longest time of one call.
    pub(crate) fn deadline(self) -> Duration {
        match self {
            Self::Describe | Self::ValidateConfig | Self::ValidateCreate => Duration::from_secs(2),
            Self::Get => Duration::from_secs(15),
            Self::Create | Self::Delete | Self::List => Duration::from_mins(1),
        }
    }

    fn network(self) -> Network {
        match self {
            Self::Describe | Self::ValidateConfig | Self::ValidateCreate => Network::Off,
            Self::Create | Self::Get | Self::Delete | Self::List => Network::Granted,
        }
    }
}

/// What all calls of one provider instance share.
pub(crate) struct Instance {
    pub(crate) name: ProviderName,
    /// The configured document, as JSON.
    pub(crate) config: String,
    pub(crate) limits: Limits,
    pub(crate) policy: Arc<Policy>,
    /// Namespace granted by `kubernetes.namespace`.
    pub(crate) namespace: Option<String>,
    pub(crate) recorder: Arc<dyn CallRecorder>,
}

/// One call to be made.
pub(crate) struct CallSetup {
    pub(crate) op: Op,
    pub(crate) guest: ProviderPre<GuestState>,
    pub(crate) instance: Arc<Instance>,
    pub(crate) mask: Mask,
    /// What it may change in the cluster.
    pub(crate) errand: Errand,
    /// At most the operation's own deadline.
    pub(crate) timeout: Duration,
}

/// What runs inside a call.
pub(crate) type Body<T> = Box<
    dyn for<'a> FnOnce(&'a mut Store<GuestState>, &'a Provider, model::CallContext) -> Running<'a, T> + Send,
>;
/// A call of an export under way.
pub(crate) type Running<'a, T> = Pin<Box<dyn Future<Output = wasmtime::Result<T>> + Send + 'a>>;

/// Makes one call. What the guest answered, its own failures included, is still to be judged.
pub(crate) async fn run<T>(setup: CallSetup, body: Body<T>) -> Ended<T> {
    let CallSetup { op, guest, instance, mask, errand, timeout } = setup;
    let began = Instant::now();
    let timeout = timeout.min(op.deadline());
    let deadline = began + timeout;
    let request_id = uuid::Uuid::new_v4().to_string();
    let log = GuestLog::new(instance.name.clone(), op.label(), request_id.clone(), mask.clone());
    let gate = CallGate::new(Arc::clone(&instance.policy), op.network(), errand, deadline);
    let meter = CpuMeter::new(Duration::from_millis(instance.limits.cpu_ms.into()));
    let state = GuestState::new(Arc::clone(&gate), log.clone(), instance.limits.memory_mib);
    let watch = Watch {
        op,
        began,
        gate: Arc::clone(&gate),
        meter: Arc::clone(&meter),
        peak: state.limiter.peak(),
        words: state.words(),
        mask,
        recorded: false,
        instance: Arc::clone(&instance),
    };
    // Dropped before the watch: then the guest has said its last words.
    let mut store = store(&guest, state, &meter);
    let context = context(&instance, request_id, timeout);

    let work = async {
        let provider = guest.instantiate_async(&mut store).await?;
        body(&mut store, &provider, context).await
    };
    let answer = tokio::time::timeout_at(deadline, meter.bill(work)).await;

    watch.words.finish();
    let answer = outcome::judge(
        outcome::Evidence {
            op,
            denial: gate.denial(),
            limiter: &store.data().limiter,
            meter: &meter,
            log: &log,
            timeout,
        },
        answer,
    );
    Ended { answer, watch }
}

fn store(guest: &ProviderPre<GuestState>, state: GuestState, meter: &Arc<CpuMeter>) -> Store<GuestState> {
    let mut store = Store::new(guest.engine(), state);
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(COPIED_BYTES);
    store.set_max_component_handles(MOST_HANDLES);
    let meter = Arc::clone(meter);
    store.epoch_deadline_callback(move |_| {
        Ok(if meter.over_budget() {
            UpdateDeadline::Interrupt
        } else {
            UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))
        })
    });
    store.set_epoch_deadline(1);
    store
}

fn context(instance: &Instance, request_id: String, timeout: Duration) -> model::CallContext {
    let namespace = instance.namespace.iter();
    model::CallContext {
        provider: instance.name.to_string(),
        config: instance.config.clone(),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        request_id,
        extra: namespace
            .map(|namespace| model::Pair { key: "kubernetes-namespace".into(), value: namespace.clone() })
            .collect(),
    }
}
