//! Writes of finalizers and annotations.
//!
//! A merge patch replaces the finalizer list as a whole, so it is guarded by uid and resourceVersion and
//! carries the finalizers of others as they were read. A patch that meets another version of the object
//! is never forced: the caller looks again and decides anew.

use egress_proxies_core::crd::{
    PLANNED_ID_ANNOTATION, PLANNED_SCOPE_ANNOTATION, Proxy, SPEC_HASH_ANNOTATION,
};
use egress_proxies_core::ids::ProxyUid;
use egress_proxies_core::lifecycle::MetadataPatch;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

/// Sends the patch for the object `name` of this uid.
pub(crate) async fn patch(
    api: &Api<Proxy>,
    name: &str,
    uid: &ProxyUid,
    wanted: &MetadataPatch,
) -> Result<Proxy, kube::Error> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(body(uid, wanted))).await
}

fn body(uid: &ProxyUid, wanted: &MetadataPatch) -> Value {
    let mut annotations = Map::new();
    if let Some(hash) = &wanted.spec_hash {
        annotations.insert(SPEC_HASH_ANNOTATION.to_owned(), json!(hash));
    }
    if let Some(id) = &wanted.planned_id {
        annotations.insert(PLANNED_ID_ANNOTATION.to_owned(), json!(id)); // null removes it
    }
    if let Some(scope) = &wanted.planned_scope {
        annotations.insert(PLANNED_SCOPE_ANNOTATION.to_owned(), json!(scope));
    }
    let mut metadata = json!({
        "uid": uid,
        "resourceVersion": wanted.resource_version,
        "finalizers": wanted.finalizers,
    });
    if let (false, Value::Object(fields)) = (annotations.is_empty(), &mut metadata) {
        fields.insert("annotations".to_owned(), Value::Object(annotations));
    }
    json!({ "metadata": metadata })
}

#[cfg(test)]
mod tests {
    use super::*;
    use egress_proxies_core::ids::InstanceId;

    fn wanted() -> MetadataPatch {
        MetadataPatch {
            resource_version: "7".to_owned(),
            finalizers: vec!["other.example.com/one".to_owned()],
            spec_hash: None,
            planned_id: None,
            planned_scope: None,
        }
    }

    #[test]
    fn a_patch_is_guarded_and_touches_no_annotation_that_it_does_not_name() {
        let uid = ProxyUid::parse("u-1").unwrap();
        let expected = json!({"metadata": {
            "uid": "u-1", "resourceVersion": "7", "finalizers": ["other.example.com/one"]
        }});
        assert_eq!(body(&uid, &wanted()), expected);
    }

    #[test]
    fn annotations_are_set_and_removed_together_with_the_finalizers() {
        let uid = ProxyUid::parse("u-1").unwrap();
        let id = InstanceId::parse("ns/px-1").unwrap();
        let set = MetadataPatch {
            spec_hash: Some("v1:ab".to_owned()),
            planned_id: Some(Some(id)),
            planned_scope: Some("ns".to_owned()),
            ..wanted()
        };
        let annotations = &body(&uid, &set)["metadata"]["annotations"];
        assert_eq!(
            annotations,
            &json!({
                "crawl.example.com/spec-hash": "v1:ab",
                "crawl.example.com/planned-id": "ns/px-1",
                "crawl.example.com/planned-scope": "ns",
            })
        );
        let removed = MetadataPatch { planned_id: Some(None), ..wanted() };
        assert_eq!(
            body(&uid, &removed)["metadata"]["annotations"],
            json!({"crawl.example.com/planned-id": null})
        );
    }
}
