//! What a machine should be made from: the desired hash, the create request, and the metadata that is
//! written down before it.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::crd::FINALIZER;
use crate::facts::Auth;
use crate::ids::{InstanceId, ProviderName, machine_name};
use crate::lifecycle::hash::hex;
use crate::lifecycle::{
    CloudInitView, MetadataPatch, ObjectFacts, ProvisionedReason, SpecHash, latch_key, machine_tags,
    spec_hash,
};
use crate::provider::{CreateRequest, ProviderInfo, Secret};

use super::context::Context;

/// Port of a Proxy that names none.
const DEFAULT_PORT: u16 = 3128;

/// What the current spec asks for.
#[derive(Debug, Clone)]
pub(super) struct Desired {
    pub(super) hash: SpecHash,
    /// Latch key.
    pub(super) key: String,
}

/// The current spec's hash, or why it can't be known.
pub(super) fn desired(
    cx: &Context<'_>,
    provider: &ProviderInfo,
) -> Result<Desired, (ProvisionedReason, String)> {
    let text = match &cx.observed.surroundings.cloud_init {
        CloudInitView::NotUsed => None,
        CloudInitView::Resolved(text) => Some(text.expose().as_str()),
        CloudInitView::Problem(message) => return Err((ProvisionedReason::CloudInitError, message.clone())),
    };
    let most = usize::try_from(provider.bootstrap_max_bytes).unwrap_or(usize::MAX);
    if let Some(text) = text.filter(|text| text.len() > most) {
        let message = if most == 0 {
            format!("provider {} takes no cloud-init: remove spec.cloudInit", provider.name)
        } else {
            format!(
                "spec.cloudInit has {} bytes, provider {} takes at most {most}: shorten it",
                text.len(),
                provider.name
            )
        };
        return Err((ProvisionedReason::CloudInitError, message));
    }
    let hash = spec_hash(&cx.observed.object.spec, text);
    let key = latch_key(&hash, provider);
    Ok(Desired { hash, key })
}

/// The request that makes the machine; the credentials must be known if the provider sets them up.
pub(super) fn create_request(
    cx: &Context<'_>,
    provider: &ProviderInfo,
    hash: &SpecHash,
) -> Result<CreateRequest, (ProvisionedReason, String)> {
    let object = &cx.observed.object;
    let access = match &cx.observed.surroundings.auth {
        Auth::Known(credentials) if provider.takes_access => Some(credentials.clone()),
        Auth::Missing(message) if provider.takes_access => {
            return Err((ProvisionedReason::AuthError, message.clone()));
        }
        Auth::None | Auth::Known(_) | Auth::Missing(_) => None,
    };
    let bootstrap = match &cx.observed.surroundings.cloud_init {
        CloudInitView::Resolved(text) => Some(Secret::new(text.expose().clone())),
        CloudInitView::NotUsed | CloudInitView::Problem(_) => None,
    };
    Ok(CreateRequest {
        name: machine_name(&object.uid),
        attempt_key: attempt_key(cx),
        port: object.spec.port.unwrap_or(DEFAULT_PORT),
        placement: placement_of(object),
        parameters: object.spec.parameters.clone().unwrap_or_default(),
        bootstrap,
        access,
        tags: machine_tags(&cx.owner(), &object.key, provider_name(provider), hash),
    })
}

fn provider_name(provider: &ProviderInfo) -> &ProviderName {
    &provider.name
}

fn placement_of(object: &ObjectFacts) -> Map<String, Value> {
    let json = object.spec.placement.as_ref().and_then(|placement| serde_json::to_value(placement).ok());
    match json {
        Some(Value::Object(map)) => map,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | None => {
            Map::new()
        }
    }
}

/// A UUID that is equal for all tries until one is answered, and new for each process: an upstream that
/// remembers keys must not take a new machine for an old one.
fn attempt_key(cx: &Context<'_>) -> String {
    let mut digest = Sha256::new();
    digest.update(cx.observed.object.uid.as_str().as_bytes());
    digest.update(cx.observed.memory.seed.to_be_bytes());
    digest.update(cx.observed.memory.attempts.to_be_bytes());
    let text = hex(&digest.finalize());
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    // Version 8 (free form), variant 10xx.
    format!("{}-{}-8{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

/// The metadata that must be written down before the create, if it isn't yet.
pub(super) fn metadata_patch(
    object: &ObjectFacts,
    hash: &SpecHash,
    planned: Option<&InstanceId>,
    scope: &str,
) -> Option<MetadataPatch> {
    let annotation = hash.annotation();
    let same_hash = object.spec_hash.as_deref() == Some(annotation.as_str());
    let same_id = object.planned_id.as_ref() == planned;
    let same_scope = object.planned_scope.as_deref() == Some(scope);
    if object.has_finalizer() && same_hash && same_id && same_scope {
        return None;
    }
    Some(MetadataPatch {
        resource_version: object.resource_version.clone(),
        finalizers: with_finalizer(object),
        spec_hash: (!same_hash).then_some(annotation),
        planned_id: (!same_id).then(|| planned.cloned()),
        planned_scope: (!same_scope).then(|| scope.to_owned()),
    })
}

/// Takes a machine over: the finalizer, and the hash where the machine itself doesn't say what it is.
pub(super) fn adoption_patch(object: &ObjectFacts, hash: Option<&SpecHash>) -> Option<MetadataPatch> {
    let annotation = hash.map(SpecHash::annotation).filter(|hash| object.spec_hash.as_ref() != Some(hash));
    if object.has_finalizer() && annotation.is_none() {
        return None;
    }
    Some(MetadataPatch {
        resource_version: object.resource_version.clone(),
        finalizers: with_finalizer(object),
        spec_hash: annotation,
        planned_id: None,
        planned_scope: None,
    })
}

/// Removes our finalizer and nobody else's.
pub(super) fn without_finalizer(object: &ObjectFacts) -> MetadataPatch {
    let finalizers = object.finalizers.iter().filter(|name| *name != FINALIZER).cloned().collect();
    MetadataPatch {
        resource_version: object.resource_version.clone(),
        finalizers,
        spec_hash: None,
        planned_id: None,
        planned_scope: None,
    }
}

fn with_finalizer(object: &ObjectFacts) -> Vec<String> {
    let mut all = object.finalizers.clone();
    if !object.has_finalizer() {
        all.push(FINALIZER.to_owned());
    }
    all
}
