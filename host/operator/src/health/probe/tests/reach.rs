//! How the proxy itself is reached: addresses, names, refused endpoints, and no other way.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::Mode;
use egress_proxies_core::health::{Outcome, ProbeReason};
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::fakes::{FakeProxy, OK, OPENED, Probe, Target};
use crate::clock::SystemClock;
use crate::health::{ApiServerAddresses, EndpointPolicy, HttpProber, Prober, Resolve};

const URL: &str = "http://target.test/";

struct Names(Vec<SocketAddr>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, _host: &'a str, _port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async {
            if self.0.is_empty() { Err(io::Error::other("NXDOMAIN")) } else { Ok(self.0.clone()) }
        })
    }
}

async fn by_name(addresses: Vec<SocketAddr>, allow_local: bool, mode: Mode) -> Outcome {
    let mut probe = Probe::of("127.0.0.1:1".parse().unwrap(), URL);
    probe.target.machine.address = "proxy.example".to_owned();
    probe.target.mode = mode;
    let api_server = watch::channel(ApiServerAddresses::default()).1;
    let policy =
        if allow_local { EndpointPolicy::Everywhere } else { EndpointPolicy::NotLocal { api_server } };
    HttpProber::new(SystemClock::start(), policy, Arc::new(Names(addresses))).probe(probe.target).await
}

fn reason(outcome: &Outcome) -> Option<ProbeReason> {
    match outcome {
        Outcome::Passed { .. } => None,
        Outcome::Failed { reason, .. } => Some(*reason),
    }
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let message = Probe::of(address, URL).expect(ProbeReason::Refused).await;
    assert!(message.contains("nothing listens"), "{message}");
    assert!(!message.contains(&address.port().to_string()), "{message}");
}

#[tokio::test]
async fn a_proxy_that_accepts_and_says_nothing_is_a_time_out_for_each_kind_of_url() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for url in [URL, "https://target.test/"] {
        let probe = Probe::of(address, url).with_timeout(Duration::from_millis(150));
        let message = probe.expect(ProbeReason::Timeout).await;
        assert!(message.contains("0.15 s"), "{message}");
    }
}

#[tokio::test]
async fn a_name_is_resolved_and_the_next_address_is_tried() {
    let proxy = FakeProxy::saying(OK).await;
    let dead: SocketAddr = "127.0.0.1:1".parse().unwrap();
    assert_eq!(reason(&by_name(vec![dead, proxy.address], true, Mode::External).await), None);
    assert_eq!(reason(&by_name(vec![dead], true, Mode::External).await), Some(ProbeReason::Refused));
    assert_eq!(reason(&by_name(vec![], true, Mode::External).await), Some(ProbeReason::Dns));
}

#[tokio::test]
async fn an_external_name_that_leads_to_loopback_is_refused_before_any_connection() {
    let proxy = FakeProxy::saying(OK).await;
    let public: SocketAddr = "203.0.113.7:3128".parse().unwrap();
    let outcome = by_name(vec![public, proxy.address], false, Mode::External).await;
    assert_eq!(reason(&outcome), Some(ProbeReason::EndpointNotAllowed), "{outcome:?}");
    assert!(proxy.heads().is_empty());
}

/// The host checks the addresses that a provider says; a name shows where it leads only here.
#[tokio::test]
async fn the_name_of_a_machine_leads_where_its_provider_may_have_machines_or_nowhere() {
    let proxy = FakeProxy::saying(OK).await;
    let ask = async |addresses: Vec<&str>, networks: &[&str], allow_local: bool| {
        let mut probe = Probe::of(proxy.address, URL);
        probe.target.machine.address = "proxy.example".to_owned();
        probe.target.mode = Mode::Managed;
        probe.target.plan.networks = networks.iter().map(|net| net.parse().unwrap()).collect();
        let port = proxy.address.port();
        let addresses = addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect();
        let api_server = [IpAddr::from([127, 0, 0, 9])].into_iter().collect();
        let api_server = watch::channel(Arc::new(api_server)).1;
        let policy =
            if allow_local { EndpointPolicy::Everywhere } else { EndpointPolicy::NotLocal { api_server } };
        HttpProber::new(SystemClock::start(), policy, Arc::new(Names(addresses))).probe(probe.target).await
    };
    let here = ["127.0.0.0/8"];
    for allow_local in [false, true] {
        let outcome = ask(vec!["127.0.0.1"], &here, allow_local).await;
        assert_eq!(reason(&outcome), None, "{:?}", proxy.heads());
    }
    let asked = proxy.heads().len();
    for (addresses, networks) in [
        (vec!["127.0.0.1"], &[][..]),
        (vec!["127.0.0.1"], &["10.0.0.0/8"]),
        (vec!["169.254.169.254"], &here),
        (vec!["::ffff:169.254.169.254"], &here),
        (vec!["127.0.0.1", "169.254.169.254"], &here),
        (vec!["127.0.0.9"], &here),
    ] {
        for allow_local in [false, true] {
            if allow_local && addresses == ["127.0.0.9"] {
                continue; // where the API server is, is not known then
            }
            let outcome = ask(addresses.clone(), networks, allow_local).await;
            assert_eq!(reason(&outcome), Some(ProbeReason::EndpointNotAllowed), "{addresses:?}: {outcome:?}");
        }
    }
    assert_eq!(proxy.heads().len(), asked, "nothing was sent");
}

#[tokio::test]
async fn with_a_dead_proxy_the_target_is_never_asked_directly() {
    let target = FakeProxy::saying(OK).await;
    let dead: SocketAddr = "127.0.0.1:1".parse().unwrap();
    Probe::of(dead, &format!("http://{}/", target.address)).expect(ProbeReason::Refused).await;
    Probe::of(dead, &format!("https://{}/", target.address)).expect(ProbeReason::Refused).await;
    assert!(target.heads().is_empty());
}

/// Runs by itself, and again with the variables of a black hole set.
#[tokio::test]
async fn both_kinds_of_probe_pass_through_the_probed_proxy() {
    let plain = FakeProxy::saying(OK).await;
    Probe::of(plain.address, URL).expect_ok().await;
    let target = Target::named("target.test", OK);
    let tunnel = FakeProxy::tunnel(OPENED, target.clone()).await;
    Probe::of(tunnel.address, "https://target.test/").trusting(&target.ca_pem).expect_ok().await;
}

#[test]
fn proxies_from_the_environment_have_no_effect() {
    let name = "health::probe::tests::reach::both_kinds_of_probe_pass_through_the_probed_proxy";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", name]);
    for variable in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        again.env(variable, "http://127.0.0.1:1").env(variable.to_lowercase(), "http://127.0.0.1:1");
    }
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
