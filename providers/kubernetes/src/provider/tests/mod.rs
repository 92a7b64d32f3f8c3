//! The calls against an API server that keeps real state.

mod calls;
mod creation;
mod fake;
mod plans;

use egress_proxies_provider_sdk::model::{CreateRequest, Credentials, InstanceRef, Pair};

use fake::{Fake, Fault, NAMESPACE, status_body};

use super::Kubernetes;

const NAME: &str = "px-3f0c2a4e-0000-4000-8000-000000000001";

fn pair(key: &str, value: &str) -> Pair {
    Pair { key: key.into(), value: value.into() }
}

fn owner() -> Vec<Pair> {
    vec![pair("proxy-operator-uid", &NAME[3..]), pair("proxy-operator-cluster", "c-1")]
}

/// A request as the operator makes it, for a machine that needs a Secret.
fn request() -> CreateRequest {
    let access = Some(Credentials { username: "crawler".into(), password: "hush".into() });
    CreateRequest { access, ..request_without_secrets() }
}

/// The same for one that needs none.
fn request_without_secrets() -> CreateRequest {
    let mut tags = owner();
    tags.push(pair("proxy-operator-name", "cut-"));
    tags.push(pair("proxy-operator-spec", "v1-0123"));
    CreateRequest {
        name: NAME.into(),
        attempt_key: "7b0f0e00-0000-4000-8000-000000000000".into(),
        port: 3128,
        placement: "{}".into(),
        parameters: "{}".into(),
        bootstrap: None,
        access: None,
        tags,
        owner: owner(),
        extra: Vec::new(),
    }
}

fn target() -> InstanceRef {
    InstanceRef { id: format!("{NAMESPACE}/{NAME}"), incarnation: None, owner: owner(), extra: Vec::new() }
}
