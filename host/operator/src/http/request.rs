//! What clients send, as it stands on the wire, and its translation into an order or a report.

use std::collections::{BTreeMap, BTreeSet};

use egress_proxies_core::ids::ProxyKey;
use egress_proxies_core::pool::{
    DEFAULT_TTL, MAX_COOLDOWN, MAX_TTL, Order, Outcome, Prefer, Report, Selector,
};
use serde::Deserialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::error::{ApiError, Code};
use super::extract::{invalid, seconds, target, text};

const MAX_EXCLUDE: usize = 100;
const MAX_SELECTOR_KEYS: usize = 64;
const MAX_SELECTOR_VALUES: usize = 100;
/// Longest namespace.
pub(super) const MAX_NAME: usize = 253;
/// Longest key or value of an attribute; Proxies have none that is longer.
const MAX_ATTRIBUTE: usize = 256;
const MAX_SESSION: usize = 128;
const MAX_HOLDER: usize = 128;

/// Asks for a lease. Every field may be left out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LeaseRequest {
    /// Attributes that the proxy must have: a value, or a list of values of which one will do.
    selector: Option<BTreeMap<String, OneOrMany>>,
    /// Only Proxies of this namespace.
    #[schema(min_length = 1, max_length = 253)]
    namespace: Option<String>,
    /// Ids (`namespace/name`) of proxies that will not do.
    #[schema(max_items = 100)]
    exclude: Option<Vec<String>>,
    /// How long.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86400, default = 300)]
    ttl_seconds: Option<Number>,
    /// Host that the lease is for, such as `example.com`. Capacity per target and cooldowns go by it.
    #[schema(max_length = 1024)]
    target: Option<String>,
    /// Your name for what you are doing. The same session, selector and target get the same lease again,
    /// renewed, for as long as it lives: a retried or restarted client holds one proxy, not two.
    #[schema(min_length = 1, max_length = 128)]
    session: Option<String>,
    /// What decides between proxies with equally few leases.
    prefer: Option<PreferField>,
    /// Who holds the lease, for people who look at the Proxy.
    #[schema(min_length = 1, max_length = 128)]
    holder: Option<String>,
}

/// A value, or a list of values of which one will do.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(super) enum OneOrMany {
    /// The value.
    One(String),
    /// One of these.
    Many(Vec<String>),
}

/// What decides between proxies with equally few leases.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Prefer)]
pub(super) enum PreferField {
    /// The lower latency.
    #[default]
    Latency,
    /// The one leased least recently.
    Spread,
}

impl LeaseRequest {
    /// The order, if everything is within its limits.
    pub(super) fn into_order(self) -> Result<Order, ApiError> {
        let ttl = seconds("ttlSeconds", self.ttl_seconds.as_ref(), MAX_TTL)?.unwrap_or(DEFAULT_TTL);
        let prefer = match self.prefer.unwrap_or_default() {
            PreferField::Latency => Prefer::Latency,
            PreferField::Spread => Prefer::Spread,
        };
        Ok(Order {
            selector: Selector {
                attributes: attributes(self.selector.unwrap_or_default())?,
                namespace: text("namespace", self.namespace, MAX_NAME)?,
            },
            exclude: exclude(&self.exclude.unwrap_or_default())?,
            target: target("target", self.target.as_deref())?,
            ttl,
            session: text("session", self.session, MAX_SESSION)?,
            prefer,
            holder: text("holder", self.holder, MAX_HOLDER)?,
        })
    }
}

fn attributes(selector: BTreeMap<String, OneOrMany>) -> Result<BTreeMap<String, BTreeSet<String>>, ApiError> {
    if selector.len() > MAX_SELECTOR_KEYS {
        let fault = format!("has {} keys; at most {MAX_SELECTOR_KEYS}", selector.len());
        return Err(invalid("selector", &fault));
    }
    let mut attributes = BTreeMap::new();
    for (key, values) in selector {
        short("selector", "key", &key)?;
        let values: BTreeSet<String> = match values {
            OneOrMany::One(value) => BTreeSet::from([value]),
            OneOrMany::Many(values) => values.into_iter().collect(),
        };
        if !(1..=MAX_SELECTOR_VALUES).contains(&values.len()) {
            let fault = format!("must list 1 to {MAX_SELECTOR_VALUES} values, not {}", values.len());
            return Err(invalid(&format!("selector.{key}"), &fault));
        }
        values.iter().try_for_each(|value| short(&format!("selector.{key}"), "value", value))?;
        attributes.insert(key, values);
    }
    Ok(attributes)
}

