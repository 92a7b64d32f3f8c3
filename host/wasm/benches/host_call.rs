//! What a provider call costs the host when it needs no network: a fresh store and instance, the call, all
//! checks, and the way to the guests' runtime and back. Printed beside peers measured in the same run, so
//! that the numbers mean something on any machine: a task on another runtime (the floor), and a process
//! (what a plug-in per process would cost at least).
//!
//! Two figures are told apart: what a call costs, which is the time that processors work for it, in this process
//! and in the kernel on its behalf; and how long its caller waits when nothing else is going on, which on an idle
//! machine is in part the time until processors that sleep have woken up.
//!
//! `EPO_GUESTS_DIR` adds the real kubernetes provider to the sample one.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_in_result,
    clippy::wildcard_enum_match_arm,
    reason = "a benchmark"
)]
#![expect(clippy::disallowed_methods, reason = "measures time, and reads one setting of its own")]
#![expect(clippy::indexing_slicing, reason = "positions in a sorted list of samples")]

#[path = "../tests/host/support/mod.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::{CreateRequest, Lookup, Provider, Providers};
use egress_proxies_wasm::config::ProvidersConfig;
use egress_proxies_wasm::{HostConfig, ProviderHost};
use rustix::time::{ClockId, clock_gettime};
use support::cluster::{Cluster, Factory};
use support::guest::Guest;
use support::{compile_command, create_request};

/// The promise: a call without network costs the host less than this, as the work of its processors.
const LIMIT: Duration = Duration::from_micros(200);
const WARM: usize = 200;
const ROUNDS: usize = 3_000;

struct Summary {
    /// Of all processors together, on average; unknown of other processes.
    work: Option<Duration>,
    least: Duration,
    median: Duration,
    p99: Duration,
}

fn summary(mut samples: Vec<Duration>, worked: Option<Duration>) -> Summary {
    samples.sort_unstable();
    let work = worked.map(|worked| worked / u32::try_from(samples.len()).unwrap());
    Summary {
        work,
        least: samples[0],
        median: samples[samples.len() / 2],
        p99: samples[samples.len() * 99 / 100],
    }
}

fn row(name: &str, summary: &Summary) {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{name:<44} {:>18} {:>9.1} {:>9.1} {:>9.1}",
        summary.work.map_or_else(
            || "-".to_owned(),
            |work| {
                format!("{:.1} ({:.2} limits)", micros(work), work.as_secs_f64() / LIMIT.as_secs_f64())
            }
        ),
        micros(summary.least),
        micros(summary.median),
        micros(summary.p99)
    );
}

/// What all processors have worked for this process so far.
fn worked() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// Does it again and again, the first rounds to warm up.
async fn measured(mut once: impl AsyncFnMut()) -> Summary {
    let mut samples = Vec::with_capacity(ROUNDS);
    let mut before = Duration::ZERO;
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            before = worked();
        }
        let began = Instant::now();
        once().await;
        if round >= WARM {
            samples.push(began.elapsed());
        }
    }
    summary(samples, Some(worked().saturating_sub(before)))
}

async fn calls(provider: &Arc<dyn Provider>, request: &CreateRequest) -> Summary {
    measured(async || drop(provider.validate_create(request).await.expect("the call succeeds"))).await
}

async fn host(folder: &Path, file: &Path, lines: &str) -> (Arc<ProviderHost>, Arc<dyn Provider>) {
    let text = format!(
        "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n  p:\n    source: {{ file: {} }}\n{lines}",
        file.display()
    );
    let config = ProvidersConfig::parse(&text, &folder.join("providers.yaml")).unwrap();
    let settings = HostConfig::new(folder.join("compiled"), compile_command());
    let settings =
        HostConfig { kubernetes: Some(Arc::new(Factory(Arc::new(Cluster::default())))), ..settings };
    let host = ProviderHost::start(settings, config).unwrap();
    host.loaded().await;
    match host.lookup(&ProviderName::parse("p").unwrap()) {
        Lookup::Ready(provider) => (host, provider),
        other => panic!("{other:?}"),
    }
}

/// A task that does nothing, on a runtime of its own.
async fn task() -> Summary {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let spawned = async || runtime.spawn(async { std::hint::black_box(()) }).await.unwrap();
    let summary = measured(spawned).await;
    runtime.shutdown_background();
    summary
}

/// A process that does nothing.
fn process() -> Summary {
    let run = || {
        let began = Instant::now();
        assert!(std::process::Command::new("/bin/true").status().unwrap().success());
        began.elapsed()
    };
    summary((0..200).map(|_| run()).collect(), None)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sample.wasm");
    std::fs::write(&file, Guest::default().component()).unwrap();

    println!(
        "provider call without network, fresh instance each ({ROUNDS} calls); limit {} us",
        LIMIT.as_micros()
    );
    println!(
        "{:<44} {:>18} {:>9} {:>9} {:>9}",
        "microseconds", "work of the host", "wait: min", "median", "p99"
    );
    let (_sample_host, sample) = host(folder.path(), &file, "").await;
    let cost = calls(&sample, &create_request()).await;
    row("validate-create, sample component", &cost);
    if let Ok(guests) = std::env::var("EPO_GUESTS_DIR") {
        let file = Path::new(&guests).join("kubernetes.wasm");
        let lines = "    kubernetes: { namespace: proxies, serviceAccount: p, resources: [pods, secrets] }\n    config: { image: \"squid:latest\" }\n";
        let (_host, provider) = host(folder.path(), &file, lines).await;
        row("validate-create, kubernetes provider (Rust)", &calls(&provider, &create_request()).await);
    }
    let (floor, fork) = (task().await, process());
    row("peer: empty task on another runtime", &floor);
    row("peer: process that does nothing", &fork);
    println!(
        "a call costs {:.1} times an empty task, and its caller waits for {:.1} % of a process",
        cost.work.unwrap().as_secs_f64() / floor.work.unwrap().as_secs_f64(),
        100.0 * cost.median.as_secs_f64() / fork.median.as_secs_f64()
    );
}
