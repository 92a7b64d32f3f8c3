//! The three listeners: discovery and leases, metrics, probes.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;

use super::supervisor::{Ending, Supervisor};
use crate::config;
use crate::http::ops::{self, Gate, JsonSource};
use crate::http::{self, Api, Limits};
use crate::metrics::Metrics;

/// Bound, not yet serving.
pub(super) struct Servers {
    discovery: TcpListener,
    metrics: TcpListener,
    probes: TcpListener,
}

/// What the operational endpoints show.
pub(super) struct Pages {
    pub(super) metrics: Arc<Metrics>,
    pub(super) providers: JsonSource,
    pub(super) gates: Vec<Gate>,
}

impl Servers {
    pub(super) async fn bind(addresses: &config::Servers) -> anyhow::Result<Self> {
        Ok(Self {
            discovery: bind("--discovery-address", addresses.discovery_address).await?,
            metrics: bind("--metrics-address", addresses.metrics_address).await?,
            probes: bind("--probe-address", addresses.probe_address).await?,
        })
    }

    pub(super) fn spawn(self, tasks: &mut Supervisor, ending: &Ending, api: Api, pages: Pages) {
        let Pages { metrics, providers, gates } = pages;
        let text = Arc::new(move || metrics.text().map_err(|error| error.to_string()));
        let routers = [
            ("discovery API", self.discovery, http::router(api)),
            ("metrics server", self.metrics, ops::metrics(text, providers)),
            ("probe server", self.probes, ops::probes(gates)),
        ];
        for (name, listener, router) in routers {
            let serving = http::serve(listener, router, Limits::default(), ending.stop.clone());
            tasks.spawn(name, async move { Ok(serving.await?) });
        }
    }
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        // A machine without IPv6: every address means every IPv4 address.
        Err(error)
            if address.ip().is_unspecified()
                && address.is_ipv6()
                && matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::AddrNotAvailable) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        other => other,
    };
    bound.with_context(|| format!("cannot listen on {address}; choose another address with {flag}"))
}
