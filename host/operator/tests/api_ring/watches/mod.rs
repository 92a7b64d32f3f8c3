//! Watches that heal: whatever happens to the connection, to the API server or to etcd, the operator catches up
//! without a restart and without a burst of requests; deletions that fell into the gap are acted upon, nothing
//! is made twice, and no healthy Proxy is demoted.

mod half_open;
mod power;
mod relay;
mod restarts;
mod throttled;

use std::time::Duration;

use kube::runtime::wait::await_condition;

use super::operator::{Bench, is_ready, managed};

/// Three Proxies that are Ready: one that must stay so, and one that will be deleted.
async fn with_two_ready(bench: &Bench) {
    for name in ["stays", "goes"] {
        bench.create(name, managed()).await;
    }
    for name in ["stays", "goes"] {
        bench.until_ready(name).await;
    }
}

/// Panics as soon as this Proxy is not Ready.
async fn stays_ready(bench: &Bench, name: &str) {
    loop {
        let demoted =
            await_condition(bench.proxies(), name, |object: Option<&egress_proxies_core::crd::Proxy>| {
                object.is_some_and(|proxy| !is_ready(proxy))
            });
        match demoted.await {
            Ok(proxy) => panic!("demoted: {:?}", proxy.map(|it| it.status)),
            // The server is away.
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}
