//! Settings of the process: flags, with an environment variable for each, checked before anything starts.
//!
//! The only reader of the environment (clap does it). Durations are written as `500ms`, `5s`, `1m`, `2h`.
//! What a value may be stands in `values`.

mod values;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use egress_proxies_core::gc;
use egress_proxies_core::lifecycle::{Caps, Policy};
use egress_proxies_core::provider::Secret;

pub use self::values::Interval;
use self::values::{
    NamespaceList, ProbeUrlParser, cluster_id, duration, instance, interval, namespaces, object_name,
    object_name_or_none, secret,
};

/// Flags of `run`.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The providers config: which components are loaded, and what each may reach.
    #[arg(long, env = "PROVIDERS_CONFIG", value_name = "FILE")]
    pub providers_config: PathBuf,
    /// Namespaces to look for Proxies in, separated by commas; none = all.
    #[arg(long, env = "WATCH_NAMESPACES", value_parser = namespaces, value_name = "NAMES")]
    namespaces: Vec<NamespaceList>,
    /// Identity of this cluster in the tags of machines; none = the uid of its kube-system namespace. Must
    /// never change while machines live.
    #[arg(long, env = "CLUSTER_ID", value_name = "ID", value_parser = cluster_id)]
    pub cluster_id: Option<String>,
    /// Name of this process in Events, such as its pod; none = egress-proxies-operator.
    #[arg(long, env = "POD_NAME", default_value = "", hide_default_value = true, value_parser = instance, value_name = "NAME")]
    pub instance: String,
    /// Which of several processes acts.
    #[command(flatten)]
    pub leader: LeaderElection,
    /// Where compiled components are kept.
    #[command(flatten)]
    pub store: ComponentStore,
    /// Memory in MiB that all provider calls in flight may have together. One call may have a quarter of it,
    /// less 64: below 768, each provider needs a limits.memoryMiB below its default of 128.
    #[arg(long, env = "PROVIDER_MEMORY_MIB", default_value_t = 2304, value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    pub provider_memory_mib: u32,
    /// Addresses of the servers.
    #[command(flatten)]
    pub servers: Servers,
    /// Who may call the discovery API.
    #[command(flatten)]
    pub access: Access,
    /// Probes.
    #[command(flatten)]
    pub probes: Probes,
    /// How often machines are looked at.
    #[command(flatten)]
    pub polls: Polls,
    /// Machines that nobody needs any more.
    #[command(flatten)]
    pub gc: Gc,
    /// How much may be taken away at once.
    #[command(flatten)]
    pub caps: RateCaps,
    /// How long a report of `rate_limited` or `banned` keeps a proxy from its target.
    #[arg(long, env = "COOLDOWN", default_value = "15m", value_parser = duration, value_name = "DURATION")]
    pub cooldown: Duration,
    /// Form of the log.
    #[arg(long, env = "LOG_FORMAT", default_value = "text", value_enum)]
    pub log_format: LogFormat,
    /// What is logged, as in `info,egress_proxies_operator=debug`.
    #[arg(long, env = "LOG_FILTER", default_value = "info", value_name = "FILTER")]
    pub log: String,
}

/// Which of several processes acts.
#[derive(Debug, Clone, Args)]
pub struct LeaderElection {
    /// Act only while holding the Lease. False if no other process of this installation can ever run.
    #[arg(long, env = "LEADER_ELECT", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Namespace of the Lease; none = that of the pod, and egress-proxies-operator-system outside of one.
    #[arg(long, env = "LEADER_LEASE_NAMESPACE", default_value = "", hide_default_value = true, value_parser = object_name_or_none, value_name = "NAME")]
    pub leader_lease_namespace: String,
    /// Name of the Lease. Two installations in one cluster need two.
    #[arg(long, env = "LEADER_LEASE_NAME", default_value = "egress-proxies-operator", value_parser = object_name, value_name = "NAME")]
    pub leader_lease_name: String,
}

