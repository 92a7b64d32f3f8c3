//! Whom Squid serves and where it goes: by default, and as a Proxy's `parameters` say.

use super::cluster::{condition, curl};
use super::operator::ring;

const MANAGED: &str = "  mode: Managed\n  provider: kubernetes\n";

#[test]
fn squid_serves_the_clients_and_ports_that_its_proxy_lists_and_no_others() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("rules");
    let quick = "intervalSeconds: 2, timeoutSeconds: 2, failureThreshold: 1";
    // Begun first: its pod comes up while the other one is tried.
    space.proxy(
        "closed",
        &format!(
            "{MANAGED}  parameters: {{ allowedClients: [192.0.2.0/24] }}\n  healthCheck: {{ {quick} }}\n"
        ),
    );
    space.proxy("one", MANAGED);
    let proxy = space.wait("one", "Ready", "True");
    let url = format!("http://{}:3128", proxy["status"]["ip"].as_str().expect("an address"));
    // The API server has a page behind TLS on a port that is not for the web.
    let server = ring.cluster.api_server();
    let page = format!("{server}/readyz");
    for target in ["https://192.0.2.1:25/", "https://192.0.2.1:22/", &page] {
        let refused = curl(&["-x", &url, target, "-v"]);
        assert!(refused.body.contains("HTTP/1.1 403"), "CONNECT {target}: {}", refused.body);
    }
    for target in ["http://127.0.0.1/", "http://169.254.169.254/"] {
        let refused = curl(&["-x", &url, target]);
        assert_eq!(refused.status, 403, "{target}: {}", refused.body);
    }

    // A probe to such a port is refused too, and the condition says who refused it.
    let check = format!("  healthCheck: {{ url: \"{page}\", insecureSkipVerify: true, {quick} }}\n");
    space.proxy("one", &format!("{MANAGED}{check}"));
    let denied = space.wait("one", "Healthy", "False");
    let (_, reason, message) = condition(&denied, "Healthy");
    assert_eq!(reason, "Denied", "{message}");
    assert!(message.contains("CONNECT with 403"), "{message}");
    assert_eq!(denied["status"]["incarnation"], proxy["status"]["incarnation"], "a probe is no new machine");

    // Listed, the port is served.
    let port = server.rsplit(':').next().expect("a port");
    space.proxy("one", &format!("{MANAGED}{check}  parameters: {{ connectPorts: [443, {port}] }}\n"));
    let open = space.wait_for_another("one", &proxy);
    let url = format!("http://{}:3128", open["status"]["ip"].as_str().expect("an address"));
    assert_eq!(curl(&["-k", "-x", &url, &page]).status, 200);

    // This machine is not among the clients of the other one.
    let closed = space.wait("closed", "Healthy", "False");
    let (_, reason, message) = condition(&closed, "Healthy");
    assert_eq!(reason, "Denied", "{message}");
    let url = format!("http://{}:3128", closed["status"]["ip"].as_str().expect("an address"));
    assert_eq!(curl(&["-x", &url, &ring.page]).status, 403);
}
