//! The only writer of `.status`.
//!
//! A JSON Patch that tests uid and resourceVersion first: a status that was worked out from another version
//! of the object, or for another object of the same name, is never written. Whether anything is to be
//! written is decided before (`needs_write`); at rest nothing is sent.

use egress_proxies_core::crd::{Proxy, ProxyStatus};
use egress_proxies_core::lifecycle::ObjectFacts;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// Writes the status of the object as it was read.
#[expect(clippy::disallowed_methods, reason = "this is the only writer of .status")]
pub(crate) async fn write(
    api: &Api<Proxy>,
    seen: &ObjectFacts,
    status: &ProxyStatus,
) -> Result<Proxy, kube::Error> {
    let steps = json!([
        { "op": "test", "path": "/metadata/uid", "value": seen.uid },
        { "op": "test", "path": "/metadata/resourceVersion", "value": seen.resource_version },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let patch = serde_json::from_value(steps).map_err(kube::Error::SerdeError)?;
    api.patch_status(&seen.key.name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
}
