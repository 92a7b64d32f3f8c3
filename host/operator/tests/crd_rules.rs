//! The Proxy CRD on a real API server: it is accepted, its defaults are filled in, and each rule refuses
//! with its message.

#[cfg(test)]
mod support;

use std::path::Path;

use egress_proxies_core::crd::{GROUP, rules};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use serde_json::{Value, json};
use support::api_server::ApiServer;

const MANAGED: &str = "{mode: Managed, provider: kubernetes}";
const EXTERNAL: &str = "{mode: External, endpoint: {host: proxy.example.com, port: 3128}}";

/// A spec that is refused at creation, and a part of the refusal.
const REFUSED: &[(&str, &str)] = &[
    // The two modes.
    ("{provider: kubernetes}", "spec.mode: Required value"),
    ("{mode: Other}", "supported values: \"Managed\", \"External\""),
    ("{mode: Managed}", "mode Managed needs a provider"),
    ("{mode: Managed, provider: ''}", "spec.provider: Invalid value"),
    ("{mode: Managed, provider: Kubernetes}", "spec.provider: Invalid value"),
    ("{mode: Managed, provider: a, endpoint: {host: h, port: 1}}", "mode Managed takes no endpoint"),
    ("{mode: External}", "mode External needs an endpoint"),
    ("{mode: External, provider: a, endpoint: {host: h, port: 1}}", "mode External takes no provider"),
    (
        "{mode: External, cloudInit: {inline: x}, endpoint: {host: h, port: 1}}",
        "mode External takes no cloudInit",
    ),
    ("{mode: External, port: 3128, endpoint: {host: h, port: 1}}", "mode External takes no port"),
    (
        "{mode: External, placement: {zone: a}, endpoint: {host: h, port: 1}}",
        "mode External takes no placement",
    ),
    (
        "{mode: External, parameters: {a: 1}, endpoint: {host: h, port: 1}}",
        "mode External takes no parameters",
    ),
    // Ports.
    ("{mode: Managed, provider: a, port: 0}", "should be greater than or equal to 1"),
    ("{mode: Managed, provider: a, port: 65536}", "should be less than or equal to 65535"),
    ("{mode: External, endpoint: {host: h, port: 0}}", "should be greater than or equal to 1"),
    ("{mode: External, endpoint: {host: h, port: 65536}}", "should be less than or equal to 65535"),
    // Hosts.
    ("{mode: External, endpoint: {host: '', port: 1}}", "must be an IPv4 address"),
    ("{mode: External, endpoint: {host: '[2001:db8::1]', port: 1}}", "must be an IPv4 address"),
    ("{mode: External, endpoint: {host: 'http://h', port: 1}}", "must be an IPv4 address"),
    ("{mode: External, endpoint: {host: 'h:3128', port: 1}}", "must be an IPv4 address"),
    ("{mode: External, endpoint: {host: '999.1.1.1', port: 1}}", "must be an IPv4 address"),
    ("{mode: External, endpoint: {host: '-h', port: 1}}", "must be an IPv4 address"),
    ("{mode: External, endpoint: {host: 'a b', port: 1}}", "must be an IPv4 address"),
    ("{mode: External, endpoint: {host: h, port: 1, protocol: socks5}}", "supported values: \"http\""),
    // Cloud-init.
    (
        "{mode: Managed, provider: a, cloudInit: {}}",
        "set exactly one of cloudInit.inline and cloudInit.secretRef",
    ),
    (
        "{mode: Managed, provider: a, cloudInit: {inline: x, secretRef: {name: s, key: k}}}",
        "set exactly one of cloudInit.inline and cloudInit.secretRef",
    ),
    ("{mode: Managed, provider: a, cloudInit: {secretRef: {name: s}}}", "secretRef.key: Required value"),
    // Maps.
    ("{mode: Managed, provider: a, attributes: {'a b': x}}", "keys of attributes have 1-63"),
    ("{mode: Managed, provider: a, attributes: {'': x}}", "keys of attributes have 1-63"),
    ("{mode: Managed, provider: a, placement: {labels: {'a b': x}}}", "keys of labels have 1-317"),
    // Probes.
    ("{mode: Managed, provider: a, healthCheck: {timeoutSeconds: 31}}", "must be at most intervalSeconds"),
    ("{mode: Managed, provider: a, healthCheck: {intervalSeconds: 9}}", "must be at most intervalSeconds"),
    (
        "{mode: Managed, provider: a, healthCheck: {intervalSeconds: 0}}",
        "should be greater than or equal to 1",
    ),
    ("{mode: Managed, provider: a, healthCheck: {url: 'ftp://h/'}}", "must be an http:// or https:// URL"),
    ("{mode: Managed, provider: a, healthCheck: {url: ''}}", "must be an http:// or https:// URL"),
    ("{mode: Managed, provider: a, healthCheck: {url: 'http://'}}", "must be an http:// or https:// URL"),
    (
        "{mode: Managed, provider: a, healthCheck: {url: 'http://u:p@h/'}}",
        "must be an http:// or https:// URL",
    ),
    (
        "{mode: Managed, provider: a, healthCheck: {expectedStatus: [99]}}",
        "should be greater than or equal to 100",
    ),
    // Limits.
    ("{mode: Managed, provider: a, maxLeases: -1}", "should be greater than or equal to 0"),
    ("{mode: Managed, provider: a, maxLeases: 1000001}", "should be less than or equal to 1000000"),
];

