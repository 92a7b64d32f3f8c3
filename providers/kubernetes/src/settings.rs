//! What a machine is to be like: the provider's configuration, then the Proxy's placement and parameters,
//! which win.
//!
//! The schemas in `schemas/` have checked form; what is checked here is meaning, and every error names
//! the field.

use std::collections::BTreeMap;

use egress_proxies_provider_sdk::document;
use egress_proxies_provider_sdk::failure::invalid;
use egress_proxies_provider_sdk::model::Failure;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::networks;

/// Private and shared ranges: pods, nodes and the networks next to them.
const PRIVATE: [&str; 6] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7"];

/// The provider's configuration, as in `schemas/config.json`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Config {
    pub(crate) image: String,
    pub(crate) image_pull_policy: PullPolicy,
    pub(crate) image_pull_secrets: Vec<String>,
    pub(crate) run_as_user: Option<u32>,
    pub(crate) auth_helper: String,
    pub(crate) allowed_clients: Vec<String>,
    pub(crate) denied_destinations: Vec<String>,
    pub(crate) connect_ports: Vec<Port>,
    pub(crate) safe_ports: Vec<Port>,
    pub(crate) resources: Resources,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) dns_policy: DnsPolicy,
    pub(crate) shutdown_seconds: u16,
    pub(crate) max_file_descriptors: u32,
    /// Further directives that a Proxy's own configuration may use.
    pub(crate) extra_directives: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            image: "docker.io/ubuntu/squid:latest".to_owned(),
            image_pull_policy: PullPolicy::IfNotPresent,
            image_pull_secrets: Vec::new(),
            run_as_user: Some(13),
            auth_helper: "/usr/lib/squid/basic_ncsa_auth".to_owned(),
            allowed_clients: PRIVATE.map(str::to_owned).to_vec(),
            denied_destinations: Vec::new(),
            connect_ports: vec![Port::One(443)],
            safe_ports: vec![Port::One(80), Port::One(443), Port::Range("1025-65535".to_owned())],
            resources: Resources::default(),
            node_selector: BTreeMap::new(),
            dns_policy: DnsPolicy::ClusterFirst,
            shutdown_seconds: 5,
            max_file_descriptors: 16_384,
            extra_directives: Vec::new(),
        }
    }
}

/// When the node pulls the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// Where the pod resolves names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DnsPolicy {
    ClusterFirst,
    Default,
}

/// A port or a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Port {
    One(u16),
    Range(String),
}

/// Requests and limits of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Resources {
    pub(crate) requests: BTreeMap<String, String>,
    pub(crate) limits: BTreeMap<String, String>,
}

impl Default for Resources {
    fn default() -> Self {
        let quantity = |name: &str, amount: &str| (name.to_owned(), amount.to_owned());
        Self {
            requests: [quantity("cpu", "10m"), quantity("memory", "64Mi")].into(),
            limits: [quantity("memory", "512Mi")].into(),
        }
    }
}

/// A Proxy's `parameters`, as in `schemas/parameters.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Parameters {
    allowed_clients: Option<Vec<String>>,
    connect_ports: Option<Vec<Port>>,
    safe_ports: Option<Vec<Port>>,
    resources: Option<Resources>,
    node_selector: Option<BTreeMap<String, String>>,
}

/// A Proxy's `placement`, as in `schemas/placement.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Placement {
    image: Option<String>,
    labels: BTreeMap<String, String>,
    zone: Option<serde_json::Value>,
    machine_type: Option<serde_json::Value>,
    network: Option<serde_json::Value>,
    subnetwork: Option<serde_json::Value>,
    disk_size_gb: Option<serde_json::Value>,
}

/// Ports of the two kinds that a request may go to, as Squid writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) connect: Vec<String>,
    pub(crate) safe: Vec<String>,
}

