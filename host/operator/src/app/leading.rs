//! This process in the leader election: how it takes part, for how long, and how it stops.
//!
//! Everything runs beside the election, the last drain included: a process that no longer takes part may not
//! act, and one that gave its lead up has nothing under way.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use uuid::Uuid;

use super::cluster::Cluster;
use crate::clock::BootClock;
use crate::config::{LeaderElection, Settings};
use crate::kubernetes_client;
use crate::leader::{Election, ElectionError, ElectionSetup};
use crate::leadership::Leadership;

/// Namespace of the pod that a process runs in; no such file outside of one.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// Where `deploy/base` puts the operator.
const DEFAULT_NAMESPACE: &str = "egress-proxies-operator-system";

/// Takes part in the election, or is alone.
#[derive(Debug)]
pub(super) struct Leading {
    election: Option<Election>,
}

impl Leading {
    /// Nothing is asked before something runs beside it.
    pub(super) fn new(settings: &Settings, cluster: &Cluster) -> anyhow::Result<Self> {
        if !settings.leader.leader_elect {
            tracing::warn!(
                "--leader-elect=false: nothing keeps a second operator from acting at the same time"
            );
            return Ok(Self { election: None });
        }
        let client = kubernetes_client::client(cluster.config.clone())
            .context("no client for the leader election could be made")?;
        let setup = ElectionSetup {
            client,
            namespace: namespace(&settings.leader, Path::new(POD_NAMESPACE)),
            name: settings.leader.leader_lease_name.clone(),
            identity: format!("{}_{}", settings.instance, Uuid::new_v4()),
            timing: egress_proxies_core::leader::Timing::default(),
            clock: BootClock::start(),
        };
        Ok(Self { election: Some(Election::new(setup)) })
    }

    /// What the rooms that act are told.
    pub(super) fn leadership(&self) -> Leadership {
        self.election.as_ref().map_or_else(Leadership::alone, Election::leadership)
    }

    /// Runs something for as long as this process may go on. It is dropped, unfinished, when that is over.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ElectionError> {
        let Some(election) = &mut self.election else { return Ok(work.await) };
        tokio::select! {
            biased;
            lost = election.run() => Err(lost),
            done = work => Ok(done),
        }
    }

    /// Lets the next one lead at once.
    pub(super) async fn release(self) {
        if let Some(election) = self.election {
            election.release().await;
        }
    }
}

fn namespace(settings: &LeaderElection, pod: &Path) -> String {
    let named = settings.leader_lease_namespace.clone();
    if !named.is_empty() {
        return named;
    }
    let of_the_pod = std::fs::read_to_string(pod).unwrap_or_default().trim().to_owned();
    if of_the_pod.is_empty() { DEFAULT_NAMESPACE.to_owned() } else { of_the_pod }
}

/// Whether this replica keeps the leases: it leads, and its fleet was read since it was elected.
pub(super) fn keeps_leases(
    leadership: &Leadership,
    acting: tokio::sync::watch::Receiver<bool>,
) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let may_act = Arc::clone(&leadership.may_act);
    Arc::new(move || *acting.borrow() && may_act())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_is_in_the_namespace_that_was_named_or_of_the_pod_or_the_usual_one() {
        let settings = |named: &str| LeaderElection {
            leader_elect: true,
            leader_lease_namespace: named.to_owned(),
            leader_lease_name: "egress-proxies-operator".to_owned(),
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("namespace");
        assert_eq!(namespace(&settings(""), &file), DEFAULT_NAMESPACE);
        std::fs::write(&file, "fleet\n").unwrap();
        assert_eq!(namespace(&settings(""), &file), "fleet");
        assert_eq!(namespace(&settings("named"), &file), "named");
    }
}
