//! What passes, and each way around the rules that does not.

use egress_proxies_provider_sdk::model::Reason;

use super::*;

/// The message, if it is refused.
fn refusal(text: &str) -> Option<String> {
    let failure = check(text, &[]).err()?;
    assert_eq!(failure.reason, Reason::Invalid("/bootstrap".into()));
    Some(failure.message)
}

#[test]
fn what_refuses_more_or_only_changes_how_is_let_through() {
    for text in [
        "",
        "\n\n  # a comment\n\t\n",
        "via off\nforwarded_for delete\r\n",
        "acl blocked dstdomain .example.com\nhttp_access deny blocked",
        "acl Never2 dst 10.0.0.0/8\nhttp_access deny Never2",
        "acl office src 10.1.0.0/16\nhttp_access allow office",
        "  request_header_access User-Agent deny all",
        "request_header_add X-Via \"a b\" all",
        "connect_timeout 5 seconds",
        "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 64000/64000\ndelay_access 1 allow all",
        "dns_nameservers 10.96.0.10",
        "logformat mine %ts.%03tu %>a",
        "reply_body_max_size 10 MB",
    ] {
        assert_eq!(refusal(text), None, "{text}");
    }
}

#[test]
fn what_could_lift_the_proxys_rules_is_refused_with_its_line_and_name() {
    for line in [
        "auth_param basic program /bin/true",
        "cache_peer 169.254.169.254 parent 80 0 no-query originserver",
        "cache_peer_access x allow all",
        "never_direct allow all",
        "always_direct allow all",
        "include /etc/passwd",
        "if true",
        "else",
        "endif",
        "url_rewrite_program /bin/sh",
        "store_id_program /bin/sh",
        "external_acl_type x %SRC /bin/sh",
        "logfile_daemon /bin/sh",
        "access_log tcp://169.254.169.254:80",
        "cache_log /dev/null",
        "http_port 8080",
        "https_port 8443",
        "icp_port 3130",
        "configuration_includes_quoted_values on",
        "follow_x_forwarded_for allow all",
        "acl_uses_indirect_client on",
        "hosts_file /etc/egress-proxy/users",
        "positive_dns_ttl 1 second",
        "negative_dns_ttl 0",
        "adaptation_access x allow all",
        "icap_service x reqmod_precache icap://169.254.169.254/",
        "wccp2_router 10.0.0.1",
        "cachemgr_passwd disable all",
        "log_mime_hdrs on",
        "workers 2",
    ] {
        let name = line.split(' ').next().unwrap();
        let message = refusal(&format!("via off\n\n\t{line}\n")).expect(line);
        assert!(message.starts_with(&format!("cloudInit, line 3: {name} ")), "{message}");
        assert!(message.contains("extraDirectives"), "{message}");
    }
}

#[test]
fn access_lists_of_the_proxy_and_of_squid_cannot_be_added_to() {
    for name in ACCESS_LISTS.iter().chain(&BUILT_IN) {
        for name in [(*name).to_owned(), name.to_ascii_uppercase(), name.to_ascii_lowercase()] {
            for blank in [" ", "\t", " \t  "] {
                let message = refusal(&format!(" acl{blank}{name}{blank}dst 1.1.1.1")).expect(&name);
                assert!(message.contains("line 1"), "{message}");
            }
        }
    }
    for name in ["\"never\"", "'never'", "parameters(\"/x\")", "-n", "ne${service_name}ver", &"x".repeat(64)]
    {
        assert!(refusal(&format!("acl {name} src all")).is_some(), "{name}");
    }
    assert!(refusal("acl").is_some());
    assert!(check("acl never src all", &["acl".to_owned()]).is_err(), "no administrator can allow that");
}

#[test]
fn lines_are_the_same_to_squid_and_to_this_check() {
    for text in [
        // Joined by Squid.
        "http_access deny x \\\ncache_peer 10.0.0.1 parent 80 0",
        "# harmless \\\ncache_peer x",
        "include\\",
        "via off \\ \n",
        "via off \\\r\n",
        // Squid's buffer ends before the line does.
        &format!("acl x dstdomain {}cache_peer 10.0.0.1", "a ".repeat(4096)),
        &format!("#{}", "x".repeat(8192)),
        // Cut or seen as blanks by Squid.
        "via off\rcache_peer x",
        "via\u{b}off",
        "acl\u{c}never dst 1.1.1.1",
        // Not blanks to Squid.
        "acl\u{a0}never dst 1.1.1.1",
        "\u{feff}via off",
        "ACL never src all",
        "\"acl\" never src all",
    ] {
        assert!(refusal(text).is_some(), "{text:?}");
    }
    assert_eq!(refusal(&format!("#{}", "x".repeat(MOST_LINE - 1))), None);
}

#[test]
fn an_administrator_can_allow_more() {
    let further = ["cache_peer".to_owned()];
    assert!(check("cache_peer 10.0.0.1 parent 3128 0 default", &further).is_ok());
    assert!(check("never_direct allow all", &further).is_err());
}

#[test]
fn nothing_of_a_line_but_a_directives_name_is_repeated() {
    let message = refusal("S3CRET-hunter2 value").unwrap();
    assert!(!message.contains("hunter2"), "{message}");
    let message = refusal("cache_peer hunter2").unwrap();
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn the_list_of_directives_is_sorted_and_names_no_directive_twice() {
    assert!(ALLOWED.is_sorted_by(|a, b| a < b));
}