/// A spec, a merge patch of it that is refused, and a part of the refusal.
const CHANGES_REFUSED: &[(&str, &str, &str)] = &[
    (MANAGED, "{mode: External, provider: null, endpoint: {host: h, port: 1}}", "mode is immutable"),
    (EXTERNAL, "{mode: Managed, provider: kubernetes, endpoint: null}", "mode is immutable"),
    (MANAGED, "{provider: gcp}", "provider is immutable"),
    // The field disappears and appears: a rule on the field itself would be skipped.
    (MANAGED, "{provider: null}", "provider is immutable"),
    (EXTERNAL, "{provider: kubernetes}", "provider is immutable"),
];

/// Specs that are accepted.
const ACCEPTED: &[&str] = &[
    MANAGED,
    EXTERNAL,
    "{mode: External, endpoint: {host: 192.0.2.1, port: 65535, protocol: http}}",
    "{mode: External, endpoint: {host: '2001:db8::1', port: 1}}",
    "{mode: External, endpoint: {host: a_b.Example.com., port: 1}, auth: {secretRef: {name: s}}}",
    "{mode: Managed, provider: a, port: 1, parameters: {deep: {er: [1, two]}}, placement: {labels: {a.b/c: d}}}",
    "{mode: Managed, provider: a, cloudInit: {secretRef: {name: s.t, key: user-data}}, attributes: {geo: de}}",
    "{mode: Managed, provider: a, healthCheck: {url: 'https://h:8443/p?q#f', intervalSeconds: 10, expectedStatus: [200, 204]}}",
    "{mode: Managed, provider: a, healthCheck: {url: 'http://[2001:db8::1]/'}, maxLeases: 0, suspend: true}",
    "{mode: Managed, provider: a, port: null, cloudInit: {inline: x, secretRef: null}}",
];

#[tokio::test]
async fn each_rule_refuses_a_creation_with_its_message() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client();
    let proxies = proxies(&client, &server.namespace(&client, "refused").await);
    for (spec, expected) in REFUSED {
        let outcome = proxies.create(&PostParams::default(), &proxy("p", spec)).await;
        assert_refused(spec, outcome, expected);
    }
}

