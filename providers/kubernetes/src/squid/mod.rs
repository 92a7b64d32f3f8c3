//! The Squid configuration of one machine.
//!
//! Squid runs as one process without root, writes to standard output and error alone, and keeps nothing.
//! It must never serve a client that is not listed, open a tunnel to a port that is not, or connect to
//! loopback, link-local or metadata addresses: the rules for that come before those of the user's own
//! configuration, Squid takes the first rule that matches, and `directives` refuses whatever would change
//! what these rules mean or lead around them.

use std::fmt::Write as _;

use ipnet::IpNet;

use crate::networks;
use crate::settings::Settings;

/// Where the files are mounted.
pub(crate) const FOLDER: &str = "/etc/egress-proxy";
/// The one folder that Squid may write to.
pub(crate) const SCRATCH: &str = "/run/squid";
/// Names of the files.
pub(crate) const MAIN_FILE: &str = "squid.conf";
/// Also keys of the Secret.
pub(crate) const EXTRA_FILE: &str = "extra.conf";
pub(crate) const USERS_FILE: &str = "users";

/// Access lists of the main configuration. Squid adds to a list when its name is used again, so nobody else
/// may use these.
pub(crate) const ACCESS_LISTS: [&str; 6] =
    ["has_request", "allowed_clients", "connect_ports", "safe_ports", "never", "authenticated"];

/// Addresses that no proxy has any business with: this host, link-local, metadata services of clouds, and
/// the same behind forgotten ways to carry IPv4 in IPv6.
const NEVER: [&str; 19] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    // Alibaba, Oracle, Azure.
    "100.100.100.200/32",
    "192.0.0.192/32",
    "168.63.129.16/32",
    "::/128",
    "::1/128",
    "fe80::/10",
    "fec0::/10",
    // Amazon (metadata, pod identity), Google, Scaleway.
    "fd00:ec2::254/128",
    "fd00:ec2::23/128",
    "fd20:ce::254/128",
    "fd00:42::42/128",
    // Local NAT64, 6to4, Teredo, translated.
    "64:ff9b:1::/48",
    "2002::/16",
    "2001::/32",
    "::ffff:0:0:0/96",
    // Multicast.
    "ff00::/8",
];

/// Which of the optional files there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files {
    pub(crate) extra: bool,
    pub(crate) users: bool,
}

impl Files {
    pub(crate) fn any(self) -> bool {
        self.extra || self.users
    }
}

/// The main configuration file.
pub(crate) fn config(settings: &Settings, name: &str, port: u16, files: Files) -> String {
    let mut text = base(settings, name, port);
    text.push_str(&access(settings, files));
    text
}

fn base(settings: &Settings, name: &str, port: u16) -> String {
    let config = &settings.config;
    format!(
        "http_port {port}\n\
         visible_hostname {name}\n\
         # One process without root that writes nothing but its two streams.\n\
         pid_filename none\n\
         cache_log /dev/stderr\n\
         coredump_dir {SCRATCH}\n\
         netdb_filename none\n\
         logfile_rotate 0\n\
         pinger_enable off\n\
         digest_generation off\n\
         # Connections that never sent a request, such as the kubelet's probes, are not worth a line.\n\
         acl has_request has request\n\
         access_log stdio:/dev/stdout logformat=squid has_request\n\
         # Nothing is kept.\n\
         cache deny all\n\
         cache_mem 0 MB\n\
         memory_pools off\n\
         max_filedescriptors {descriptors}\n\
         shutdown_lifetime {shutdown} seconds\n\
         # The origin sees neither the client nor the proxy's name.\n\
         via off\n\
         forwarded_for delete\n\
         httpd_suppress_version_string on\n",
        descriptors = config.max_file_descriptors,
        shutdown = config.shutdown_seconds,
    )
}

fn access(settings: &Settings, files: Files) -> String {
    let mut text =
        String::from("# Who is served, and where requests may go. The first rule that matches decides.\n");
    let mut line = |parts: &str| {
        // Writing to a String cannot fail.
        writeln!(text, "{parts}").ok();
    };
    for network in clients(&settings.allowed_clients) {
        line(&format!("acl allowed_clients src {network}"));
    }
    line(&format!("acl connect_ports port {}", settings.ports.connect.join(" ")));
    line(&format!(
        "acl safe_ports port {} {}",
        settings.ports.safe.join(" "),
        settings.ports.connect.join(" ")
    ));
    for network in destinations(&settings.denied_destinations) {
        line(&format!("acl never dst {network}"));
    }
    line("http_access deny !allowed_clients");
    line("http_access deny manager");
    line("http_access deny CONNECT !connect_ports");
    line("http_access deny !safe_ports");
    line("http_access deny never");
    if files.users {
        line(&format!("auth_param basic program {} {FOLDER}/{USERS_FILE}", settings.config.auth_helper));
        line("auth_param basic children 5 startup=1 idle=1");
        line("auth_param basic realm egress-proxy");
        line("auth_param basic credentialsttl 1 hour");
        line("acl authenticated proxy_auth REQUIRED");
        line("http_access deny !authenticated");
    }
    if files.extra {
        line(&format!("include {FOLDER}/{EXTRA_FILE}"));
    }
    line("http_access allow allowed_clients");
    line("http_access deny all");
    text
}

/// Everything is `all`: Squid has no other word for it.
fn clients(allowed: &[IpNet]) -> Vec<String> {
    if allowed.iter().any(|network| network.prefix_len() == 0) {
        return vec!["all".to_owned()];
    }
    disjoint(allowed)
}

fn destinations(denied: &[IpNet]) -> Vec<String> {
    // All of them are networks; a test says so.
    let never = NEVER.iter().filter_map(|text| text.parse().ok());
    let mut networks: Vec<IpNet> = never.chain(denied.iter().copied()).collect();
    networks.extend(networks.iter().filter_map(networks::translated).collect::<Vec<_>>());
    disjoint(&networks)
}

/// Without those that lie within others: of two networks that overlap Squid keeps the one that it read
/// first, even if that is the smaller one.
fn disjoint(networks: &[IpNet]) -> Vec<String> {
    IpNet::aggregate(&networks.to_vec()).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
