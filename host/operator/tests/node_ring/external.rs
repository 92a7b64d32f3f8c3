//! Proxies that exist elsewhere. "Elsewhere" is a Managed Squid of another Proxy.

use super::cluster::condition;
use super::operator::ring;

#[test]
fn an_external_proxy_is_probed_and_turns_unhealthy_when_it_goes_away() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("external");
    space.proxy("elsewhere", "  mode: Managed\n  provider: kubernetes\n");
    let address =
        space.wait("elsewhere", "Ready", "True")["status"]["ip"].as_str().expect("an address").to_owned();
    let check =
        format!("{{ url: \"{}\", intervalSeconds: 1, timeoutSeconds: 1, failureThreshold: 2 }}", ring.page);
    space.proxy(
        "one",
        &format!("  mode: External\n  endpoint: {{ host: {address}, port: 3128 }}\n  healthCheck: {check}\n"),
    );
    let proxy = space.wait("one", "Ready", "True");
    assert_eq!(proxy["status"]["ip"], address.as_str());
    assert_eq!(condition(&proxy, "Provisioned").1, "ExternalEndpoint");
    assert!(proxy["metadata"]["finalizers"].is_null(), "an External Proxy never blocks its own deletion");

    ring.cluster.kubectl(&["-n", &space.name, "delete", "px", "elsewhere", "--timeout=100s"]);
    let proxy = space.wait("one", "Healthy", "False");
    assert_eq!(proxy["status"]["phase"], "Unhealthy");
    let (_, reason, message) = condition(&proxy, "Healthy");
    assert!(["Refused", "Timeout", "Unreachable"].contains(&reason), "{reason}: {message}");
}
