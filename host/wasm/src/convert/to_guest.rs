//! Our requests in the contract's words.

use egress_proxies_core::lifecycle::owner_tags_of;
use egress_proxies_core::provider::{CreateRequest, InstanceRef, Tags};
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

pub(crate) fn list_request(owner: &Tags, cursor: Option<String>, limit: u32) -> model::ListRequest {
    model::ListRequest { owner: pairs(owner), untagged_prefix: None, cursor, limit, extra: Vec::new() }
}
