//! Lists Proxies, and ends cooldowns of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use egress_proxies_core::facts::{Fleet, ProxyFacts};
use egress_proxies_core::pool::Selector;
use http::StatusCode;

use super::Api;
use super::answers::{NeedsFleet, NeedsLeader, NeedsToken};
use super::error::{ApiError, ErrorBody};
use super::extract::{NoQuery, PathParts, QueryPairs, invalid, once, only, target, text, unknown};
use super::request::MAX_NAME;
use super::response::{ProxyDetail, ProxyItem, ProxyList};

/// Says that the process answers.
#[utoipa::path(
    get, path = "/healthz", operation_id = "health", tag = "operation", security(()),
    responses((status = 200, description = "`ok`", body = String, content_type = "text/plain"))
)]
pub(super) async fn healthz() -> &'static str {
    "ok"
}

/// Lists Proxies. None is an empty list, not an error.
///
/// `attr.<key>=<value>` keeps those whose attribute has the value; repeated with the same key, any of the
/// values will do; several keys must all fit.
#[utoipa::path(
    get, path = "/v1/proxies", operation_id = "listProxies", tag = "proxies",
    params(
        ("attr.{key}" = Option<Vec<String>>, Query, description = "Value of the attribute `key`; may be repeated"),
        ("healthy" = Option<bool>, Query, description = "Only healthy, or only not healthy ones"),
        ("namespace" = Option<String>, Query, description = "Only this namespace"),
    ),
    responses(
        (status = 200, description = "The Proxies", body = ProxyList),
        (status = 400, description = "`invalid_request`", body = ErrorBody),
        NeedsToken,
        NeedsFleet,
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<ProxyList>, ApiError> {
    let filter = Filter::parse(pairs)?;
    let fleet = api.fleet()?;
    let counts = api.pool.counts().await;
    let mut proxies: Vec<ProxyItem> = fleet
        .proxies
        .values()
        .filter(|facts| filter.selector.matches(facts))
        .map(|facts| ProxyItem::new(facts, counts.get(&facts.uid).copied().unwrap_or(0)))
        .filter(|item| filter.healthy.is_none_or(|wanted| item.healthy == wanted))
        .collect();
    proxies.sort_by(|a, b| a.id.cmp(&b.id));
    let count = proxies.len();
    Ok(Json(ProxyList { proxies, count }))
}

/// Shows one Proxy with its leases and cooldowns.
#[utoipa::path(
    get, path = "/v1/proxies/{namespace}/{name}", operation_id = "getProxy", tag = "proxies",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses(
        (status = 200, description = "The Proxy", body = ProxyDetail),
        (status = 400, description = "`invalid_request`", body = ErrorBody),
        (status = 404, description = "`unknown_proxy`", body = ErrorBody),
        NeedsToken,
        NeedsFleet,
    )
)]
pub(super) async fn show(
    State(api): State<Api>,
    PathParts((namespace, name)): PathParts<(String, String)>,
    NoQuery: NoQuery,
) -> Result<Json<ProxyDetail>, ApiError> {
    let facts = find(&api.fleet()?, &namespace, &name)?;
    let usage = api.pool.usage(facts.uid.clone()).await;
    Ok(Json(ProxyDetail::new(&facts, usage)))
}

/// Ends cooldowns of a Proxy: undoes a mistaken report.
#[utoipa::path(
    delete, path = "/v1/proxies/{namespace}/{name}/cooldowns", operation_id = "clearCooldowns", tag = "proxies",
    params(
        ("namespace" = String, Path), ("name" = String, Path),
        ("target" = Option<String>, Query, description = "Only the cooldown for this host; without it, all"),
    ),
    responses(
        (status = 204, description = "There is no such cooldown any more"),
        (status = 400, description = "`invalid_request`", body = ErrorBody),
        (status = 404, description = "`unknown_proxy`", body = ErrorBody),
        NeedsToken,
        NeedsLeader,
    )
)]
pub(super) async fn clear_cooldowns(
    State(api): State<Api>,
    PathParts((namespace, name)): PathParts<(String, String)>,
    QueryPairs(pairs): QueryPairs,
) -> Result<StatusCode, ApiError> {
    api.leads()?;
    only(&pairs, &["target"])?;
    let host = target("target", pairs.first().map(|(_, value)| value.as_str()))?;
    let facts = find(&api.fleet()?, &namespace, &name)?;
    api.pool.clear_cooldowns(facts.uid.clone(), host).await;
    Ok(StatusCode::NO_CONTENT)
}

fn find(fleet: &Fleet, namespace: &str, name: &str) -> Result<Arc<ProxyFacts>, ApiError> {
    fleet
        .proxies
        .values()
        .find(|facts| facts.key.namespace == namespace && facts.key.name == name)
        .cloned()
        .ok_or_else(|| ApiError::unknown_proxy(&format!("{namespace}/{name}")))
}

/// Which Proxies a list is about.
#[derive(Debug, Default)]
struct Filter {
    selector: Selector,
    healthy: Option<bool>,
}

impl Filter {
    fn parse(pairs: Vec<(String, String)>) -> Result<Self, ApiError> {
        let mut filter = Self::default();
        for (key, value) in pairs {
            match (key.as_str(), key.strip_prefix("attr.")) {
                (_, Some("")) => return Err(invalid("attr.", "is missing the name of an attribute")),
                (_, Some(attribute)) => {
                    let allowed: &mut BTreeMap<_, _> = &mut filter.selector.attributes;
                    allowed.entry(attribute.to_owned()).or_default().insert(value);
                }
                ("healthy", None) => {
                    let healthy = value
                        .parse()
                        .map_err(|_| invalid("healthy", &format!("must be true or false, not {value:?}")))?;
                    once(&key, filter.healthy.replace(healthy).is_some())?;
                }
                ("namespace", None) => {
                    let namespace = text("namespace", Some(value), MAX_NAME)?;
                    once(&key, filter.selector.namespace.is_some())?;
                    filter.selector.namespace = namespace;
                }
                (_, None) => return Err(unknown(&key, "attr.<key>, healthy and namespace")),
            }
        }
        Ok(filter)
    }
}