/// Where compiled components are kept.
#[derive(Debug, Clone, Args)]
pub struct ComponentStore {
    /// Folder for compiled components, private to this process's user; none = a folder under the user's cache.
    #[arg(long, env = "COMPONENT_STORE", value_name = "FOLDER")]
    pub component_store: Option<PathBuf>,
    /// The user's cache folder, for --component-store.
    #[arg(long, env = "XDG_CACHE_HOME", hide = true)]
    pub cache_home: Option<PathBuf>,
    /// The user's home, for --component-store.
    #[arg(long, env = "HOME", hide = true)]
    pub home: Option<PathBuf>,
}

/// Addresses of the servers.
#[derive(Debug, Clone, Args)]
pub struct Servers {
    /// Where the discovery and lease API listens.
    #[arg(long, env = "DISCOVERY_ADDRESS", default_value = "[::]:8090", value_name = "ADDRESS:PORT")]
    pub discovery_address: SocketAddr,
    /// Where /metrics and /debug/providers listen.
    #[arg(long, env = "METRICS_ADDRESS", default_value = "[::]:8080", value_name = "ADDRESS:PORT")]
    pub metrics_address: SocketAddr,
    /// Where /livez and /readyz listen.
    #[arg(long, env = "PROBE_ADDRESS", default_value = "[::]:8081", value_name = "ADDRESS:PORT")]
    pub probe_address: SocketAddr,
}

/// Who may call the discovery API.
#[derive(Debug, Clone, Args)]
pub struct Access {
    /// A token that clients must send as `Authorization: Bearer`. Give it by the environment: arguments can
    /// be seen by others on the machine.
    #[arg(long, env = "DISCOVERY_TOKEN", hide_env_values = true, value_parser = secret, value_name = "TOKEN")]
    pub discovery_token: Option<Secret<String>>,
    /// A file with further tokens, one per line, read again when it changes.
    #[arg(long, env = "DISCOVERY_TOKENS_FILE", value_name = "FILE")]
    pub discovery_tokens_file: Option<PathBuf>,
}

/// Probes.
#[derive(Debug, Clone, Args)]
pub struct Probes {
    /// Fetched through proxies that name no URL and whose provider names none.
    #[arg(long, env = "PROBE_URL", value_parser = ProbeUrlParser, value_name = "URL")]
    pub probe_url: Option<String>,
    /// Probes at the same time.
    #[arg(long, env = "MAX_PROBES_IN_FLIGHT", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub max_probes_in_flight: u16,
    /// External endpoints may be on loopback, link-local addresses and the API server, whose addresses are not
    /// looked up. For tests: otherwise whoever may create a Proxy can scan the operator's own machine. Names of
    /// a provider's machines must lead to public addresses or its addressCidrs all the same.
    #[arg(long, env = "ALLOW_LOCAL_ENDPOINTS")]
    pub allow_local_endpoints: bool,
    /// Series of each proxy in /metrics; false for large fleets.
    #[arg(long, env = "PER_PROXY_METRICS", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub per_proxy_metrics: bool,
}

/// How often machines are looked at.
#[derive(Debug, Clone, Args)]
pub struct Polls {
    /// Between two looks at a machine that is being made.
    #[arg(long, env = "PROVISIONING_POLL", default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub provisioning_poll: Duration,
    /// Between two looks at a machine that is being deleted.
    #[arg(long, env = "DELETION_POLL", default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub deletion_poll: Duration,
    /// Between two looks at a running machine.
    #[arg(long, env = "DRIFT_POLL", default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub drift_poll: Duration,
    /// Until the next try after a lack of quota or capacity.
    #[arg(long, env = "QUOTA_POLL", default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub quota_poll: Duration,
}

