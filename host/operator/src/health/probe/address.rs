//! Where a proxy is, and whether probes may be sent there.
//!
//! External endpoints are chosen by whoever may create a Proxy. The operator often stands in a network where
//! it can reach more than they can, so an endpoint must not turn probes into a scanner of what is local to
//! the operator. A provider chooses the names of its machines, and is no more trusted. The name is resolved here, once, and the checked address is the one connected to.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::address::{self, led_to};
use egress_proxies_core::crd::Mode;
use futures::future::BoxFuture;
use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::ProbeTarget;
use super::failure::Failure;

/// Addresses tried of one name.
const MAX_ADDRESSES: usize = 4;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of `host`, with `port` filled in.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The resolver of the system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// All addresses of the Kubernetes API server.
pub type ApiServerAddresses = Arc<BTreeSet<IpAddr>>;

/// Where probes may be sent: External endpoints, and what of the API server is closed to a provider's machines.
#[derive(Debug, Clone)]
pub enum EndpointPolicy {
    /// External endpoints anywhere, and nobody knows where the API server is: for tests and single-machine
    /// set-ups. A provider's machines are where its networks are, all the same.
    Everywhere,
    /// Not to what is local to the operator.
    NotLocal {
        /// As they are known now; there must always be some.
        api_server: watch::Receiver<ApiServerAddresses>,
    },
}

impl EndpointPolicy {
    fn check(&self, address: IpAddr) -> Result<(), Failure> {
        let api_server = match self {
            Self::Everywhere => return Ok(()),
            Self::NotLocal { api_server } => api_server.borrow(),
        };
        let address = led_to(address);
        let what = if api_server.iter().any(|server| led_to(*server) == address) {
            "the Kubernetes API server"
        } else if is_metadata(address) {
            "a cloud metadata service"
        } else if is_local(address) {
            "a loopback, link-local, multicast or unspecified address"
        } else {
            return Ok(());
        };
        Err(Failure::endpoint_not_allowed(what))
    }

    /// A machine of a provider. The host has checked an address that the provider said; where a name leads
    /// shows here only, so it is judged by the same rule, with the provider's `networks`.
    fn check_machine(&self, ip: IpAddr, networks: Option<&[IpNet]>) -> Result<(), Failure> {
        let outside = networks.is_some_and(|networks| !address::allowed(ip, networks));
        // On one machine everything has the address of the API server.
        let is_api_server = match self {
            Self::Everywhere => false,
            Self::NotLocal { api_server } => {
                api_server.borrow().iter().any(|server| led_to(*server) == led_to(ip))
            }
        };
        if is_api_server && (networks.is_some() || !led_to(ip).is_loopback()) {
            return Err(Failure::machine_not_allowed("the Kubernetes API server"));
        }
        if outside {
            return Err(Failure::machine_not_allowed(
                "an address that is neither public nor in addressCidrs of its provider",
            ));
        }
        Ok(())
    }
}

fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            first == 0 || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local() || v6.is_multicast()
        }
    }
}

/// Metadata services: the usual one, Alibaba, Azure, Oracle; over IPv6 Amazon (metadata, pod identity),
/// Google, Scaleway.
fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(
            v4.octets(),
            [169, 254, 169, 254] | [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192]
        ),
        IpAddr::V6(v6) => matches!(
            v6.segments(),
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254 | 0x23]
                | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
                | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]
        ),
    }
}

/// The addresses of a proxy, all of them allowed.
pub(super) async fn of_proxy(
    target: &ProbeTarget,
    policy: &EndpointPolicy,
    resolver: &dyn Resolve,
) -> Result<Vec<SocketAddr>, Failure> {
    let machine = &target.machine;
    let addresses = match machine.address.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, machine.port)],
        Err(_) => resolver
            .resolve(&machine.address, machine.port)
            .await
            .map_err(|error| Failure::resolve(&error))?,
    };
    if addresses.is_empty() {
        return Err(Failure::dns());
    }
    match target.mode {
        Mode::External => addresses.iter().try_for_each(|address| policy.check(address.ip()))?,
        Mode::Managed => {
            let named = machine.address.parse::<IpAddr>().is_err();
            let networks = named.then_some(&*target.plan.networks);
            addresses.iter().try_for_each(|address| policy.check_machine(address.ip(), networks))?;
        }
    }
    Ok(addresses.into_iter().take(MAX_ADDRESSES).collect())
}

/// Connects to the first address that answers; each gets its share of the time.
pub(super) async fn connect(addresses: &[SocketAddr], time: Duration) -> Result<TcpStream, Failure> {
    let share = time / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut last = Failure::unreachable();
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|error| Failure::connect(&error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = Failure::connect(&error),
            Err(_) => last = Failure::timeout(super::Stage::Connect, time),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use egress_proxies_core::health::ProbeReason;

    use super::*;

    #[test]
    fn endpoints_local_to_the_operator_are_refused() {
        let (known, api_server) = watch::channel(addresses("10.96.0.1"));
        let policy = EndpointPolicy::NotLocal { api_server };
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "10.96.0.1",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:42::42",
            "::ffff:127.0.0.1",
            "::ffff:10.96.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "::127.0.0.1",
            "2001::80ff:fffe",
            "2002:7f00:1::",
        ] {
            let refused = policy.check(bad.parse().unwrap());
            assert!(refused.is_err_and(|f| f.reason == ProbeReason::EndpointNotAllowed), "{bad}");
            assert!(EndpointPolicy::Everywhere.check(bad.parse().unwrap()).is_ok(), "{bad}");
        }
        for good in ["10.0.0.1", "192.168.1.1", "203.0.113.9", "2001:db8::1", "fd12::1", "100.64.0.1"] {
            assert!(policy.check(good.parse().unwrap()).is_ok(), "{good}");
        }
        known.send_replace(addresses("10.0.0.1"));
        assert!(policy.check("10.0.0.1".parse().unwrap()).is_err(), "the API server has moved there");
        assert!(policy.check("10.96.0.1".parse().unwrap()).is_ok());
    }

    fn addresses(one: &str) -> ApiServerAddresses {
        Arc::new([one.parse().unwrap()].into_iter().collect())
    }
}
