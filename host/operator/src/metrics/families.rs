//! Every metric family: its name, kind, labels and help, once.

/// Prefix of every name.
const PREFIX: &str = "proxy_operator_";

/// How a family behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram(&'static [f64]),
}

impl Kind {
    /// As in the documentation.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// A family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    /// Name without the prefix.
    pub(super) name: &'static str,
    /// How it behaves.
    pub(super) kind: Kind,
    /// Its labels, in order.
    pub(super) labels: &'static [&'static str],
    /// What it says.
    pub(super) help: &'static str,
}

impl Family {
    /// The name as it is shown.
    pub(super) fn full_name(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind, labels, help }
}

/// Seconds of a probe; few buckets, since each proxy has them.
pub(super) const PROBE_SECONDS: [f64; 8] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Seconds of a provider call: from a pure one to a slow cloud.
const CALL_SECONDS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// Seconds of a reconcile.
const RECONCILE_SECONDS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

pub(super) const PROXIES: Family =
    family("proxies", Kind::Gauge, &["phase"], "Proxies by phase, read from the cache at scrape time.");
pub(super) const LEASES_ACTIVE: Family = family(
    "leases_active",
    Kind::Gauge,
    &[],
    "Live leases, as of the pool's last look (at most a second ago).",
);
pub(super) const LEASE_REQUESTS: Family =
    family("lease_requests_total", Kind::Counter, &["outcome"], "Requests for a lease by how they ended.");
pub(super) const HEALTHCHECK_SECONDS: Family = family(
    "healthcheck_duration_seconds",
    Kind::Histogram(&PROBE_SECONDS),
    &["proxy"],
    "Duration of every probe of a proxy (namespace/name), good or bad. Off with --per-proxy-metrics=false.",
);
pub(super) const HEALTHCHECK_FAILURES: Family = family(
    "healthcheck_failures_total",
    Kind::Counter,
    &["proxy"],
    "Failed probes of a proxy (namespace/name). Off with --per-proxy-metrics=false.",
);
pub(super) const PROBES: Family = family(
    "probes_total",
    Kind::Counter,
    &["result"],
    "Probes of the whole fleet: ProbeSucceeded, or the reason of the failure as in the Healthy condition.",
);
pub(super) const SUSPECTED_TARGETS: Family = family(
    "suspected_probe_targets",
    Kind::Gauge,
    &[],
    "Probe URLs that fail for nearly the whole fleet at once: the target is suspected, verdicts are held.",
);
pub(super) const PROVIDER_REQUESTS: Family = family(
    "provider_requests_total",
    Kind::Counter,
    &["provider", "op", "result"],
    "Calls of providers. result: answered, the reason of a failure (transient, throttled, quota, capacity, denied, missing, invalid, name_taken, busy, out_of_scope, permanent, unsupported, other), or what the host ended it for (trap, deadline, cpu, memory, bad_answer, held_back, cancelled). A call that got no permit is none: see provider_no_permit_total.",
);
pub(super) const PROVIDER_CALL_SECONDS: Family = family(
    "provider_call_seconds",
    Kind::Histogram(CALL_SECONDS),
    &["provider", "op"],
    "Wall time of provider calls.",
);
pub(super) const PROVIDER_CPU_SECONDS: Family = family(
    "provider_cpu_seconds_total",
    Kind::Counter,
    &["provider"],
    "CPU time of the provider's component.",
);
pub(super) const PROVIDER_MEMORY: Family = family(
    "provider_memory_peak_bytes",
    Kind::Gauge,
    &["provider"],
    "Most linear memory that one call of the provider has had, since the start.",
);
pub(super) const PROVIDER_HTTP: Family = family(
    "provider_http_requests_total",
    Kind::Counter,
    &["provider"],
    "Outbound requests that the provider tried to make.",
);
pub(super) const PROVIDER_DENIED: Family = family(
    "provider_http_denied_calls_total",
    Kind::Counter,
    &["provider"],
    "Calls in which an outbound request was refused: the providers config does not grant it.",
);
pub(super) const PROVIDER_NO_PERMIT: Family = family(
    "provider_no_permit_total",
    Kind::Counter,
    &["provider"],
    "Calls put off: all permits of the provider (limits.concurrency), or the memory for calls, were in use for 5 s, or a call had been throttled.",
);
pub(super) const PROVIDER_STATE: Family = family(
    "provider_state",
    Kind::Gauge,
    &["provider", "state"],
    "1 for the state that the provider is in: loading, ready or failed.",
);
pub(super) const PROVIDER_INFO: Family = family(
    "provider_info",
    Kind::Gauge,
    &["provider", "digest", "version", "contract"],
    "1 for each loaded provider: what is running.",
);
pub(super) const RECONCILE_SECONDS_FAMILY: Family = family(
    "reconcile_duration_seconds",
    Kind::Histogram(RECONCILE_SECONDS),
    &["outcome"],
    "Duration of reconciles, provider calls included.",
);
pub(super) const API_WRITES: Family = family(
    "api_writes_total",
    Kind::Counter,
    &["kind", "outcome"],
    "Writes to the Kubernetes API. At rest there are none.",
);
pub(super) const QUEUE_DEPTH: Family =
    family("workqueue_depth", Kind::Gauge, &[], "Proxies with a reconcile planned, now or later.");