/// Garbage collection: machines that nobody needs any more.
#[derive(Debug, Clone, Args)]
pub struct Gc {
    /// Between two passes of garbage collection, from 10s; 0 = off.
    #[arg(long, env = "GC_INTERVAL", default_value = "10m", value_parser = interval, value_name = "DURATION")]
    pub gc_interval: Interval,
    /// Machines younger than this are never taken for garbage.
    #[arg(long, env = "GC_MIN_AGE", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub gc_min_age: Duration,
    /// Most machines that one pass deletes.
    #[arg(long, env = "GC_MAX_DELETES", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "NUMBER")]
    pub gc_max_deletes: u16,
    /// If more than this share of a provider's machines looks like garbage, the operator suspects what it sees
    /// and deletes none of them; 100 = never.
    #[arg(long, env = "GC_SUSPECT_PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    pub gc_suspect_percent: u8,
    /// Everything but the deletes: what would go is logged and counted.
    #[arg(long, env = "GC_DRY_RUN")]
    pub gc_dry_run: bool,
    /// Collect garbage although --namespaces hides some Proxies: only machines made for Proxies in these
    /// namespaces are judged.
    #[arg(long, env = "GC_ALLOW_NAMESPACED")]
    pub gc_allow_namespaced: bool,
}

/// How much may be taken away at once.
#[derive(Debug, Clone, Args)]
pub struct RateCaps {
    /// Machines of one provider that may be replaced, or made anew after they failed, in a minute.
    #[arg(long, env = "MAX_REPLACEMENTS_PER_MINUTE", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    pub max_replacements_per_minute: u32,
    /// Machines of one provider that may be deleted in a minute because their Proxies were deleted.
    #[arg(long, env = "MAX_DELETIONS_PER_MINUTE", default_value_t = 900, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "COUNT")]
    pub max_deletions_per_minute: u32,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object per line.
    Json,
}

impl Settings {
    /// Namespaces to look for Proxies in, each once; none = all.
    pub fn namespaces(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.namespaces.iter().flat_map(|list| &list.0).collect();
        names.into_iter().cloned().collect()
    }

    /// Durations and limits of the lifecycle.
    pub fn policy(&self) -> Policy {
        let caps = Caps::default();
        // Whoever is looked at rarely asks rarely, and is to be counted until it asks again.
        let at_once = caps.at_once.max(self.polls.drift_poll.saturating_mul(2));
        Policy {
            provisioning_poll: self.polls.provisioning_poll,
            deletion_poll: self.polls.deletion_poll,
            drift_poll: self.polls.drift_poll,
            quota_poll: self.polls.quota_poll,
            caps: Caps {
                replacements_per_minute: self.caps.max_replacements_per_minute,
                deletions_per_minute: self.caps.max_deletions_per_minute,
                at_once,
                ..caps
            },
            ..Policy::default()
        }
    }
}

impl Gc {
    /// Limits of garbage collection.
    pub fn policy(&self) -> gc::Policy {
        gc::Policy {
            min_age: self.gc_min_age,
            max_deletes: self.gc_max_deletes.into(),
            suspect_percent: self.gc_suspect_percent,
            ..gc::Policy::default()
        }
    }
}

