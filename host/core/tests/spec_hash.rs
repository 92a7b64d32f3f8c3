//! The spec hash against a golden file: a change here would replace every machine of every fleet. The file
//! was made by another implementation; never regenerate it, add to it.

use egress_proxies_core::crd::ProxySpec;
use egress_proxies_core::lifecycle::spec_hash;
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Golden {
    name: String,
    spec_json: String,
    cloud_init: Option<String>,
    canonical: String,
    annotation: String,
    tag: String,
}

#[test]
fn hashes_are_those_of_the_golden_file() {
    let golden: Vec<Golden> = serde_json::from_str(include_str!("golden/spec_hash.json")).unwrap();
    assert_eq!(golden.len(), 7);
    for case in golden {
        let spec: ProxySpec = serde_json::from_str(&case.spec_json).unwrap();
        let hash = spec_hash(&spec, case.cloud_init.as_deref());
        assert_eq!(hash.annotation(), case.annotation, "{}", case.name);
        assert_eq!(hash.tag(), case.tag, "{}", case.name);
        let digest = Sha256::digest(case.canonical.as_bytes());
        let hex = case.annotation.strip_prefix("v1:").unwrap();
        let bytes: Vec<u8> =
            (0..32).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
        assert_eq!(digest.as_slice(), bytes, "{}", case.name);
    }
}

#[test]
fn another_way_of_writing_a_spec_and_what_no_machine_is_made_from_change_nothing() {
    let hash = |text: &str| spec_hash(&serde_json::from_str(text).unwrap(), None);
    let base = hash(
        r#"{"mode":"Managed","provider":"a","placement":{"zone":"z","image":"i"},
            "parameters":{"x":1,"y":{"b":2,"a":[1,2]}}}"#,
    );
    for (what, text) in [
        (
            "reordered keys",
            r#"{"parameters":{"y":{"a":[1,2],"b":2},"x":1},
                "placement":{"image":"i","zone":"z"},"provider":"a","mode":"Managed"}"#,
        ),
        (
            "defaulted fields",
            r#"{"mode":"Managed","provider":"a","placement":{"zone":"z","image":"i"},
                "parameters":{"x":1,"y":{"b":2,"a":[1,2]}},"suspend":false,"attributes":{},
                "healthCheck":{"intervalSeconds":30,"timeoutSeconds":10}}"#,
        ),
        (
            "what clients and probes use",
            r#"{"mode":"Managed","provider":"a","placement":{"zone":"z","image":"i"},
                "parameters":{"x":1,"y":{"b":2,"a":[1,2]}},"suspend":true,"attributes":{"geo":"eu"},
                "maxLeases":3,"healthCheck":{"url":"http://x/","intervalSeconds":5,"timeoutSeconds":5},
                "auth":{"secretRef":{"name":"s"}}}"#,
        ),
    ] {
        assert_eq!(hash(text), base, "{what}");
    }
}

#[test]
fn each_part_that_counts_changes_the_hash() {
    let base = || -> ProxySpec { serde_json::from_str(r#"{"mode":"Managed","provider":"a"}"#).unwrap() };
    let other = |text: &str| spec_hash(&serde_json::from_str(text).unwrap(), None);
    let hash = spec_hash(&base(), None);
    assert_ne!(hash, spec_hash(&base(), Some("x")));
    for text in [
        r#"{"mode":"Managed","provider":"b"}"#,
        r#"{"mode":"Managed","provider":"a","port":1}"#,
        r#"{"mode":"Managed","provider":"a","placement":{"zone":"z"}}"#,
        r#"{"mode":"Managed","provider":"a","parameters":{"k":null}}"#,
    ] {
        assert_ne!(hash, other(text), "{text}");
    }
}
