//! What a Pod, as the API server shows it, says about the machine.
//!
//! Pure. The table is in `docs/provider-kubernetes.md`, a row per line of the tests. Reads only what it
//! needs and takes every field as optional: an API server may leave out any of them.

use std::collections::BTreeMap;

use egress_proxies_provider_sdk::failure::{self, quote};
use egress_proxies_provider_sdk::model::{Endpoint, Failure, Instance, InstanceState, Reason};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::manifest::{GATE, MAIN_CONFIG};
use crate::tags;

/// A pod that is still gated after this long is a rest: no create call lasts longer than a minute, and
/// the clocks of operator and API server may differ a little.
const CUT_OFF: SignedDuration = SignedDuration::from_secs(90);

/// A pod that is still there this long after its grace period is on a node that will not confirm.
const OVERDUE: SignedDuration = SignedDuration::from_mins(2);

macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub(crate) struct $name { $($(#[$attribute])* pub(crate) $field: $type),* }
    };
}

object!(
    /// A Pod.
    Pod { metadata: Metadata, spec: Spec, status: Status }
);
object!(Metadata {
    name: String,
    namespace: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
});
object!(Spec { node_name: Option<String>, scheduling_gates: Vec<Gate>, containers: Vec<Container> });
object!(Gate { name: String });
object!(Container { image: String, ports: Vec<ContainerPort> });
object!(ContainerPort { container_port: u16 });
object!(Status {
    phase: String,
    reason: String,
    message: String,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<PodIp>,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
});
object!(PodIp { ip: String });
object!(Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
});
object!(ContainerStatus { ready: bool, restart_count: u32, state: ContainerState });
object!(ContainerState { waiting: Option<Waiting> });
object!(Waiting { reason: String, message: String });

