//! What one provider instance is granted, and the words that say what is missing.

use std::sync::Arc;

use egress_proxies_core::ids::ProviderName;

use super::kubernetes::Access;
use super::plain::PlainClient;
use super::target;
use crate::config::{EgressRule, Origin};

/// Grants of one provider instance.
#[derive(Debug)]
pub(crate) struct Policy {
    provider: ProviderName,
    egress: Vec<EgressRule>,
    kubernetes: Option<Access>,
    client: PlainClient,
    needs: Vec<Need>,
}

/// Where a granted request goes.
#[derive(Debug)]
pub(crate) enum Route<'a> {
    /// To the API server of the operator's own cluster.
    Kubernetes(&'a Access),
    /// Out, as it is.
    Plain(&'a EgressRule),
}

/// A kind of request that the guest said it will make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) origin: Origin,
    pub(crate) methods: Vec<String>,
    pub(crate) path_prefix: String,
    pub(crate) auth: String,
    pub(crate) why: String,
}

impl Policy {
    pub(crate) fn new(
        provider: ProviderName,
        egress: Vec<EgressRule>,
        kubernetes: Option<Access>,
        client: PlainClient,
    ) -> Self {
        Self { provider, egress, kubernetes, client, needs: Vec::new() }
    }

    /// The same with the guest's wishes, which make better suggestions than a single request does.
    pub(crate) fn with_needs(self: &Arc<Self>, needs: Vec<Need>) -> Arc<Self> {
        Arc::new(Self {
            provider: self.provider.clone(),
            egress: self.egress.clone(),
            kubernetes: self.kubernetes.clone(),
            client: self.client.clone(),
            needs,
        })
    }

    pub(crate) fn provider(&self) -> &ProviderName {
        &self.provider
    }

    pub(crate) fn client(&self) -> &PlainClient {
        &self.client
    }

    /// Finds the grant that covers a request, or says which one is missing.
    pub(crate) fn route(
        &self,
        origin: &Origin,
        method: &http::Method,
        path: &str,
    ) -> Result<Route<'_>, String> {
        if origin.host == target::KUBERNETES_HOST {
            return match &self.kubernetes {
                Some(access) if origin.https && origin.port == 443 => Ok(Route::Kubernetes(access)),
                Some(_) => {
                    Err(format!("{origin} is not the cluster; it is https://{}", target::KUBERNETES_HOST))
                }
                None => Err(self.missing(method, origin, path, &self.missing_kubernetes())),
            };
        }
        self.egress
            .iter()
            .find(|rule| covers(rule, origin, method.as_str(), path))
            .map(Route::Plain)
            .ok_or_else(|| {
                self.missing(
                    method,
                    origin,
                    path,
                    &format!("egress: [{}]", self.line_for(origin, method, path)),
                )
            })
    }

    fn missing(&self, method: &http::Method, origin: &Origin, path: &str, line: &str) -> String {
        format!(
            "{method} {origin}{path} is not granted to provider {}; add to it in the providers config: {line}",
            self.provider
        )
    }

    /// The guest's own wish if it covers the request, else the request itself.
    fn line_for(&self, origin: &Origin, method: &http::Method, path: &str) -> String {
        self.needs
            .iter()
            .find(|need| {
                need.origin == *origin
                    && need.methods.iter().any(|known| known == method.as_str())
                    && target::below(path, &need.path_prefix)
            })
            .map_or_else(|| egress_line(origin, &[method.to_string()], path, "none"), Need::line)
    }

    /// The whole `kubernetes` line for a provider that has none.
    fn missing_kubernetes(&self) -> String {
        kubernetes_line(&self.needs, &[])
    }

    /// What the guest wishes and is not granted, as lines for the providers config.
    pub(crate) fn missing_grants(&self) -> Vec<String> {
        let (cluster, rest): (Vec<&Need>, Vec<&Need>) =
            self.needs.iter().partition(|need| need.origin.host == target::KUBERNETES_HOST);
        let mut lines = Vec::new();
        let wanted: Vec<&str> = cluster.iter().filter_map(|need| resource_of(&need.path_prefix)).collect();
        let granted: Vec<&str> = self
            .kubernetes
            .iter()
            .flat_map(|access| access.grant().resources.iter().map(|resource| resource.plural()))
            .collect();
        if !cluster.is_empty()
            && (self.kubernetes.is_none() || wanted.iter().any(|name| !granted.contains(name)))
        {
            lines.push(match &self.kubernetes {
                None => kubernetes_line(&self.needs, &[]),
                Some(access) => access.line_with(&wanted),
            });
        }
        for need in rest {
            let covered = need.methods.iter().all(|method| {
                self.egress.iter().any(|rule| covers(rule, &need.origin, method, &need.path_prefix))
            });
            if !covered {
                lines.push(format!("egress: [{}]  # {}", need.line(), need.why));
            }
        }
        lines
    }
}

impl Need {
    fn line(&self) -> String {
        egress_line(&self.origin, &self.methods, &self.path_prefix, &self.auth)
    }
}

fn covers(rule: &EgressRule, origin: &Origin, method: &str, path: &str) -> bool {
    rule.origin == *origin
        && rule.methods.iter().any(|allowed| allowed == method)
        && target::below(path, &rule.path_prefix)
}

fn egress_line(origin: &Origin, methods: &[String], path: &str, auth: &str) -> String {
    format!("{{ origin: \"{origin}\", methods: [{}], pathPrefix: {path}, auth: {auth} }}", methods.join(", "))
}

/// `/api/v1/namespaces/<ns>/<resource>...` -> `<resource>`.
fn resource_of(prefix: &str) -> Option<&str> {
    let mut parts = prefix.split('/').skip_while(|part| *part != "namespaces").skip(2);
    parts.next().filter(|part| !part.is_empty())
}

fn kubernetes_line(needs: &[Need], granted: &[&str]) -> String {
    let mut resources: Vec<&str> = granted.to_vec();
    let wished = needs.iter().filter(|need| need.origin.host == target::KUBERNETES_HOST);
    for resource in wished.filter_map(|need| resource_of(&need.path_prefix)) {
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    if resources.is_empty() {
        resources.push("pods");
    }
    format!(
        "kubernetes: {{ namespace: <namespace>, serviceAccount: <service account>, resources: [{}] }}",
        resources.join(", ")
    )
}
