//! One probe: a request through the proxy, over a connection made for it alone.
//!
//! - `https://` URL: CONNECT, TLS inside the tunnel, the request inside that. `http://` URL: absolute-form.
//! - **Never a direct connection** to the probe target, never a proxy from the environment, never a kept
//!   connection, never a followed redirect: each of these would report a dead proxy as alive.
//! - Credentials of the proxy go into CONNECT or the absolute-form request, never into the tunnel.
//! - Hundreds are under way at once: what only some of them need is boxed.
//! - Every answer is foreign input: heads are capped, bodies are cut and thrown away, and one time limit
//!   covers the whole probe.

mod address;
mod basic;
mod budget;
mod connect;
mod exchange;
mod failure;
mod tls;
mod url;

use std::fmt;
use std::sync::Arc;

use egress_proxies_core::crd::Mode;
use egress_proxies_core::facts::{Auth, Machine, ProbePlan, ProxyFacts};
use egress_proxies_core::health::Outcome;
use egress_proxies_core::time::Moment;
use tokio::net::TcpStream;

pub use self::address::{ApiServerAddresses, EndpointPolicy, Resolve, SystemResolver};
use self::budget::{Budget, Stage};
use self::exchange::Answer;
use self::failure::Failure;
use self::tls::TlsConfigs;
pub(super) use self::url::shown as shown_url;
use self::url::{ProbeUrl, Scheme};
use super::engine::Prober;
use crate::clock::SharedClock;

/// What one probe needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeTarget {
    /// Where the proxy listens.
    pub machine: Machine,
    /// External endpoints are chosen by tenants and are checked.
    pub mode: Mode,
    /// Credentials of the proxy.
    pub auth: Auth,
    /// What to ask for.
    pub plan: ProbePlan,
}

impl ProbeTarget {
    /// The target of a Proxy; none if it has no machine, no probe, or is being deleted.
    pub fn of(facts: &ProxyFacts) -> Option<Self> {
        let (Some(machine), Some(plan), false) = (&facts.machine, &facts.probe, facts.deleting) else {
            return None;
        };
        let auth = facts.auth.clone();
        Some(Self { machine: machine.clone(), mode: facts.mode, auth, plan: plan.clone() })
    }
}

/// Probes over the network.
pub struct HttpProber {
    clock: SharedClock,
    policy: EndpointPolicy,
    resolver: Arc<dyn Resolve>,
    tls: TlsConfigs,
}

impl fmt::Debug for HttpProber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpProber").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl HttpProber {
    /// A prober; `resolver` finds the addresses of proxies that are given by name.
    pub fn new(clock: SharedClock, policy: EndpointPolicy, resolver: Arc<dyn Resolve>) -> Self {
        Self { clock, policy, resolver, tls: TlsConfigs::new() }
    }

    /// When the head of a good answer was there, or why there was none.
    async fn attempt(&self, target: &ProbeTarget) -> Result<Moment, Failure> {
        let plan = &target.plan;
        let url = ProbeUrl::parse(&plan.url)?;
        let budget = Budget::start(plan.timeout);

        let addresses = address::of_proxy(target, &self.policy, self.resolver.as_ref());
        let addresses = budget.spend(Stage::Resolve, addresses).await?;
        let stream = budget.spend(Stage::Connect, address::connect(&addresses, plan.timeout)).await?;
        let (answer, head_at) = match url.scheme {
            Scheme::Http => {
                let request = exchange::through_proxy(&url, &target.auth)?;
                let exchanged = Box::pin(exchange::exchange(stream, request, &self.clock));
                let (answer, head_at) = budget.spend(Stage::Answer, exchanged).await?;
                exchange::refuse_proxys_own(&answer, &target.auth)?;
                (answer, head_at)
            }
            Scheme::Https => Box::pin(self.through_tunnel(target, &url, stream, &budget)).await?,
        };
        exchange::expect_status(&answer, &plan.expected_status, url.scheme)?;
        Ok(head_at)
    }

    async fn through_tunnel(
        &self,
        target: &ProbeTarget,
        url: &ProbeUrl,
        stream: TcpStream,
        budget: &Budget,
    ) -> Result<(Answer, Moment), Failure> {
        let ca_pem = target.plan.ca_pem.as_ref();
        let tunnel = budget.spend(Stage::Tunnel, connect::open(stream, url, &target.auth)).await?;
        // Only now: certificates that cannot be used must not hide that the proxy does not answer.
        let config = self.tls.get(ca_pem, target.plan.insecure_skip_verify)?;
        let stream = budget.spend(Stage::Tls, Box::pin(tls::handshake(config, url, ca_pem, tunnel))).await?;
        let request = exchange::in_tunnel(url)?;
        budget.spend(Stage::Answer, Box::pin(exchange::exchange(stream, request, &self.clock))).await
    }
}

impl Prober for HttpProber {
    async fn probe(&self, target: ProbeTarget) -> Outcome {
        let started = self.clock.now().mono;
        match self.attempt(&target).await {
            Ok(head_at) => Outcome::Passed { latency: head_at.since(started) },
            Err(Failure { reason, message }) => Outcome::Failed { reason, message },
        }
    }
}

#[cfg(test)]
mod tests;