impl Pod {
    /// The id of the machine: the namespace is in it, so that one from elsewhere is recognised.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    pub(crate) fn tags(&self) -> Vec<egress_proxies_provider_sdk::model::Pair> {
        tags::read(&self.metadata.labels, &self.metadata.annotations)
    }

    pub(crate) fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// It should have gone a while ago. The moment of the deletion includes the grace period.
    pub(crate) fn is_overdue(&self, now: Timestamp) -> bool {
        let due = self.metadata.deletion_timestamp.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        due.is_some_and(|due| now.duration_since(due) > OVERDUE)
    }

    /// Its create call has not come to an end.
    pub(crate) fn is_gated(&self) -> bool {
        self.spec.scheduling_gates.iter().any(|gate| gate.name == GATE)
    }

    /// What its Squid is configured with.
    pub(crate) fn main_config(&self) -> Option<&str> {
        self.metadata.annotations.get(MAIN_CONFIG).map(String::as_str)
    }

    /// As a machine.
    pub(crate) fn instance(&self, now: Timestamp) -> Instance {
        let (state, problem) = self.state(now);
        Instance {
            id: self.id(),
            name: self.metadata.name.clone(),
            incarnation: Some(self.metadata.uid.clone()),
            state,
            endpoints: self.endpoints(),
            created_at: self.metadata.creation_timestamp.clone(),
            location: self.spec.node_name.clone(),
            problem,
            tags: self.tags(),
            extra: Vec::new(),
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let port = self
            .spec
            .containers
            .iter()
            .flat_map(|container| &container.ports)
            .map(|port| port.container_port);
        let port = port.into_iter().next().unwrap_or(0);
        let first = self.status.pod_ip.iter();
        let others = self
            .status
            .pod_ips
            .iter()
            .map(|entry| &entry.ip)
            .filter(|ip| Some(*ip) != self.status.pod_ip.as_ref());
        let endpoint = |address: &String| Endpoint {
            address: address.clone(),
            port,
            protocol: "http".to_owned(),
            scope: "private".to_owned(),
            credentials: None,
            extra: Vec::new(),
        };
        first.chain(others).filter(|address| !address.is_empty()).map(endpoint).collect()
    }

    fn state(&self, now: Timestamp) -> (InstanceState, Option<Failure>) {
        if self.is_being_deleted() {
            return (InstanceState::Deleting, None);
        }
        if self.is_gated() {
            return self.gated(now);
        }
        match self.status.phase.as_str() {
            "" | "Pending" => (InstanceState::Provisioning, self.pending_problem()),
            "Running" => self.running(),
            "Succeeded" => (InstanceState::Stopped, Some(self.ended())),
            "Failed" => self.failed(),
            other => (InstanceState::Other(quote(other).to_lowercase()), None),
        }
    }

    fn gated(&self, now: Timestamp) -> (InstanceState, Option<Failure>) {
        let created =
            self.metadata.creation_timestamp.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let is_rest = created.is_some_and(|created| now.duration_since(created) > CUT_OFF);
        if is_rest {
            let message =
                "the call that made this pod was cut off before its Secret was there; it will be made anew";
            (InstanceState::Failed, Some(failure::new(Reason::Transient, message)))
        } else {
            (InstanceState::Provisioning, None)
        }
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    fn waiting(&self) -> Option<&Waiting> {
        self.status.container_statuses.iter().find_map(|status| status.state.waiting.as_ref())
    }

    /// Containers say ready, the pod does not: its node stopped reporting.
    fn is_lost(&self) -> bool {
        let said = &self.status.container_statuses;
        let all_ready = !said.is_empty() && said.iter().all(|status| status.ready);
        self.status.reason == "NodeLost"
            || (all_ready && self.condition("Ready").is_some_and(|condition| condition.status != "True"))
    }

    fn running(&self) -> (InstanceState, Option<Failure>) {
        if self.is_lost() {
            let message =
                format!("node {} does not report", self.spec.node_name.as_deref().unwrap_or("unknown"));
            return (
                InstanceState::Other("unknown".to_owned()),
                Some(failure::new(Reason::Transient, message)),
            );
        }
        let containers = &self.status.container_statuses;
        let is_ready = !containers.is_empty() && containers.iter().all(|status| status.ready);
        if is_ready && self.status.pod_ip.is_some() {
            (InstanceState::Running, None)
        } else {
            (InstanceState::Provisioning, self.pending_problem())
        }
    }

    fn pending_problem(&self) -> Option<Failure> {
        let waiting = self.waiting().and_then(|waiting| self.waiting_problem(waiting));
        waiting.or_else(|| {
            let condition = self.condition("PodScheduled")?;
            (condition.reason == "Unschedulable").then(|| {
                let message = format!("no node takes the pod: {}", quote(&condition.message));
                coded(Reason::Capacity, &message, "Unschedulable")
            })
        })
    }

    fn waiting_problem(&self, waiting: &Waiting) -> Option<Failure> {
        let said = quote(&waiting.message);
        let (reason, message) = match waiting.reason.as_str() {
            // One text for the whole time: the kubelet says it in other words from try to try.
            "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "RegistryUnavailable" => {
                let image = self.spec.containers.first().map_or("", |container| container.image.as_str());
                let message = format!(
                    "the image {} cannot be pulled; see: kubectl describe pod -n {} {}",
                    quote(image),
                    self.metadata.namespace,
                    self.metadata.name
                );
                (Reason::Missing, message)
            }
            "InvalidImageName" => {
                (Reason::Invalid(String::new()), format!("not the name of an image: {said}"))
            }
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                (Reason::Other(waiting.reason.clone()), format!("the container cannot be started: {said}"))
            }
            // What it said may quote the user's own configuration, which is secret; the log has it.
            "CrashLoopBackOff" => {
                let message = format!(
                    "Squid ends again and again; see: kubectl logs -n {} {} --previous",
                    self.metadata.namespace, self.metadata.name
                );
                (Reason::Other(waiting.reason.clone()), message)
            }
            _ => return None,
        };
        Some(coded(reason, &message, &waiting.reason))
    }

    fn ended(&self) -> Failure {
        let code = if self.status.reason.is_empty() { "Ended" } else { self.status.reason.as_str() };
        coded(
            Reason::Other(quote(code)),
            &format!("the pod has ended: {code} {}", quote(&self.status.message)),
            code,
        )
    }

    /// A pod that ran and was thrown out is `stopped`, to be replaced at once; one that its node never
    /// took is `failed`, to be tried again slowly.
    fn failed(&self) -> (InstanceState, Option<Failure>) {
        let thrown_out =
            matches!(
                self.status.reason.as_str(),
                "Evicted" | "Preempting" | "Shutdown" | "NodeShutdown" | "Terminated" | "NodeLost"
            ) || self.condition("DisruptionTarget").is_some_and(|condition| condition.status == "True");
        let state = if thrown_out { InstanceState::Stopped } else { InstanceState::Failed };
        (state, Some(self.ended()))
    }
}

fn coded(reason: Reason, message: &str, code: &str) -> Failure {
    Failure { upstream_code: Some(quote(code)), ..failure::new(reason, message.trim_end()) }
}

#[cfg(test)]
mod tests;
