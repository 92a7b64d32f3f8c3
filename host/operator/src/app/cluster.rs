//! The connection to the Kubernetes cluster, and what has to be known of it before anything starts.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context;
use kube::{Client, Config};

use crate::config::Settings;
use crate::kubernetes_client;

/// The cluster that the operator works in.
pub(super) struct Cluster {
    /// How it is reached; the providers' route is made from it.
    pub(super) config: Config,
    /// For the loops.
    pub(super) client: Client,
    /// Its name in the tags of machines.
    pub(super) id: String,
    /// Addresses of its API server, where no probe may go.
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Cluster {
    pub(super) async fn connect(settings: &Settings) -> anyhow::Result<Self> {
        let config = kubernetes_client::infer_config().await?;
        let client = kubernetes_client::client(config.clone())?;
        let id = match &settings.cluster_id {
            Some(id) => id.clone(),
            None => kubernetes_client::cluster_id(&client).await.with_context(|| {
                format!(
                    "the namespace kube-system, whose uid names this cluster, could not be read from {}: is the \
                     API server reachable, and may the operator get namespaces? Or pass --cluster-id",
                    config.cluster_url
                )
            })?,
        };
        let addresses = addresses(&config).await;
        Ok(Self { config, client, id, addresses })
    }
}

/// An unresolvable name gives none: then no probe can reach it by that name either.
async fn addresses(config: &Config) -> BTreeSet<IpAddr> {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    match tokio::net::lookup_host((host.as_str(), 443)).await {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(error) => {
            tracing::warn!(%host, %error, "the addresses of the API server are unknown; External endpoints are not checked against them");
            BTreeSet::new()
        }
    }
}
