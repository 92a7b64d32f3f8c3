//! A machine as a guest shows it, checked field by field.

use std::net::IpAddr;

use egress_proxies_core::ids::{Incarnation, InstanceId, InvalidId};
use egress_proxies_core::lifecycle::owner_tags_of;
use egress_proxies_core::provider::{
    Credentials, Deletion, Endpoint, Failure, Instance, InstanceRef, InstanceState, Observation, Reason,
    Secret, Tags,
};
use ipnet::IpNet;

use super::bad_answer;
use super::failure::{clamp, failure};
use crate::bindings::egress_proxies::provider::model;
use crate::call::Op;
use crate::call::mask::Mask;
use crate::gate::{address, target};

const MOST_ENDPOINTS: usize = 8;
const MOST_TAGS: usize = 128;
const MOST_TAG: usize = 4 * 1024;
const MOST_NAME: usize = 253;
const MOST_CREDENTIAL: usize = 1024;
const MOST_SHOWN: usize = 80;

/// What an answer is judged against.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) op: Op,
    pub(crate) mask: &'a Mask,
    /// Networks of the provider's machines besides public ones.
    pub(crate) address_cidrs: &'a [IpNet],
    /// Port asked for, where the call knows it.
    pub(crate) port: Option<u16>,
}

/// Answer of `create`: a machine with all of the ownership tags that were asked for.
pub(crate) fn created(given: model::Instance, tags: &Tags, place: Place<'_>) -> Result<Instance, Failure> {
    let instance = instance(given, place)?;
    match owner_tags_of(tags).iter().find(|(key, value)| instance.tags.get(*key) != Some(value)) {
        None => Ok(instance),
        Some((key, _)) => Err(bad_answer(format!(
            "create answered with machine {}, which lacks our tag {key}; a foreign machine is name-taken",
            instance.id
        ))),
    }
}

/// Answer of `get`: about the machine that was asked for, or none.
pub(crate) fn observation(
    given: model::Observation,
    asked: &InstanceRef,
    place: Place<'_>,
) -> Result<Observation, Failure> {
    let found = match given {
        model::Observation::Absent(why) => {
            return Ok(Observation::Absent(why.map(|why| failure(why, place.op, place.mask))));
        }
        model::Observation::Found(found) => instance(found, place)?,
    };
    if found.id != asked.id {
        return Err(bad_answer(format!("get of {} answered with machine {}", asked.id, found.id)));
    }
    match (&asked.incarnation, &found.incarnation) {
        (Some(asked), Some(found)) if asked != found => Err(bad_answer(format!(
            "get of incarnation {asked} answered with {found}; another one is absent"
        ))),
        (Some(asked), None) => Err(bad_answer(format!(
            "get of incarnation {asked} answered with a machine that has none; it has to say which one it is"
        ))),
        (Some(_), Some(_)) | (None, Some(_) | None) => Ok(Observation::Found(Box::new(found))),
    }
}

/// Answer of `delete`.
pub(crate) fn deletion(given: model::Deletion) -> Deletion {
    match given {
        model::Deletion::Gone => Deletion::Gone,
        model::Deletion::InProgress(again) => Deletion::InProgress(again.map(clamp)),
    }
}

pub(super) fn instance(given: model::Instance, place: Place<'_>) -> Result<Instance, Failure> {
    let id = InstanceId::parse(&*given.id).map_err(|error| not_valid(&error, &given.id, place.mask))?;
    let incarnation = given
        .incarnation
        .map(|text| Incarnation::parse(&*text).map_err(|error| not_valid(&error, &text, place.mask)))
        .transpose()?;
    if given.name.is_empty() || given.name.len() > MOST_NAME || given.name.chars().any(char::is_control) {
        return Err(bad_answer(format!(
            "the name of machine {id} must have 1-{MOST_NAME} printable characters"
        )));
    }
    let mut problem = given.problem.map(|problem| failure(problem, place.op, place.mask));
    let endpoints = endpoints(given.endpoints, place, &mut problem)
        .map_err(|why| bad_answer(format!("machine {id}: {why}")))?;
    let tags = tags(given.tags, place.mask).map_err(|why| bad_answer(format!("machine {id}: {why}")))?;
    Ok(Instance {
        name: given.name,
        incarnation,
        state: state(given.state, place.mask),
        endpoints,
        created_at: given.created_at.and_then(|text| text.parse().ok()),
        location: given.location.map(|text| place.mask.line(&text, 256)).filter(|text| !text.is_empty()),
        problem,
        tags,
        id,
    })
}

