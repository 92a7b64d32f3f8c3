//! Committed files that are generated: each is exactly what the code makes today.

use std::path::Path;

use egress_proxies_core::crd::Proxy;
use egress_proxies_operator::cli;
use kube::CustomResourceExt;
use serde_json::Value;

#[test]
fn drift_the_committed_crd_is_the_generated_one() {
    assert_committed("crds/proxies.crawl.example.com.yaml", &cli::crd::yaml().unwrap(), "crd");
}

#[test]
fn each_field_of_the_crd_is_described() {
    let crd = serde_json::to_value(Proxy::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut fields = Vec::new();
    collect_fields("", schema, &mut fields);
    assert!(fields.len() > 40, "{fields:?}");
    let bare: Vec<&String> =
        fields.iter().filter(|(_, described)| !described).map(|(field, _)| field).collect();
    assert!(bare.is_empty(), "kubectl explain has nothing to say of: {bare:?}");
}

/// Each field below `schema`, with whether it has a description.
#[cfg(test)]
fn collect_fields(path: &str, schema: &Value, into: &mut Vec<(String, bool)>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let described = field["description"].as_str().is_some_and(|text| text.len() > 10);
        into.push((path.clone(), described));
        collect_fields(&path, field, into);
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            collect_fields(&format!("{path}[]"), &schema[below], into);
        }
    }
}

fn assert_committed(path: &str, generated: &str, command: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == generated,
        "{path} is out of date: run `cargo run -p egress-proxies-operator -- {command} > {path}` and commit it"
    );
}
