//! Our requests in the contract's words.

use egress_proxies_core::lifecycle::owner_tags_of;
use egress_proxies_core::provider::{CreateRequest, Instance, InstanceRef, Tags};
use serde_json::{Map, Value};

use crate::bindings::egress_proxies::provider::model;

fn pairs(tags: &Tags) -> Vec<model::Pair> {
    tags.iter().map(|(key, value)| model::Pair { key: key.clone(), value: value.clone() }).collect()
}

fn document(map: &Map<String, Value>) -> String {
    // A map of JSON values always has a text.
    serde_json::to_string(map).unwrap_or_else(|_| "{}".to_owned())
}

pub(crate) fn create_request(request: &CreateRequest) -> model::CreateRequest {
    model::CreateRequest {
        name: request.name.clone(),
        attempt_key: request.attempt_key.clone(),
        port: request.port,
        placement: document(&request.placement),
        parameters: document(&request.parameters),
        bootstrap: request.bootstrap.as_ref().map(|secret| secret.expose().clone()),
        access: request.access.as_ref().map(|access| model::Credentials {
            username: access.username.expose().clone(),
            password: access.password.expose().clone(),
        }),
        tags: pairs(&request.tags),
        owner: pairs(&owner_tags_of(&request.tags)),
        extra: Vec::new(),
    }
}

pub(crate) fn instance_ref(target: &InstanceRef) -> model::InstanceRef {
    model::InstanceRef {
        id: target.id.to_string(),
        incarnation: target.incarnation.as_ref().map(ToString::to_string),
        owner: pairs(&target.owner),
        extra: Vec::new(),
    }
}

/// Which machines are listed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Those that carry all of these tags.
    Owned(&'a Tags),
    /// Those whose name starts with `prefix` and that lack any of `owner`.
    Untagged { owner: &'a Tags, prefix: &'a str },
}

impl Wanted<'_> {
    /// True if the machine is one of them.
    pub(crate) fn includes(&self, machine: &Instance) -> bool {
        let carries = |tags: &Tags| tags.iter().all(|(key, value)| machine.tags.get(key) == Some(value));
        match self {
            Self::Owned(owner) => carries(owner),
            Self::Untagged { owner, prefix } => machine.name.starts_with(prefix) && !carries(owner),
        }
    }
}

pub(crate) fn list_request(wanted: Wanted<'_>, cursor: Option<String>, limit: u32) -> model::ListRequest {
    let (owner, untagged_prefix) = match wanted {
        Wanted::Owned(owner) => (owner, None),
        Wanted::Untagged { owner, prefix } => (owner, Some(prefix.to_owned())),
    };
    model::ListRequest { owner: pairs(owner), untagged_prefix, cursor, limit, extra: Vec::new() }
}
