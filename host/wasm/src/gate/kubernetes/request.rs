//! What a request to the API server asks for, read from its method and path.
//!
//! Only the plain form of namespaced resources is understood; all else is refused: watches, collections
//! to delete, subresources (exec, attach, portforward, proxy, token, log ...), cluster-wide paths.

use http::{Method, Uri};

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// To which resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestInfo {
    pub(super) verb: Verb,
    /// Empty for the core group.
    pub(super) group: String,
    pub(super) namespace: String,
    pub(super) resource: String,
    pub(super) name: Option<String>,
}

/// Query parameters that have no power of their own. Not `force`, which is for a server-side apply, and not
/// `fieldValidation`, which hides what the API server would say of a field.
const PARAMETERS: [&str; 11] = [
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "fieldManager",
    "dryRun",
    "propagationPolicy",
    "gracePeriodSeconds",
];

pub(super) fn parse(method: &Method, uri: &Uri) -> Result<RequestInfo, String> {
    parameters(uri.query().unwrap_or_default())?;
    let path = uri.path();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _version, rest @ ..] => (*group, rest),
        _ => return Err(not_a_resource(path)),
    };
    let (namespace, resource, name) = match rest {
        ["namespaces", namespace, resource] => (namespace, resource, None),
        ["namespaces", namespace, resource, name] => (namespace, resource, Some(*name)),
        ["namespaces", _, resource, _, subresource, ..] => {
            return Err(format!("{resource}/{subresource} is never allowed, no subresource is"));
        }
        _ => return Err(not_a_resource(path)),
    };
    if [*namespace, *resource].into_iter().chain(name).any(|part| !plain(part)) {
        return Err(not_a_resource(path));
    }
    let verb = match (method.as_str(), name) {
        ("GET", Some(_)) => Verb::Get,
        ("GET", None) => Verb::List,
        ("POST", None) => Verb::Create,
        ("PUT", Some(_)) => Verb::Update,
        ("PATCH", Some(_)) => Verb::Patch,
        ("DELETE", Some(_)) => Verb::Delete,
        ("DELETE", None) => return Err(format!("deleting all {resource} at once is never allowed")),
        _ => return Err(format!("{method} {path} is no request that a provider may make")),
    };
    Ok(RequestInfo {
        verb,
        group: group.to_owned(),
        namespace: (*namespace).to_owned(),
        resource: (*resource).to_owned(),
        name: name.map(str::to_owned),
    })
}

fn plain(part: &str) -> bool {
    !part.is_empty()
        && part.len() <= 253
        && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
}

fn not_a_resource(path: &str) -> String {
    format!("{path} is not /api/v1/namespaces/<namespace>/<resource>[/<name>]; nothing else is allowed")
}

fn parameters(query: &str) -> Result<(), String> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let key = pair.split('=').next().unwrap_or_default();
        if !PARAMETERS.contains(&key) {
            return Err(format!("query parameter {key:?} is not allowed (watches are not either)"));
        }
    }
    Ok(())
}
