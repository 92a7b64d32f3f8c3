//! The one Secret that a provider may create: that of the machine being made, owned by its Pod.
//!
//! The name and the owner keep it from growing into a store of its own, and the type keeps it from being
//! filled by Kubernetes (a Secret of type service-account-token is).

use serde_json::Value;

pub(super) fn check(secret: &Value, machine: &str) -> Result<(), String> {
    let text = |pointer: &str| secret.pointer(pointer).and_then(Value::as_str);
    if text("/metadata/name") != Some(machine) {
        return Err(format!("a Secret may only have the name of the machine being made, {machine}"));
    }
    if secret.pointer("/metadata/generateName").is_some() {
        return Err("metadata.generateName is not allowed in a Secret".to_owned());
    }
    if !matches!(text("/type"), None | Some("Opaque")) {
        return Err("a Secret may only have the type Opaque".to_owned());
    }
    let owners = secret.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let by_pod = owners.is_some_and(|owners| {
        !owners.is_empty()
            && owners.iter().all(|owner| {
                let field = |name: &str| owner.get(name).and_then(Value::as_str);
                field("kind") == Some("Pod")
                    && field("apiVersion") == Some("v1")
                    && field("name") == Some(machine)
                    && field("uid").is_some_and(|uid| !uid.is_empty())
            })
    });
    if by_pod {
        Ok(())
    } else {
        Err(format!("the Secret needs an ownerReference to Pod {machine}, with its uid"))
    }
}
