//! What is shown of each provider: for `/debug/providers`, logs and people. Holds no secrets, since a
//! providers config has none.

use egress_proxies_core::ids::ProviderName;
use serde::Serialize;

use crate::config::{Limits, ProviderConfig, Source};
use crate::convert::Report;
use crate::gate::Policy;
use crate::load::{LoadFault, Loaded};

/// State of one provider instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ProviderState {
    /// Being read, compiled or tried.
    Loading,
    /// Takes calls.
    Ready,
    /// Could not be loaded.
    Failed,
}

/// One provider instance as it is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderReport {
    /// Name in the providers config.
    pub name: ProviderName,
    /// How it is.
    pub state: ProviderState,
    /// Where loading stopped, a constant word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<&'static str>,
    /// Why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where its component comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Bounds of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// New machines are refused.
    pub delete_only: bool,
    /// What it may reach, as lines of the providers config.
    pub egress: Vec<String>,
    /// What is known once it is ready.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyReport>,
}

/// What a ready provider says of itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyReport {
    /// `sha256:<hex>` of the component.
    pub digest: String,
    /// Its own name.
    pub provider: String,
    /// Its own version.
    pub version: String,
    /// One line about it.
    pub summary: String,
    /// Version of the contract that it was built against.
    pub contract: String,
    /// What this config can reach.
    pub scope: String,
    /// Lines of the providers config that would grant what it asks for and does not have.
    pub missing_grants: Vec<String>,
    /// What it says about its config.
    pub warnings: Vec<String>,
}

impl ProviderReport {
    /// Of an entry whose config is good.
    pub(crate) fn loading(name: &ProviderName, config: &ProviderConfig) -> Self {
        Self {
            name: name.clone(),
            state: ProviderState::Loading,
            stage: None,
            reason: None,
            source: Some(config.source.clone()),
            limits: Some(config.limits),
            delete_only: config.settings.delete_only,
            egress: granted(config),
            ready: None,
        }
    }

    /// Of an entry whose config is not.
    pub(crate) fn faulty(name: &ProviderName, fault: &LoadFault) -> Self {
        Self {
            name: name.clone(),
            state: ProviderState::Failed,
            stage: Some(fault.stage.label()),
            reason: Some(fault.reason.clone()),
            source: None,
            limits: None,
            delete_only: false,
            egress: Vec::new(),
            ready: None,
        }
    }

    pub(crate) fn fail(&mut self, fault: &LoadFault) {
        self.state = ProviderState::Failed;
        self.stage = Some(fault.stage.label());
        self.reason = Some(fault.reason.clone());
    }

    pub(crate) fn become_ready(&mut self, loaded: &Loaded, report: &Report, policy: &Policy) {
        self.state = ProviderState::Ready;
        (self.stage, self.reason) = (None, None);
        self.ready = Some(ReadyReport {
            digest: loaded.digest.clone(),
            provider: loaded.description.name.clone(),
            version: loaded.description.version.clone(),
            summary: loaded.description.summary.clone(),
            contract: loaded.contract.clone(),
            scope: report.scope.clone(),
            missing_grants: policy.missing_grants(),
            warnings: report.warnings.clone(),
        });
    }
}

fn granted(config: &ProviderConfig) -> Vec<String> {
    let cluster = config.kubernetes.iter().map(|grant| {
        let resources: Vec<&str> = grant.resources.iter().map(|resource| resource.plural()).collect();
        format!(
            "kubernetes: {{ namespace: {}, serviceAccount: {}, resources: [{}] }}",
            grant.namespace,
            grant.service_account,
            resources.join(", ")
        )
    });
    let rules = config
        .egress
        .iter()
        .map(|rule| format!("{} [{}] {}", rule.origin, rule.methods.join(", "), rule.path_prefix));
    cluster.chain(rules).collect()
}
