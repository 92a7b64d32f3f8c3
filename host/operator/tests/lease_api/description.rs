//! The committed description is the one that the code makes, and names every route there is.

use egress_proxies_operator::http::openapi_json;
use http::Method;
use serde_json::Value;

use crate::world::{World, proxy};

#[test]
fn the_committed_description_is_up_to_date() {
    let committed = include_str!("../../../../openapi/discovery.json");
    assert!(
        committed == openapi_json(),
        "openapi/discovery.json is out of date; write it anew with `egress-proxies-operator openapi`"
    );
}

#[tokio::test]
async fn every_described_route_exists_and_is_served_as_described() {
    let world = World::new([proxy("p")]).await;
    let served = world.get("/openapi.json").await;
    assert_eq!(served.headers["content-type"], "application/json");
    assert_eq!(served.text, openapi_json());
    let description = served.json();
    let paths = description["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 9);
    for (path, operations) in paths {
        let real = path.replace("{namespace}", "default").replace("{name}", "p").replace("{id}", "x");
        for (method, operation) in operations.as_object().expect("operations") {
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = world.call(method.clone(), &real, "{}").await;
            assert_ne!(answer.status, 405, "{method} {path}");
            if answer.status == 404 {
                assert_eq!(answer.json()["error"], "unknown_lease", "{method} {path}");
            }
            let described = operation["responses"].as_object().expect("responses");
            assert!(described.contains_key(answer.status.as_str()), "{method} {path}: {}", answer.status);
        }
    }
}

#[test]
fn requests_refuse_unknown_fields_in_the_description_too() {
    let description: Value = serde_json::from_str(openapi_json()).unwrap();
    for name in ["LeaseRequest", "RenewRequest", "ReportRequest"] {
        let schema = &description["components"]["schemas"][name];
        assert_eq!(schema["additionalProperties"], false, "{name}: {schema}");
    }
    let ttl = &description["components"]["schemas"]["LeaseRequest"]["properties"]["ttlSeconds"];
    assert_eq!((&ttl["minimum"], &ttl["maximum"]), (&1.into(), &86_400.into()), "{ttl}");
}
