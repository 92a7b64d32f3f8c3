//! Where the Kubernetes API server is: External endpoints there are not probed.
//!
//! It has more than one name: the address that this process uses, the ClusterIP of the Service `kubernetes`,
//! and the addresses behind that Service. All of them are known before the first probe, or the process does
//! not start: a guard that knows nothing would let everything pass. They are looked up again while it runs;
//! what was known stays known when that fails.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::health::ApiServerAddresses;

/// Between two look-ups: machines of a control plane are exchanged now and then.
const PERIOD: Duration = Duration::from_mins(1);
/// Time for the resolver, which has no limit of its own.
const RESOLVE: Duration = Duration::from_secs(5);
/// The Service of the API server and its slice, and where they are, in every cluster.
const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";

/// Knows the addresses.
pub(super) struct ApiServer {
    client: Client,
    host: String,
    known: watch::Sender<ApiServerAddresses>,
}

impl ApiServer {
    /// Looks them up; `host` is how this process reaches the API server, without brackets.
    pub(super) async fn find(client: Client, host: String) -> anyhow::Result<Self> {
        let server = Self { client, host, known: watch::channel(Arc::default()).0 };
        let found = server.look_up().await.context(
            "the addresses of the API server, which no probe may reach, could not be found: may the operator \
             get the Service and the EndpointSlice 'kubernetes' in the namespace 'default', as in \
             deploy/base/2-rbac.yaml? Or pass --allow-local-endpoints, if nobody else may create Proxies",
        )?;
        server.known.send_replace(Arc::new(found));
        Ok(server)
    }

    pub(super) fn addresses(&self) -> watch::Receiver<ApiServerAddresses> {
        self.known.subscribe()
    }

    /// Keeps them up to date until told to end.
    pub(super) async fn follow(self, stop: CancellationToken) {
        let mut failing = false;
        while stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
            let Some(found) = stop.run_until_cancelled(self.look_up()).await else { return };
            match found {
                Ok(found) => {
                    failing = false;
                    self.publish(found);
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(
                            error = format!("{error:#}"),
                            "the addresses of the API server stay as they were known"
                        );
                    }
                    failing = true;
                }
            }
        }
    }

    fn publish(&self, found: BTreeSet<IpAddr>) {
        self.known.send_if_modified(|known| {
            let changed = **known != found;
            if changed {
                tracing::info!(addresses = ?found, "the API server has other addresses");
                *known = Arc::new(found);
            }
            changed
        });
    }

    async fn look_up(&self) -> anyhow::Result<BTreeSet<IpAddr>> {
        let service = Api::<Service>::namespaced(self.client.clone(), NAMESPACE);
        let service = service.get_opt(NAME).await.context("the Service was not read")?;
        let slice = Api::<EndpointSlice>::namespaced(self.client.clone(), NAMESPACE);
        let slice = slice.get_opt(NAME).await.context("the EndpointSlice was not read")?;
        let mut found = resolve(&self.host).await?;
        found.extend(service.iter().flat_map(cluster_ips));
        found.extend(slice.iter().flat_map(endpoints));
        Ok(found)
    }
}

async fn resolve(host: &str) -> anyhow::Result<BTreeSet<IpAddr>> {
    let asked = tokio::net::lookup_host((host, 443));
    let found = tokio::time::timeout(RESOLVE, asked)
        .await
        .with_context(|| format!("the name {host} was not resolved within {} s", RESOLVE.as_secs()))?
        .with_context(|| format!("the name {host} was not resolved"))?;
    Ok(found.map(|address| address.ip()).collect())
}

fn cluster_ips(service: &Service) -> Vec<IpAddr> {
    let addresses =
        service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
    addresses.filter_map(|address| address.parse().ok()).collect()
}

fn endpoints(slice: &EndpointSlice) -> Vec<IpAddr> {
    let addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| address.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    type Answers = Arc<Mutex<[(u16, Value); 2]>>;

    fn service(address: &str) -> (u16, Value) {
        (200, json!({"spec": {"clusterIP": address, "clusterIPs": [address, "fd00::1"]}}))
    }

    fn slice(addresses: &[&str]) -> (u16, Value) {
        (200, json!({"addressType": "IPv4", "endpoints": [{"addresses": addresses}]}))
    }

    fn status(code: u16) -> (u16, Value) {
        let reason = if code == 404 { "NotFound" } else { "Forbidden" };
        (
            code,
            json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason}),
        )
    }

    /// A cluster that answers for the Service and the slice with these.
    fn cluster(answers: &Answers) -> Client {
        let answers = Arc::clone(answers);
        let server = tower::service_fn(move |request: Request<Body>| {
            let [service, slice] = answers.lock().unwrap().clone();
            let (code, body) = match request.uri().path() {
                "/api/v1/namespaces/default/services/kubernetes" => service,
                "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes" => slice,
                other => panic!("asked for {other}"),
            };
            let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        Client::new(server, "default")
    }

    fn set(addresses: &[&str]) -> BTreeSet<IpAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn all_ways_to_the_api_server_are_known() {
        for (host, answers, expected) in [
            (
                "192.0.2.1",
                [service("10.96.0.1"), slice(&["192.0.2.7", "192.0.2.8"])],
                &["192.0.2.1", "10.96.0.1", "fd00::1", "192.0.2.7", "192.0.2.8"][..],
            ),
            ("fd00::9", [status(404), status(404)], &["fd00::9"]),
            ("192.0.2.1", [service("None"), slice(&[])], &["192.0.2.1", "fd00::1"]),
        ] {
            let server = ApiServer::find(cluster(&Arc::new(Mutex::new(answers))), host.to_owned()).await;
            assert_eq!(**server.unwrap().addresses().borrow(), set(expected), "{host}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_found_ends_the_start_and_says_which_rights_are_needed() {
        for (host, answers, expected) in [
            ("192.0.2.1", [status(403), slice(&[])], "the Service was not read"),
            ("192.0.2.1", [service("10.96.0.1"), status(403)], "the EndpointSlice was not read"),
            ("name.invalid", [service("10.96.0.1"), slice(&[])], "name.invalid was not resolved"),
        ] {
            let found = ApiServer::find(cluster(&Arc::new(Mutex::new(answers))), host.to_owned()).await;
            let said = format!("{:#}", found.err().unwrap());
            for part in ["deploy/base/2-rbac.yaml", "--allow-local-endpoints", expected] {
                assert!(said.contains(part), "{said}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_looked_up_again_and_stay_known_when_that_fails() {
        let answers: Answers = Arc::new(Mutex::new([service("10.96.0.1"), slice(&["192.0.2.7"])]));
        let server = ApiServer::find(cluster(&answers), "192.0.2.1".to_owned()).await.unwrap();
        let mut addresses = server.addresses();
        let stop = CancellationToken::new();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(server.follow(stop.clone()));
        *answers.lock().unwrap() = [status(500), status(500)];
        tokio::time::sleep(PERIOD * 3).await;
        assert!(!addresses.has_changed().unwrap());
        *answers.lock().unwrap() = [service("10.96.0.1"), slice(&["192.0.2.8"])];
        addresses.changed().await.unwrap();
        assert_eq!(**addresses.borrow(), set(&["192.0.2.1", "10.96.0.1", "fd00::1", "192.0.2.8"]));
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }
}
