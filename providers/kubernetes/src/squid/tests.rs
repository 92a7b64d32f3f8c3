//! What the configuration says, and above all in which order.

use super::*;
use crate::settings::Config;

const NONE: Files = Files { extra: false, users: false };
const ALL: Files = Files { extra: true, users: true };

fn settings(config: &str, parameters: &str) -> Settings {
    let config: Config = serde_json::from_str(config).unwrap();
    Settings::of_machine(config, "{}", parameters).unwrap()
}

fn rules(text: &str) -> Vec<&str> {
    let is_rule = |line: &&str| line.starts_with("http_access") || line.starts_with("include");
    text.lines().filter(is_rule).collect()
}

#[test]
fn refusals_come_before_everything_that_a_user_can_say() {
    let text = config(&settings("{}", "{}"), "px-1", 3128, ALL);
    assert_eq!(
        rules(&text),
        [
            "http_access deny !allowed_clients",
            "http_access deny manager",
            "http_access deny CONNECT !connect_ports",
            "http_access deny !safe_ports",
            "http_access deny never",
            "http_access deny !authenticated",
            "include /etc/egress-proxy/extra.conf",
            "http_access allow allowed_clients",
            "http_access deny all",
        ]
    );
}

#[test]
fn files_that_are_not_there_are_not_named() {
    let text = config(&settings("{}", "{}"), "px-1", 3128, NONE);
    assert!(!text.contains("extra.conf") && !text.contains("auth_param"));
    assert_eq!(rules(&text).len(), 7);
}

#[test]
fn only_private_clients_and_port_443_are_allowed_unless_told_otherwise() {
    let text = config(&settings("{}", "{}"), "px-1", 3128, NONE);
    let clients: Vec<&str> = text.lines().filter(|line| line.starts_with("acl allowed_clients")).collect();
    assert_eq!(clients.len(), 6);
    assert!(clients.contains(&"acl allowed_clients src fc00::/7"));
    assert!(!clients.iter().any(|line| line.contains("/0")));
    assert!(text.contains("acl connect_ports port 443\n"));
}

#[test]
fn a_proxys_own_parameters_win() {
    let chosen = r#"{"allowedClients": ["10.1.2.3", "fd00::1/64"], "connectPorts": [443, "8000-8100"], "safePorts": [80]}"#;
    let text = config(&settings(r#"{"connectPorts": [444]}"#, chosen), "px-1", 8080, NONE);
    for line in [
        "http_port 8080",
        "acl allowed_clients src 10.1.2.3/32",
        "acl allowed_clients src fd00::/64",
        "acl connect_ports port 443 8000-8100",
        "acl safe_ports port 80 443 8000-8100",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

fn denied(config_text: &str) -> Vec<IpNet> {
    let text = config(&settings(config_text, "{}"), "px-1", 3128, NONE);
    text.lines()
        .filter_map(|line| line.strip_prefix("acl never dst "))
        .map(|net| net.parse().unwrap())
        .collect()
}

fn is_denied(networks: &[IpNet], address: &str) -> bool {
    let address: std::net::IpAddr = address.parse().unwrap();
    networks.iter().any(|network| network.contains(&address))
}

#[test]
fn loopback_link_local_and_metadata_are_never_reached_however_they_are_written() {
    let networks = denied("{}");
    for address in [
        "127.0.0.1",
        "0.1.2.3",
        "169.254.169.254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "::",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::7f00:1",
        "64:ff9b::a83f:8110",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2001:0:1::5601:5601",
        "::ffff:0:a9fe:a9fe",
        "ff02::1",
    ] {
        assert!(is_denied(&networks, address), "{address}");
    }
    for address in
        ["1.1.1.1", "10.0.0.1", "100.64.0.1", "64:ff9b::101:101", "2001:4860:4860::8888", "fd00::1"]
    {
        assert!(!is_denied(&networks, address), "{address}");
    }
    assert!(NEVER.iter().all(|text| text.parse::<IpNet>().is_ok()));
}

#[test]
fn what_an_administrator_denies_is_denied_behind_nat64_too_and_overlaps_lose_nothing() {
    // The second has one of the built-in ones within it.
    let networks = denied(r#"{"deniedDestinations": ["10.96.0.0/12", "100.64.0.0/10"]}"#);
    for address in ["10.96.0.1", "64:ff9b::a60:1", "100.64.0.1", "100.100.100.200", "64:ff9b::6440:1"] {
        assert!(is_denied(&networks, address), "{address}");
    }
    let overlap = |a: &IpNet, b: &IpNet| a != b && (a.contains(b) || b.contains(a));
    assert!(!networks.iter().any(|a| networks.iter().any(|b| overlap(a, b))), "{networks:?}");
}

#[test]
fn clients_are_written_so_that_squid_takes_them_as_they_are_meant() {
    let lists = |parameters: &str| -> Vec<String> {
        let text = config(&settings("{}", parameters), "px-1", 3128, NONE);
        text.lines()
            .filter_map(|line| line.strip_prefix("acl allowed_clients src "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(lists(r#"{"allowedClients": ["0.0.0.0/0", "10.0.0.0/8", "::/0"]}"#), ["all"]);
    assert_eq!(lists(r#"{"allowedClients": ["10.1.0.0/16", "10.0.0.0/8"]}"#), ["10.0.0.0/8"]);
}

#[test]
fn the_names_of_all_access_lists_are_protected() {
    let text = config(&settings("{}", "{}"), "px-1", 3128, ALL);
    for name in text.lines().filter_map(|line| line.strip_prefix("acl ")?.split(' ').next()) {
        assert!(ACCESS_LISTS.contains(&name), "{name}");
    }
}

#[test]
fn it_writes_its_streams_alone_and_ends_in_time() {
    let text =
        config(&settings(r#"{"shutdownSeconds": 7, "maxFileDescriptors": 1024}"#, "{}"), "px-1", 3128, NONE);
    for line in [
        "pid_filename none",
        "cache_log /dev/stderr",
        "access_log stdio:/dev/stdout logformat=squid has_request",
        "cache deny all",
        "shutdown_lifetime 7 seconds",
        "max_filedescriptors 1024",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    assert!(!text.contains("cache_dir"));
}
