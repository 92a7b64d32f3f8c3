//! What a guest says of itself, of a configuration, and of a machine to be made.

use std::time::Duration;

use egress_proxies_core::ids::{InstanceId, ProviderName};
use egress_proxies_core::provider::{CreatePlan, Failure};

use super::bad_answer;
use super::instance::not_valid;
use crate::bindings::egress_proxies::provider::model;
use crate::call::mask::{Mask, one_line};
use crate::gate::{METHODS, Need, NeedAuth, target};

const MOST_BOOTSTRAP: u32 = 1 << 20;
const MOST_LAG: u32 = 3_600_000;
const MOST_WARNINGS: usize = 16;
const MOST_NEEDS: usize = 64;
const MOST_SCOPE: usize = 512;

/// Answer of `describe`, checked; schemas are still texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) summary: String,
    pub(crate) config_schema: Option<String>,
    pub(crate) placement_schema: Option<String>,
    pub(crate) parameters_schema: Option<String>,
    pub(crate) bootstrap_max_bytes: u32,
    pub(crate) list_lag: Duration,
    pub(crate) takes_access: bool,
}

/// Answer of `validate-config`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) scope: String,
    pub(crate) needs: Vec<Need>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn description(given: model::Description) -> Result<Description, Failure> {
    let name = ProviderName::parse(given.name)
        .map_err(|error| bad_answer(format!("describe: name {:?} is not {}", error.value, error.rule)))?;
    let version = one_line(&given.version, 64);
    if !version.split('.').take(3).all(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        || version.split('.').count() < 3
    {
        return Err(bad_answer(format!("describe: version {version:?} is no SemVer such as 1.2.3")));
    }
    Ok(Description {
        name: name.to_string(),
        version,
        summary: one_line(&given.summary, 256),
        config_schema: given.config_schema,
        placement_schema: given.placement_schema,
        parameters_schema: given.parameters_schema,
        bootstrap_max_bytes: given.bootstrap_max_bytes.min(MOST_BOOTSTRAP),
        list_lag: Duration::from_millis(given.list_lag_ms.min(MOST_LAG).into()),
        takes_access: given.capabilities.iter().any(|word| word == "access"),
    })
}

fn warnings(given: &[String], mask: &Mask) -> Vec<String> {
    given
        .iter()
        .take(MOST_WARNINGS)
        .map(|text| mask.line(text, 512))
        .filter(|text| !text.is_empty())
        .collect()
}

pub(crate) fn report(given: model::ConfigReport) -> Result<Report, Failure> {
    if given.scope.is_empty() || given.scope.len() > MOST_SCOPE || given.scope.chars().any(char::is_control) {
        return Err(bad_answer(format!(
            "validate-config: scope must have 1-{MOST_SCOPE} printable characters"
        )));
    }
    if given.egress.len() > MOST_NEEDS {
        return Err(bad_answer(format!("validate-config: {} kinds of requests", given.egress.len())));
    }
    let needs = given.egress.into_iter().map(need).collect::<Result<_, _>>()?;
    Ok(Report { scope: given.scope, needs, warnings: warnings(&given.warnings, &Mask::default()) })
}

fn need(given: model::EgressNeed) -> Result<Need, Failure> {
    let broken = |why: String| bad_answer(format!("validate-config: egress: {why}"));
    target::path(&given.path_prefix).map_err(broken)?;
    if let Some(method) = given.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
        return Err(broken(format!(
            "method {:?} is not one of {}",
            one_line(method, 16),
            METHODS.join(", ")
        )));
    }
    if given.methods.is_empty() || given.methods.len() > METHODS.len() {
        return Err(broken(format!("{} methods; 1 to {} are allowed", given.methods.len(), METHODS.len())));
    }
    let Some(auth) = NeedAuth::parse(&given.auth) else {
        let words = NeedAuth::WORDS.join(", ");
        return Err(broken(format!("auth {:?} is not one of {words}", one_line(&given.auth, 32))));
    };
    Ok(Need {
        origin: target::origin(&given.origin).map_err(broken)?,
        methods: given.methods,
        path_prefix: given.path_prefix,
        auth,
        why: one_line(&given.why, 256),
    })
}

pub(crate) fn plan(given: model::CreatePlan, mask: &Mask) -> Result<CreatePlan, Failure> {
    let id = |text: String| InstanceId::parse(&*text).map_err(|error| not_valid(&error, &text, mask));
    Ok(CreatePlan {
        id: given.id.map(id).transpose()?,
        location: given.location.map(|text| mask.line(&text, 256)).filter(|text| !text.is_empty()),
        warnings: warnings(&given.warnings, mask),
    })
}