pub(super) const QUEUE_RUNNING: Family =
    family("workqueue_running", Kind::Gauge, &[], "Proxies that are being reconciled.");
pub(super) const QUEUE_LONGEST_WAIT: Family = family(
    "workqueue_longest_wait_seconds",
    Kind::Gauge,
    &[],
    "How long the Proxy whose reconcile is due and has waited longest has waited; 0 if none waits. Grows while the lead pauses.",
);
pub(super) const GC_PASSES: Family = family(
    "gc_passes_total",
    Kind::Counter,
    &["outcome"],
    "Passes of garbage collection: complete, incomplete (a provider could not be listed, or not all of it), failed (the Proxies could not be listed: nothing was decided), not_leading.",
);
pub(super) const GC_ABANDONED: Family = family(
    "gc_abandoned_machines",
    Kind::Gauge,
    &["provider", "finding"],
    "Machines that looked abandoned in the last pass, however young: orphan (their Proxy does not exist), surplus (it names others), or stuck (abandoned, and its delete was under way in two passes). None for a provider that could not be listed.",
);
pub(super) const GC_UNTAGGED: Family = family(
    "gc_untagged_machines",
    Kind::Gauge,
    &["provider"],
    "Machines named px-... without ownership tags, in the last pass. They are never touched. None where the provider cannot tell.",
);
pub(super) const GC_SUSPECTED: Family = family(
    "gc_suspected",
    Kind::Gauge,
    &["provider"],
    "1 if nearly all machines of the provider looked abandoned in the last pass: none of them is deleted.",
);
pub(super) const GC_DELETES: Family = family(
    "gc_deletes_total",
    Kind::Counter,
    &["provider", "result"],
    "Machines that garbage collection set out to delete: deleted, dry_run, spared (the last look showed a reason to), failed (the next pass tries again).",
);
pub(super) const LEADER: Family = family(
    "leader",
    Kind::Gauge,
    &[],
    "1 if this process leads and may act, 0 if it stands by, or waits for the API server. The sum over all replicas is 1, and 0 between two leaders and while the API server is away.",
);
pub(super) const BUILD_INFO: Family =
    family("build_info", Kind::Gauge, &["version"], "1: the version that runs.");

/// All of them, in the order of the documentation.
pub(super) fn all() -> [Family; 28] {
    [
        PROXIES,
        LEASES_ACTIVE,
        LEASE_REQUESTS,
        HEALTHCHECK_SECONDS,
        HEALTHCHECK_FAILURES,
        PROBES,
        SUSPECTED_TARGETS,
        PROVIDER_REQUESTS,
        PROVIDER_CALL_SECONDS,
        PROVIDER_CPU_SECONDS,
        PROVIDER_MEMORY,
        PROVIDER_HTTP,
        PROVIDER_DENIED,
        PROVIDER_NO_PERMIT,
        PROVIDER_STATE,
        PROVIDER_INFO,
        RECONCILE_SECONDS_FAMILY,
        API_WRITES,
        QUEUE_DEPTH,
        QUEUE_RUNNING,
        QUEUE_LONGEST_WAIT,
        GC_PASSES,
        GC_ABANDONED,
        GC_UNTAGGED,
        GC_SUSPECTED,
        GC_DELETES,
        LEADER,
        BUILD_INFO,
    ]
}