/// Secrets are hidden before the text is cut: a part of one is not recognised.
pub(super) fn not_valid(error: &InvalidId, text: &str, mask: &Mask) -> Failure {
    bad_answer(format!("{} {:?} is not valid: {}", error.what, mask.line(text, MOST_SHOWN), error.rule))
}

fn state(given: model::InstanceState, mask: &Mask) -> InstanceState {
    match given {
        model::InstanceState::Provisioning => InstanceState::Provisioning,
        model::InstanceState::Running => InstanceState::Running,
        model::InstanceState::Stopping => InstanceState::Stopping,
        model::InstanceState::Stopped => InstanceState::Stopped,
        model::InstanceState::Deleting => InstanceState::Deleting,
        model::InstanceState::Failed => InstanceState::Failed,
        model::InstanceState::Other(word) => InstanceState::Other(mask.line(&word, 64)),
    }
}

fn tags(given: Vec<model::Pair>, mask: &Mask) -> Result<Tags, String> {
    if given.len() > MOST_TAGS {
        return Err(format!("{} tags; at most {MOST_TAGS} are allowed", given.len()));
    }
    if let Some(tag) = given.iter().find(|tag| tag.key.len() + tag.value.len() > MOST_TAG) {
        return Err(format!("tag {:?} is longer than {MOST_TAG} bytes", mask.line(&tag.key, 64)));
    }
    Ok(given.into_iter().map(|tag| (tag.key, tag.value)).collect())
}

/// Endpoints at forbidden addresses are left out and become the machine's problem: it must stay visible,
/// or it could not be deleted, and must not be connected to.
fn endpoints(
    given: Vec<model::Endpoint>,
    place: Place<'_>,
    problem: &mut Option<Failure>,
) -> Result<Vec<Endpoint>, String> {
    if given.len() > MOST_ENDPOINTS {
        return Err(format!("{} endpoints; at most {MOST_ENDPOINTS} are allowed", given.len()));
    }
    let mut kept = Vec::new();
    for endpoint in given.into_iter().filter(|endpoint| endpoint.protocol == "http") {
        let shown = place.mask.line(&endpoint.address, 260);
        match reachable(&endpoint.address, place.address_cidrs) {
            Ok(address) => kept.push(Endpoint {
                address,
                port: if endpoint.port == 0 { place.port.unwrap_or(0) } else { endpoint.port },
                scope: place.mask.line(&endpoint.scope, 64),
                credentials: endpoint.credentials.map(credentials).transpose()?,
            }),
            Err(Unreachable::Malformed) => {
                return Err(format!(
                    "address {shown:?} is no IP address (without brackets or zone) and no DNS name"
                ));
            }
            Err(Unreachable::Forbidden(why)) => {
                problem.get_or_insert_with(|| {
                    Failure::new(Reason::Denied, format!("the machine's address {shown} is not used: {why}"))
                });
            }
        }
    }
    Ok(kept)
}

enum Unreachable {
    Malformed,
    Forbidden(String),
}

fn reachable(text: &str, listed: &[IpNet]) -> Result<String, Unreachable> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        if address::allowed(ip, listed) {
            return Ok(ip.to_string());
        }
        return Err(Unreachable::Forbidden(match address::kind(ip) {
            address::AddressKind::Private => {
                let bits = if ip.is_ipv4() { 32 } else { 128 };
                format!(
                    "it is not public; add to the provider in the providers config: addressCidrs: [{ip}/{bits}]"
                )
            }
            address::AddressKind::Public | address::AddressKind::Never => {
                "it is link-local, a metadata service or reserved".to_owned()
            }
        }));
    }
    let name = target::origin(&format!("http://{text}")).map_err(|_| Unreachable::Malformed)?;
    if !text.eq_ignore_ascii_case(&name.host)
        && text.strip_suffix('.').is_none_or(|t| !t.eq_ignore_ascii_case(&name.host))
    {
        return Err(Unreachable::Malformed);
    }
    let local = name.host == "localhost"
        || name.host.ends_with(".localhost")
        || name.host == "metadata.google.internal";
    if local { Err(Unreachable::Forbidden("it is a local name".to_owned())) } else { Ok(name.host) }
}

fn credentials(given: model::Credentials) -> Result<Credentials, String> {
    let model::Credentials { username, password } = given;
    let broken = |text: &str| text.len() > MOST_CREDENTIAL || text.chars().any(char::is_control);
    if username.is_empty() || username.contains(':') || broken(&username) || broken(&password) {
        return Err(
            "the credentials of an endpoint are empty, too long, or have control characters".to_owned()
        );
    }
    Ok(Credentials { username: Secret::new(username), password: Secret::new(password) })
}
