//! The three listeners: probes, which answer from the beginning, discovery and leases, and metrics.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};

use super::supervisor::{Ending, Supervisor};
use crate::config;
use crate::http::ops::{self, Gate, JsonSource};
use crate::http::{self, Api, Limits};
use crate::metrics::Metrics;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Bound, not yet listening: while the start waits for the cluster, connections are refused at once instead
/// of being taken and not answered.
pub(super) struct Servers {
    discovery: Bound,
    metrics: Bound,
}

/// The one that listens while the start waits: a process that waits must not be killed for it.
pub(super) struct ProbeServer(Bound);

struct Bound {
    flag: &'static str,
    address: SocketAddr,
    socket: TcpSocket,
}

/// What the operational endpoints show.
pub(super) struct Pages {
    pub(super) metrics: Arc<Metrics>,
    pub(super) providers: JsonSource,
    pub(super) suspicions: JsonSource,
}

impl Servers {
    pub(super) fn bind(addresses: &config::Servers) -> anyhow::Result<(Self, ProbeServer)> {
        let pages = Self {
            discovery: Bound::to("--discovery-address", addresses.discovery_address)?,
            metrics: Bound::to("--metrics-address", addresses.metrics_address)?,
        };
        Ok((pages, ProbeServer(Bound::to("--probe-address", addresses.probe_address)?)))
    }

    pub(super) fn spawn(
        self,
        tasks: &mut Supervisor,
        ending: &Ending,
        api: Api,
        pages: Pages,
    ) -> anyhow::Result<()> {
        let Pages { metrics, providers, suspicions } = pages;
        let text = Arc::new(move || metrics.text().map_err(|error| error.to_string()));
        let routers = [
            ("discovery API", self.discovery, http::router(api)),
            (
                "metrics server",
                self.metrics,
                ops::metrics(ops::Sources { metrics: text, providers, suspicions }),
            ),
        ];
        for (name, bound, router) in routers {
            let serving = http::serve(bound.listen(name)?, router, Limits::default(), ending.stop.clone());
            tasks.spawn(name, async move { Ok(serving.await?) });
        }
        Ok(())
    }
}

impl ProbeServer {
    pub(super) fn spawn(
        self,
        tasks: &mut Supervisor,
        ending: &Ending,
        gates: Vec<Gate>,
    ) -> anyhow::Result<()> {
        let name = "probe server";
        let listener = self.0.listen(name)?;
        let serving = http::serve(listener, ops::probes(gates), Limits::default(), ending.stop.clone());
        tasks.spawn(name, async move { Ok(serving.await?) });
        Ok(())
    }
}

impl Bound {
    fn to(flag: &'static str, address: SocketAddr) -> anyhow::Result<Self> {
        let bound = match bind(address) {
            // A machine without IPv6: every address means every IPv4 address.
            Err(error)
                if address.ip().is_unspecified()
                    && address.is_ipv6()
                    && matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::AddrNotAvailable) =>
            {
                bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
            }
            other => other,
        };
        let socket = bound.with_context(|| cannot_listen(flag, address))?;
        Ok(Self { flag, address, socket })
    }

    fn listen(self, server: &str) -> anyhow::Result<TcpListener> {
        let Self { flag, address, socket } = self;
        let listener = socket.listen(BACKLOG).with_context(|| cannot_listen(flag, address))?;
        let address = listener.local_addr().with_context(|| cannot_listen(flag, address))?;
        tracing::info!(server, %address, "listening");
        Ok(listener)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn cannot_listen(flag: &str, address: SocketAddr) -> String {
    format!("cannot listen on {address}; choose another address with {flag}")
}
