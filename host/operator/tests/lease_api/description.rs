//! The committed description is the one that the code makes. That every answer is described is checked by
//! `described` in all tests.

use egress_proxies_operator::http::openapi_json;
use http::Method;
use serde_json::json;

use crate::described::{description, object, validator};
use crate::world::{World, proxy, with};

#[test]
fn the_committed_description_is_up_to_date() {
    let committed = include_str!("../../../../openapi/discovery.json");
    assert!(
        committed == openapi_json(),
        "openapi/discovery.json is out of date; write it anew with `egress-proxies-operator openapi`"
    );
}

#[tokio::test]
async fn the_routes_and_methods_described_are_those_that_are_served() {
    let world = World::new([proxy("p")]).await;
    let served = world.get("/openapi.json").await;
    assert_eq!(served.headers["content-type"], "application/json");
    assert_eq!(served.text, openapi_json());
    let description = description();
    assert_eq!(object(&description["paths"]).len(), 9);
    for (path, operations) in object(&description["paths"]) {
        let real = path.replace("{namespace}", "default").replace("{name}", "p").replace("{id}", "x");
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = world.call(method.clone(), &real, "{}").await;
            let described = object(operations).contains_key(&method.as_str().to_lowercase());
            assert_eq!(answer.status != 405, described, "{method} {path}: {}", answer.status);
        }
    }
}

#[test]
fn what_the_server_refuses_the_description_refuses_too() {
    let description = description();
    let valid = |name: &str, body: serde_json::Value| {
        validator(&json!({"$ref": format!("#/components/schemas/{name}")}), &description).is_valid(&body)
    };
    for name in ["LeaseRequest", "RenewRequest", "ReportRequest"] {
        let least = if name == "ReportRequest" { json!({"result": "ok"}) } else { json!({}) };
        assert!(valid(name, least.clone()), "{name}");
        let mut more = least;
        more["unknown"] = json!(1);
        assert!(!valid(name, more), "{name}");
    }
    let refused = [
        ("ReportRequest", json!({})),
        ("ReportRequest", json!({"result": "meh"})),
        ("ReportRequest", json!({"result": "banned", "cooldownSeconds": 0})),
        ("LeaseRequest", json!({"ttlSeconds": 0})),
        ("LeaseRequest", json!({"ttlSeconds": 86_401})),
        ("LeaseRequest", json!({"session": ""})),
        ("LeaseRequest", json!({"namespace": ""})),
        ("RenewRequest", json!({"ttlSeconds": 86_401})),
    ];
    for (name, body) in refused {
        assert!(!valid(name, body.clone()), "{name} {body}");
    }
}

#[tokio::test]
async fn a_refused_lease_fits_exactly_one_of_the_two_described_bodies() {
    let world = World::new([with("p", |f| f.max_leases = Some(1))]).await;
    world.lease(r#"{"session":"s"}"#).await;
    let busy = world.post("/v1/leases", "{}").await.json();
    let conflict = world.post("/v1/leases", r#"{"session":"s","target":"a.com"}"#).await.json();
    let description = description();
    let fits = |body: &serde_json::Value| {
        let branches = ["NoMatchBody", "SessionConflictBody"];
        branches.map(|name| {
            validator(&json!({"$ref": format!("#/components/schemas/{name}")}), &description).is_valid(body)
        })
    };
    assert_eq!((fits(&busy), fits(&conflict)), ([true, false], [false, true]));
}