/// What one machine is to be like.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Everything that a Proxy cannot change, and the rest with the Proxy's values in place.
    pub(crate) config: Config,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) allowed_clients: Vec<IpNet>,
    pub(crate) denied_destinations: Vec<IpNet>,
    pub(crate) ports: Ports,
}

impl Settings {
    /// Of the configuration alone.
    pub(crate) fn of_config(config: Config) -> Result<Self, Failure> {
        Self::merge(config, Placement::default(), Parameters::default())
    }

    /// Of one machine.
    pub(crate) fn of_machine(config: Config, placement: &str, parameters: &str) -> Result<Self, Failure> {
        let placement: Placement = document::parse("placement", placement)?;
        placement.refuse_what_pods_lack()?;
        Self::merge(config, placement, document::parse("parameters", parameters)?)
    }

    fn merge(mut config: Config, placement: Placement, parameters: Parameters) -> Result<Self, Failure> {
        if let Some(image) = placement.image {
            config.image = image;
        }
        if let Some(resources) = parameters.resources {
            config.resources = resources;
        }
        if let Some(selector) = parameters.node_selector {
            config.node_selector = selector;
        }
        let allowed_clients = match parameters.allowed_clients {
            Some(networks) => networks::clients(&networks, "/parameters/allowedClients")?,
            None => networks::clients(&config.allowed_clients, "/config/allowedClients")?,
        };
        let denied_destinations =
            networks::destinations(&config.denied_destinations, "/config/deniedDestinations")?;
        let connect = match parameters.connect_ports {
            Some(ports) => read_ports(&ports, "/parameters/connectPorts")?,
            None => read_ports(&config.connect_ports, "/config/connectPorts")?,
        };
        let safe = match parameters.safe_ports {
            Some(ports) => read_ports(&ports, "/parameters/safePorts")?,
            None => read_ports(&config.safe_ports, "/config/safePorts")?,
        };
        Ok(Self {
            config,
            labels: placement.labels,
            allowed_clients,
            denied_destinations,
            ports: Ports { connect, safe },
        })
    }
}

impl Placement {
    fn refuse_what_pods_lack(&self) -> Result<(), Failure> {
        let topology = "use /parameters/nodeSelector, such as {\"topology.kubernetes.io/zone\": \"...\"}";
        let rows = [
            ("zone", self.zone.is_some(), topology),
            ("machineType", self.machine_type.is_some(), "use /parameters/resources for its size"),
            ("network", self.network.is_some(), "a pod is in its cluster's network; leave it out"),
            ("subnetwork", self.subnetwork.is_some(), "a pod is in its cluster's network; leave it out"),
            (
                "diskSizeGb",
                self.disk_size_gb.is_some(),
                "a pod of this provider keeps nothing on disk; leave it out",
            ),
        ];
        match rows.iter().find(|(_, given, _)| *given) {
            Some((field, _, instead)) => {
                let pointer = format!("/placement/{field}");
                let message = format!("{pointer} means nothing to a pod: {instead}");
                Err(invalid(pointer, message))
            }
            None => Ok(()),
        }
    }
}

fn read_ports(ports: &[Port], pointer: &str) -> Result<Vec<String>, Failure> {
    ports.iter().enumerate().map(|(index, port)| read_port(port, &format!("{pointer}/{index}"))).collect()
}

fn read_port(port: &Port, pointer: &str) -> Result<String, Failure> {
    match port {
        Port::One(port) if *port > 0 => Ok(port.to_string()),
        Port::One(_) => Err(invalid(pointer, format!("{pointer}: ports are 1 to 65535"))),
        Port::Range(text) => {
            let ends = text.split_once('-').and_then(|(low, high)| {
                let (low, high) = (low.parse::<u16>().ok()?, high.parse::<u16>().ok()?);
                (0 < low && low <= high).then(|| format!("{low}-{high}"))
            });
            ends.ok_or_else(|| {
                invalid(
                    pointer,
                    format!("{pointer}: \"{text}\" is not a range of ports; write it as 8000-8100"),
                )
            })
        }
    }
}