fn short(field: &str, what: &str, text: &str) -> Result<(), ApiError> {
    let count = text.chars().count();
    if count <= MAX_ATTRIBUTE {
        return Ok(());
    }
    Err(invalid(field, &format!("has a {what} of {count} characters; at most {MAX_ATTRIBUTE}")))
}

fn exclude(ids: &[String]) -> Result<BTreeSet<ProxyKey>, ApiError> {
    if ids.len() > MAX_EXCLUDE {
        return Err(invalid("exclude", &format!("has {} ids; at most {MAX_EXCLUDE}", ids.len())));
    }
    ids.iter()
        .enumerate()
        .map(|(index, id)| match id.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(ProxyKey::new(namespace, name))
            }
            Some(_) | None => {
                let fault = format!("{id:?} is no proxy id; ids are \"namespace/name\"");
                Err(invalid(&format!("exclude[{index}]"), &fault))
            }
        })
        .collect()
}

/// Asks for more time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RenewRequest {
    /// How long from now; without it, as long as the lease was granted for.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86400)]
    ttl_seconds: Option<Number>,
}

impl RenewRequest {
    /// The time, if it is within its limits.
    pub(super) fn ttl(&self) -> Result<Option<std::time::Duration>, ApiError> {
        seconds("ttlSeconds", self.ttl_seconds.as_ref(), MAX_TTL)
    }
}

/// Tells what the client experienced.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReportRequest {
    /// `ok`; `rate_limited` or `banned`: the proxy rests for the target; `unreachable`: the proxy is not
    /// leased again until a probe of it succeeds.
    #[serde(default)]
    #[schema(value_type = ReportResult, required)]
    result: String,
    /// Host that it was about; without it the lease's target, without that every target.
    #[schema(max_length = 1024)]
    target: Option<String>,
    /// Rest time, with `rate_limited` and `banned` only; without it the operator's `--cooldown`, 15 min
    /// unless set.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 604_800)]
    cooldown_seconds: Option<Number>,
    /// Release the lease as well.
    release: Option<bool>,
}

/// Results of a report.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum ReportResult {
    /// All well; clears nothing.
    Ok,
    /// The site limited the rate.
    RateLimited,
    /// The site refuses the proxy.
    Banned,
    /// The proxy cannot be reached or does not forward.
    Unreachable,
}

impl ReportResult {
    fn parse(word: &str) -> Result<Self, ApiError> {
        match word {
            "ok" => Ok(Self::Ok),
            "rate_limited" => Ok(Self::RateLimited),
            "banned" => Ok(Self::Banned),
            "unreachable" => Ok(Self::Unreachable),
            other => {
                let allowed = "ok, rate_limited, banned or unreachable";
                let message = format!("result: must be {allowed}, not {other:?}");
                Err(ApiError::new(Code::InvalidResult, message))
            }
        }
    }

    fn outcome(self) -> Outcome {
        match self {
            Self::Ok => Outcome::Ok,
            Self::RateLimited => Outcome::RateLimited,
            Self::Banned => Outcome::Banned,
            Self::Unreachable => Outcome::Unreachable,
        }
    }
}

impl ReportRequest {
    /// The report, if everything is within its limits.
    pub(super) fn into_report(self) -> Result<Report, ApiError> {
        let outcome = ReportResult::parse(&self.result)?.outcome();
        let cooldown = seconds("cooldownSeconds", self.cooldown_seconds.as_ref(), MAX_COOLDOWN)?;
        if cooldown.is_some() && matches!(outcome, Outcome::Ok | Outcome::Unreachable) {
            return Err(invalid("cooldownSeconds", "goes with rate_limited and banned only"));
        }
        Ok(Report {
            outcome,
            target: target("target", self.target.as_deref())?,
            cooldown,
            release: self.release.unwrap_or(false),
        })
    }
}
