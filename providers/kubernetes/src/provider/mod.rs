//! The four calls that touch the API server.
//!
//! Must never take "could not tell" for an absence, and never touch a pod that lacks the owner tags.

mod creation;

use egress_proxies_provider_sdk::failure;
use egress_proxies_provider_sdk::kubernetes;
use egress_proxies_provider_sdk::model::{
    ConfigReport, CreatePlan, CreateRequest, Deletion, Description, Failure, Instance, InstanceRef,
    ListRequest, Observation, Page, Reason,
};
use egress_proxies_provider_sdk::{Call, Context, Provider, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::{Api, Grace};
use crate::meta;
use crate::pod::Pod;
use crate::tags;
use creation::Creation;

/// An answer with this many pods stays well below what the operator lets in.
const MAX_PAGE: u32 = 250;
/// When to ask again after a delete.
const DELETION_POLL_MS: u32 = 1_000;

/// The provider.
#[derive(Debug, Default)]
pub struct Kubernetes;

impl Provider for Kubernetes {
    fn describe(&self) -> Description {
        meta::describe()
    }

    fn validate_config(&self, context: &Context) -> Result<ConfigReport, Failure> {
        meta::validate_config(context)
    }

    fn validate_create(&self, context: &Context, request: &CreateRequest) -> Result<CreatePlan, Failure> {
        meta::validate_create(context, request)
    }

    fn create(&self, call: &Call<'_>, request: &CreateRequest) -> Result<Instance, Failure> {
        meta::validate_create(call.context, request)?;
        let namespace = meta::namespace(call.context)?;
        let settings = meta::settings(call.context, request)?;
        Creation { call, api: Api::new(call, namespace), namespace, request, settings }.run()
    }

    fn get(&self, call: &Call<'_>, target: &InstanceRef) -> Result<Observation, Failure> {
        let (namespace, name) = place(call.context, &target.id)?;
        match find(&Api::new(call, namespace), name)? {
            Some(pod) if is_meant(&pod, target) => Ok(Observation::Found(pod.instance(call.host.now()))),
            Some(_) | None => Ok(Observation::Absent(None)),
        }
    }

    fn delete(&self, call: &Call<'_>, target: &InstanceRef) -> Result<Deletion, Failure> {
        let (namespace, name) = place(call.context, &target.id)?;
        let api = Api::new(call, namespace);
        let Some(pod) = find(&api, name)? else { return Ok(Deletion::Gone) };
        if !is_meant(&pod, target) || !tags::are_owned(&pod.tags(), &target.owner) {
            return Ok(Deletion::Gone);
        }
        // The kubelet of a dead node never confirms: without force such a pod would stay for ever.
        let grace = match (pod.is_being_deleted(), pod.is_overdue(call.host.now())) {
            (false, _) => Grace::OfThePod,
            (true, true) => Grace::None,
            (true, false) => return Ok(Deletion::InProgress(Some(DELETION_POLL_MS))),
        };
        let response = api.delete_pod(name, &pod.metadata.uid, grace)?;
        if response.is_success() {
            Ok(Deletion::InProgress(Some(DELETION_POLL_MS)))
        } else if kubernetes::is_absent(&response, "pods", name) || is_other_uid(&response) {
            Ok(Deletion::Gone)
        } else {
            Err(kubernetes::failure("deleting the pod", &response))
        }
    }

    fn list_by_tag(&self, call: &Call<'_>, request: &ListRequest) -> Result<Page, Failure> {
        let api = Api::new(call, meta::namespace(call.context)?);
        let selector = match request.untagged_prefix {
            Some(_) => String::new(),
            None => tags::selector(&request.owner),
        };
        let response =
            api.list_pods(&selector, request.limit.clamp(1, MAX_PAGE), request.cursor.as_deref())?;
        if !response.is_success() {
            return Err(kubernetes::failure("listing pods", &response));
        }
        let list: PodList = read("listing pods", &response)?;
        let now = call.host.now();
        let wanted = |pod: &&Pod| {
            let owned = tags::are_owned(&pod.tags(), &request.owner);
            match &request.untagged_prefix {
                Some(prefix) => !owned && pod.metadata.name.starts_with(prefix.as_str()),
                None => owned,
            }
        };
        let items = list.items.iter().filter(wanted).map(|pod| pod.instance(now)).collect();
        let next = Some(list.metadata.cursor).filter(|cursor| !cursor.is_empty());
        Ok(Page { items, next, unreachable: Vec::new(), extra: Vec::new() })
    }
}

#[derive(Deserialize)]
struct PodList {
    #[serde(default)]
    metadata: ListMetadata,
    /// Not optional: a body without it is no list, and must not be taken for an empty one.
    items: Vec<Pod>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    cursor: String,
}

/// Namespace and name of an id, if it is one that this configuration reaches.
fn place<'a>(context: &'a Context, id: &'a str) -> Result<(&'a str, &'a str), Failure> {
    let granted = meta::namespace(context)?;
    match id.split_once('/') {
        Some((namespace, name)) if namespace == granted && is_name(name) => Ok((namespace, name)),
        _ => Err(failure::new(
            Reason::OutOfScope,
            format!("{} is not a machine of namespace {granted}", failure::quote(id)),
        )),
    }
}

/// Nothing that could lead a path elsewhere.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_meant(pod: &Pod, target: &InstanceRef) -> bool {
    target.incarnation.as_ref().is_none_or(|incarnation| *incarnation == pod.metadata.uid)
}

fn is_other_uid(response: &Response) -> bool {
    response.status == 409
        && kubernetes::Status::read(response).is_some_and(|status| status.reason() == "Conflict")
}

fn read<T: DeserializeOwned>(what: &str, response: &Response) -> Result<T, Failure> {
    serde_json::from_slice(&response.body).map_err(|error| {
        // The error is told without the body, which it does not quote.
        failure::new(Reason::Transient, format!("{what}: the answer cannot be read: {error}"))
    })
}

fn read_pod(what: &str, response: &Response) -> Result<Pod, Failure> {
    let pod: Pod = read(what, response)?;
    if pod.metadata.uid.is_empty() || pod.metadata.name.is_empty() {
        return Err(failure::new(Reason::Transient, format!("{what}: the answer is not a pod")));
    }
    Ok(pod)
}

/// The pod of that name; `None` only if the API server says that there is none.
fn find(api: &Api<'_>, name: &str) -> Result<Option<Pod>, Failure> {
    let response = api.get_pod(name)?;
    if response.is_success() {
        read_pod("looking at the pod", &response).map(Some)
    } else if kubernetes::is_absent(&response, "pods", name) {
        Ok(None)
    } else {
        Err(kubernetes::failure("looking at the pod", &response))
    }
}

#[cfg(test)]
mod tests;
