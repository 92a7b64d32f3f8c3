//! The connection to the Kubernetes cluster, and what has to be known of it before anything starts.

use anyhow::Context;
use kube::{Client, Config};

use super::api_server::ApiServer;
use super::waiting::until_answered;
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
    /// Where no probe may go; none if probes may go everywhere.
    pub(super) api_server: Option<ApiServer>,
}

impl Cluster {
    /// Waits for an API server that is away, for as long as it takes.
    ///
    /// # Errors
    /// If the configuration is of no use, or the API server refuses what is asked.
    pub(super) async fn connect(settings: &Settings) -> anyhow::Result<Self> {
        let config = kubernetes_client::infer_config().await?;
        let client = kubernetes_client::client(config.clone())?;
        let server = config.cluster_url.to_string();
        let id = match &settings.cluster_id {
            Some(id) => id.clone(),
            None => until_answered(&server, async || {
                kubernetes_client::cluster_id(&client).await.with_context(|| {
                    format!(
                        "the namespace kube-system, whose uid names this cluster, could not be read from {server}: \
                         is the API server reachable, and may the operator get namespaces? Or pass --cluster-id"
                    )
                })
            })
            .await?,
        };
        let api_server = if settings.probes.allow_local_endpoints {
            None
        } else {
            let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            Some(until_answered(&server, async || ApiServer::find(client.clone(), host.clone()).await).await?)
        };
        Ok(Self { config, client, id, api_server })
    }
}
