//! What one provider instance is granted, and the words that say what is missing.

use std::sync::Arc;

use egress_proxies_core::ids::ProviderName;

use super::fence::{Fence, Leave};
use super::kubernetes::Access;
use super::plain::PlainClient;
use super::target;
use crate::call::mask::one_line;
use crate::config::{EgressRule, KubernetesResource, Origin};

/// Grants of one provider instance.
#[derive(Debug)]
pub(crate) struct Policy {
    provider: ProviderName,
    egress: Vec<EgressRule>,
    kubernetes: Option<Access>,
    client: PlainClient,
    needs: Vec<Need>,
    fence: Fence,
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
    pub(crate) auth: NeedAuth,
    pub(crate) why: String,
}

/// What a guest wishes the host to add, in the words of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeedAuth {
    /// Nothing.
    None,
    /// The identity in the cluster; granted by the field `kubernetes` and not by a rule.
    Kubernetes,
    /// A word that no rule of this release takes.
    Later(&'static str),
}

impl NeedAuth {
    /// The words of the contract.
    pub(crate) const WORDS: [&str; 6] = ["none", "kubernetes", "google", "bearer", "basic", "header"];

    /// What a guest wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "kubernetes" => Some(Self::Kubernetes),
            other => Self::WORDS.into_iter().find(|word| *word == other).map(Self::Later),
        }
    }
}

impl Policy {
    pub(crate) fn new(
        provider: ProviderName,
        egress: Vec<EgressRule>,
        kubernetes: Option<Access>,
        client: PlainClient,
    ) -> Self {
        Self { provider, egress, kubernetes, client, needs: Vec::new(), fence: Fence::open() }
    }

    /// The same behind this fence.
    pub(crate) fn behind(self, fence: Fence) -> Self {
        Self { fence, ..self }
    }

    /// The fence before a request with this method to there.
    pub(crate) fn leave(&self, method: &http::Method, origin: &Origin) -> Leave {
        Leave::new(self.fence.clone(), method, format!("{method} {origin} of provider {}", self.provider))
    }

    /// The same with the guest's wishes, which make better suggestions than a single request does.
    pub(crate) fn with_needs(self: &Arc<Self>, needs: Vec<Need>) -> Arc<Self> {
        Arc::new(Self {
            provider: self.provider.clone(),
            egress: self.egress.clone(),
            kubernetes: self.kubernetes.clone(),
            client: self.client.clone(),
            needs,
            fence: self.fence.clone(),
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
            .ok_or_else(|| self.missing(method, origin, path, &self.line_for(origin, method, path)))
    }

    fn missing(&self, method: &http::Method, origin: &Origin, path: &str, line: &str) -> String {
        format!(
            "{method} {origin}{} is not granted to provider {}; add to it in the providers config: {line}",
            one_line(path, 256),
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
            .map_or_else(|| egress_line(origin, &[method.to_string()], path), Need::line)
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
                lines.push(format!("{}  # {}", need.line(), need.why));
            }
        }
        lines
    }
}

impl Need {
    fn line(&self) -> String {
        let line = egress_line(&self.origin, &self.methods, &self.path_prefix);
        match self.auth {
            NeedAuth::None | NeedAuth::Kubernetes => line,
            NeedAuth::Later(word) => {
                format!("{line} (it needs auth: {word}, which this release cannot grant yet)")
            }
        }
    }
}

fn covers(rule: &EgressRule, origin: &Origin, method: &str, path: &str) -> bool {
    rule.origin == *origin
        && rule.methods.iter().any(|allowed| allowed == method)
        && target::below(path, &rule.path_prefix)
}

/// A line that the providers config accepts as it is: whatever a guest chose is quoted.
fn egress_line(origin: &Origin, methods: &[String], path: &str) -> String {
    format!(
        "egress: [{{ origin: \"{origin}\", methods: [{}], pathPrefix: {}, auth: none }}]",
        methods.join(", "),
        quoted(path)
    )
}

/// A path as YAML reads it back, also inside of braces.
fn quoted(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~');
    if path.bytes().all(plain) { path.to_owned() } else { serde_json::Value::from(path).to_string() }
}

/// `/api/v1/namespaces/<ns>/<resource>...` -> `<resource>`, if it is one that can be granted.
fn resource_of(prefix: &str) -> Option<&'static str> {
    let mut parts = prefix.split('/').skip_while(|part| *part != "namespaces").skip(2);
    KubernetesResource::from_plural(parts.next()?).map(KubernetesResource::plural)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::ProvidersConfig;

    fn policy(needs: Vec<Need>) -> Arc<Policy> {
        let client = PlainClient::new().unwrap();
        Arc::new(Policy::new(ProviderName::parse("p").unwrap(), Vec::new(), None, client)).with_needs(needs)
    }

    fn need(path: &str, auth: NeedAuth) -> Need {
        Need {
            origin: target::origin("https://api.example.com").unwrap(),
            methods: vec!["GET".into()],
            path_prefix: path.into(),
            auth,
            why: "machines".into(),
        }
    }

    #[test]
    fn a_line_that_is_suggested_is_one_that_the_config_takes_and_means_what_it_says() {
        for path in ["/v1", "/v1/a,b", "/a, allowCidrs: [10.0.0.0/8]", "/a\"b}", "/*x", "/%20y", "/a:"] {
            let lines = policy(vec![need(path, NeedAuth::None)]).missing_grants();
            let text = format!(
                "apiVersion: crawl.example.com/v1alpha1\nkind: ProvidersConfig\nproviders:\n  p:\n    source: {{ file: p.wasm }}\n    {}\n",
                lines.first().unwrap()
            );
            let config = ProvidersConfig::parse(&text, Path::new("/x/providers.yaml")).unwrap();
            let entry = config.entries.into_values().next().unwrap();
            if path.contains(' ') {
                // No path of a request, so no wish either: `convert` refuses it before it comes here.
                assert!(entry.is_err(), "{path}");
                continue;
            }
            let rule = entry.unwrap().egress.remove(0);
            assert_eq!((rule.path_prefix.as_str(), rule.allow_cidrs.len()), (path, 0), "{text}");
        }
    }

    #[test]
    fn what_this_release_cannot_grant_is_said_and_not_suggested() {
        let lines = policy(vec![need("/v1", NeedAuth::Later("google"))]).missing_grants();
        assert!(lines.first().unwrap().contains("cannot grant yet"), "{lines:?}");
        let origin = target::origin("https://kubernetes.internal").unwrap();
        let path_prefix = "/apis/apps/v1/namespaces/n/deployments".to_owned();
        let needs = vec![Need { origin, path_prefix, ..need("/", NeedAuth::Kubernetes) }];
        let lines = policy(needs).missing_grants();
        assert!(lines.first().unwrap().contains("resources: [pods]"), "{lines:?}");
    }
}