#[tokio::test]
async fn each_rule_about_a_change_refuses_with_its_message() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client();
    let proxies = proxies(&client, &server.namespace(&client, "changes").await);
    for (index, (before, patch, expected)) in CHANGES_REFUSED.iter().enumerate() {
        let name = format!("p-{index}");
        proxies.create(&PostParams::default(), &proxy(&name, before)).await.unwrap();
        let patch = json!({ "spec": yaml(patch) });
        let outcome = proxies.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        assert_refused(&format!("{before}, then {}", CHANGES_REFUSED[index].1), outcome, expected);
    }
}

#[tokio::test]
async fn what_the_descriptions_promise_is_accepted() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client();
    let proxies = proxies(&client, &server.namespace(&client, "accepted").await);
    for (index, spec) in ACCEPTED.iter().enumerate() {
        let outcome = proxies.create(&PostParams::default(), &proxy(&format!("p-{index}"), spec)).await;
        assert!(outcome.is_ok(), "{spec}: {outcome:?}");
    }
}

#[tokio::test]
async fn the_samples_are_accepted_as_they_are() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client();
    let namespace = server.namespace(&client, "samples").await;
    // Strictly, as kubectl asks for it: an unknown field is refused too.
    let uri =
        format!("/apis/{GROUP}/v1alpha1/namespaces/{namespace}/proxies?fieldValidation=Strict&dryRun=All");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/samples");
    let mut accepted = 0;
    for file in std::fs::read_dir(samples).unwrap() {
        let file = file.unwrap().path();
        for document in std::fs::read_to_string(&file).unwrap().split("\n---\n") {
            let mut document = yaml(document);
            if document["kind"] != "Proxy" {
                continue;
            }
            document["metadata"]["namespace"] = namespace.clone().into();
            let request = http::Request::post(&uri).body(document.to_string().into_bytes()).unwrap();
            let outcome = client.request_text(request).await;
            assert!(outcome.is_ok(), "{}: {outcome:?}", file.display());
            accepted += 1;
        }
    }
    assert!(accepted >= 3, "only {accepted} samples were found");
}

#[tokio::test]
async fn defaults_are_visible_in_the_stored_object() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client();
    let proxies = proxies(&client, &server.namespace(&client, "defaults").await);
    let spec = "{mode: External, endpoint: {host: h, port: 1}, auth: {secretRef: {name: s}}}";
    let stored = proxies.create(&PostParams::default(), &proxy("p", spec)).await.unwrap();
    assert_eq!(
        stored.data["spec"],
        json!({
            "mode": "External",
            "endpoint": { "host": "h", "port": 1, "protocol": "http" },
            "auth": { "secretRef": { "name": "s", "usernameKey": "username", "passwordKey": "password" } },
            "suspend": false,
            "healthCheck": {
                "intervalSeconds": 30, "timeoutSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                "insecureSkipVerify": false,
            },
        })
    );
}

#[test]
fn each_rule_has_a_case() {
    let expected: Vec<&str> = REFUSED
        .iter()
        .map(|(_, expected)| *expected)
        .chain(CHANGES_REFUSED.iter().map(|(_, _, expected)| *expected))
        .collect();
    for rule in rules::ALL.iter().copied().flatten() {
        assert!(expected.iter().any(|part| rule.message.contains(part)), "no case for: {}", rule.message);
    }
}

#[cfg(test)]
fn assert_refused(what: &str, outcome: Result<DynamicObject, Error>, expected: &str) {
    match outcome {
        Err(Error::Api(status)) => {
            assert_eq!(status.code, 422, "{what}: {}", status.message);
            assert!(status.message.contains(expected), "{what}: {:?} lacks {expected:?}", status.message);
        }
        other => panic!("{what}: not refused: {other:?}"),
    }
}

/// As a client that knows nothing of the types sends it.
#[cfg(test)]
fn proxy(name: &str, spec: &str) -> DynamicObject {
    DynamicObject::new(name, &resource()).data(json!({ "spec": yaml(spec) }))
}

#[cfg(test)]
fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[cfg(test)]
fn proxies(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

#[cfg(test)]
fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1alpha1", "Proxy"), "proxies")
}
