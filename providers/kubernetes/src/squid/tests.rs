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

#[test]
fn loopback_link_local_and_metadata_are_never_reached() {
    let text = config(&settings(r#"{"deniedDestinations": ["10.96.0.0/12"]}"#, "{}"), "px-1", 3128, NONE);
    for network in [
        "127.0.0.0/8",
        "::1/128",
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "0.0.0.0/8",
        "10.96.0.0/12",
    ] {
        assert!(text.contains(&format!("acl never dst {network}\n")), "{network}");
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