impl ComponentStore {
    /// The folder.
    ///
    /// # Errors
    /// If it is not given and there is no home to put it under.
    pub fn folder(&self) -> anyhow::Result<PathBuf> {
        let under_home = || self.home.as_ref().map(|home| home.join(".cache"));
        let cache = self.cache_home.clone().filter(|path| path.is_absolute()).or_else(under_home);
        self.component_store
            .clone()
            .or_else(|| cache.map(|cache| cache.join("egress-proxies-operator/components")))
            .ok_or_else(|| {
                anyhow::anyhow!("--component-store is missing and there is no HOME to put it under")
            })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    /// The settings of a command line, beside a providers config.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Settings, String> {
        let line = ["operator", "--providers-config", "p.yaml"].iter().chain(arguments);
        Line::try_parse_from(line).map(|line| line.settings).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_policy() {
        assert_eq!(parse(&[]).unwrap().policy(), Policy::default());
    }

    #[test]
    fn durations_are_read_with_their_unit_and_bounded() {
        assert_eq!(parse(&["--drift-poll", "2m"]).unwrap().policy().drift_poll, Duration::from_mins(2));
        for bad in ["5", "0s", "-1s", "25h", "soon"] {
            let said = parse(&[&format!("--drift-poll={bad}")]).unwrap_err();
            assert!(said.contains("--drift-poll") && said.contains("500ms, 5s, 1m"), "{bad}: {said}");
        }
    }

    #[test]
    fn garbage_collection_has_the_documented_limits_and_can_be_turned_off() {
        let settings = parse(&[]).unwrap().gc;
        assert_eq!(settings.policy(), gc::Policy::default());
        assert_eq!(settings.gc_interval, Interval::Every(Duration::from_mins(10)));
        assert!(!settings.gc_dry_run && !settings.gc_allow_namespaced);
        assert_eq!(parse(&["--gc-interval", "0"]).unwrap().gc.gc_interval, Interval::Off);
        for bad in ["9s", "0s", "25h", "soon"] {
            let said = parse(&["--gc-interval", bad]).unwrap_err();
            assert!(said.contains("--gc-interval") && said.contains("0 to turn it off"), "{bad}: {said}");
        }
        assert!(parse(&["--gc-max-deletes", "0"]).is_err() && parse(&["--gc-suspect-percent", "0"]).is_err());
    }

    #[test]
    fn a_bad_probe_url_and_a_bad_cluster_id_are_refused_with_the_rule() {
        for (bad, rule) in [
            ("example.com", "http://"),
            ("ftp://example.com/", "http://"),
            ("http://tärget/", "plain ASCII"),
            ("https://user:hunter2@example.com/", "must not hold a user name or a password"),
            ("https://hunter2@example.com/", "must not hold a user name or a password"),
        ] {
            let said = parse(&["--probe-url", bad]).unwrap_err();
            assert!(said.contains(rule) && said.contains("--probe-url"), "{bad}: {said}");
            assert!(!said.contains("hunter2"), "a refusal repeats no password: {said}");
        }
        let good = parse(&["--probe-url", "https://example.com/health?x=1"]).unwrap();
        assert_eq!(good.probes.probe_url.as_deref(), Some("https://example.com/health?x=1"));
        assert!(parse(&["--cluster-id", "My Cluster"]).unwrap_err().contains("1-63 of a-z"));
    }

    #[test]
    fn namespaces_are_names_and_none_of_them_means_all() {
        for (given, expected) in [
            (&[][..], &[][..]),
            (&[""], &[]),
            (&[" , "], &[]),
            (&["a, b"], &["a", "b"]),
            (&["a,"], &["a"]),
            (&["b", "a,b"], &["a", "b"]),
        ] {
            let arguments: Vec<String> = given.iter().map(|value| format!("--namespaces={value}")).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            assert_eq!(parse(&arguments).unwrap().namespaces(), expected, "{given:?}");
        }
        for bad in ["A_b", "a b", "a,-b", "a.b", &"x".repeat(64)] {
            let said = parse(&["--namespaces", bad]).unwrap_err();
            assert!(said.contains("--namespaces") && said.contains("1-63 of a-z"), "{bad}: {said}");
        }
    }

    #[test]
    fn the_name_in_events_is_one_that_the_api_server_takes() {
        for (given, expected) in [
            (&[][..], "egress-proxies-operator"),
            (&["--instance="], "egress-proxies-operator"),
            (&["--instance=pod-1"], "pod-1"),
        ] {
            assert_eq!(parse(given).unwrap().instance, expected);
        }
        let said = parse(&["--instance", &"x".repeat(129)]).unwrap_err();
        assert!(said.contains("--instance") && said.contains("1-128"), "{said}");
    }

    #[test]
    fn a_process_takes_part_in_the_election_unless_told_otherwise() {
        let settings = parse(&[]).unwrap().leader;
        assert!(settings.leader_elect && settings.leader_lease_namespace.is_empty());
        assert!(!parse(&["--leader-elect", "false"]).unwrap().leader.leader_elect);
        for bad in ["Upper", "-a", "a.b", ""] {
            let said = parse(&[&format!("--leader-lease-name={bad}")]).unwrap_err();
            assert!(said.contains("--leader-lease-name") && said.contains("1-63 of a-z"), "{bad}: {said}");
        }
    }

    #[test]
    fn the_token_is_not_printed() {
        let settings = parse(&["--discovery-token", "hunter2"]).unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
