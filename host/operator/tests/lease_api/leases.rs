//! Granting, renewing, releasing.

use std::sync::Arc;

use egress_proxies_core::crd::Phase;
use egress_proxies_core::facts::Auth;
use egress_proxies_core::ids::Incarnation;
use egress_proxies_operator::http::LeaseOutcome;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use url::Url;

use crate::described::description;
use crate::world::{World, credentials, proxy, with};

#[tokio::test]
async fn a_lease_brings_all_that_a_client_needs_to_connect() {
    let world = World::new([with("p", |f| f.auth = credentials("us er", "p@ss"))]).await;
    let answer = world.post("/v1/leases", r#"{"selector":{"geo":["local","de"]},"ttlSeconds":60}"#).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers["cache-control"], "no-store");
    let mut lease = answer.json();
    assert_eq!(lease["leaseID"].take().as_str().map(str::len), Some(36));
    let expected = json!({
        "leaseID": null,
        "proxy": {
            "id": "default/p", "ip": "192.0.2.1", "port": 3128,
            "url": "http://us%20er:p%40ss@192.0.2.1:3128", "server": "http://192.0.2.1:3128",
            "username": "us er", "password": "p@ss", "authRequired": true, "mode": "External",
            "provider": null, "attributes": {"geo": "local"}, "latencyMillis": 12,
        },
        "expiresAt": "2027-01-15T08:01:00Z",
        "ttlSeconds": 60,
    });
    assert_eq!(lease, expected);
}

#[tokio::test]
async fn awkward_passwords_reach_the_client_whole_as_url_and_as_fields() {
    let password = "p@s:s/w%o$r#d \u{e9}\u{1f4a5}?&+\"";
    for address in ["192.0.2.1", "2001:db8::1", "proxy.example.com"] {
        let facts = with("p", |f| {
            f.auth = credentials("us:er", password);
            f.machine.as_mut().unwrap().address = address.to_owned();
        });
        let lease = World::new([facts]).await.post("/v1/leases", "{}").await.json();
        assert_eq!(lease["proxy"]["password"], password);
        let url = Url::parse(lease["proxy"]["url"].as_str().unwrap()).unwrap();
        let decoded = percent_decode_str(url.password().unwrap()).decode_utf8().unwrap();
        assert_eq!((decoded.as_ref(), url.port()), (password, Some(3128)));
        assert_eq!(url.host_str().unwrap().trim_matches(['[', ']']), address);
    }
}

#[tokio::test]
async fn two_hundred_parallel_calls_for_one_place_get_one_lease() {
    let world = Arc::new(World::new([with("p", |f| f.max_leases = Some(1))]).await);
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let world = Arc::clone(&world);
        calls.spawn(async move { world.post("/v1/leases", "{}").await });
    }
    let answers = calls.join_all().await;
    let granted = answers.iter().filter(|answer| answer.status == 201).count();
    let refused = answers.iter().filter(|answer| {
        answer.status == 409 && answer.headers["retry-after"] == "300" && answer.json()["reason"] == "busy"
    });
    assert_eq!((granted, refused.count()), (1, 199));
}

#[tokio::test]
async fn a_refusal_says_how_many_stand_where_and_the_counts_add_up() {
    let world = World::new([
        with("full", |f| f.max_leases = Some(1)),
        with("busy", |f| f.max_leases_per_target = Some(1)),
        with("sick", |f| f.healthy = Some(false)),
        with("off", |f| f.suspend = true),
        with("new", |f| f.healthy = None),
        with("locked", |f| f.auth = Auth::Missing("no Secret".to_owned())),
        with("replaced", |f| f.phase = Phase::Replacing),
        with("leaving", |f| f.deleting = true),
        with("resting", |f| f.latency = None),
    ])
    .await;
    let body = r#"{"target":"a.com"}"#;
    for _ in 0..2 {
        world.lease(body).await;
    }
    let third = world.lease(body).await;
    world.post(&format!("/v1/leases/{third}/report"), r#"{"result":"banned","release":true}"#).await;
    let answer = world.post("/v1/leases", body).await;
    let mut refusal = answer.json();
    assert!(refusal["message"].take().is_string());
    let expected = json!({
        "error": "no_match", "message": null, "reason": "busy", "considered": 8, "atCapacity": 1,
        "targetAtCapacity": 1, "inCooldown": 1, "unhealthy": 1, "suspended": 1, "notReady": 3,
    });
    assert_eq!((answer.status.as_u16(), refusal), (409, expected));
    assert_eq!(answer.headers["retry-after"], "300");
}

#[tokio::test]
async fn a_selector_that_nothing_matches_is_told_apart_from_a_busy_fleet() {
    let world = World::new([proxy("p")]).await;
    let answer = world.post("/v1/leases", r#"{"selector":{"goe":"local"}}"#).await;
    assert_eq!(answer.error(), (409, "no_match".to_owned()));
    assert_eq!(
        (&answer.json()["reason"], &answer.json()["considered"]),
        (&json!("no_such_proxy"), &json!(0))
    );
    assert!(answer.message().contains("goe"), "{}", answer.message());
    assert!(answer.headers.get("retry-after").is_none());
    let excluded = world.post("/v1/leases", r#"{"exclude":["default/p"]}"#).await;
    assert_eq!(excluded.json()["reason"], "no_such_proxy");
    for part in ["selector, namespace and exclude", "GET /v1/proxies"] {
        assert!(excluded.message().contains(part), "{}", excluded.message());
    }
    let elsewhere = world.post("/v1/leases", r#"{"namespace":"team"}"#).await;
    assert_eq!(elsewhere.json()["reason"], "no_such_proxy");
}

#[tokio::test]
async fn what_must_not_be_handed_out_never_is() {
    let changes: [fn(&mut egress_proxies_core::facts::ProxyFacts); 7] = [
        |f| f.deleting = true,
        |f| f.suspend = true,
        |f| f.healthy = Some(false),
        |f| f.healthy = None,
        |f| f.phase = Phase::Replacing,
        |f| f.machine = None,
        |f| f.auth = Auth::Missing("no Secret".to_owned()),
    ];
    for (row, change) in changes.into_iter().enumerate() {
        let world = World::new([proxy("p")]).await;
        let first = world.post("/v1/leases", r#"{"session":"s"}"#).await;
        assert_eq!(first.status, 201);
        world.set([with("p", change)]);
        for body in ["{}", r#"{"session":"s"}"#, r#"{"prefer":"spread"}"#] {
            assert_eq!(world.post("/v1/leases", body).await.status, 409, "row {row}: {body}");
        }
    }
}

#[tokio::test]
async fn a_retried_session_holds_one_proxy_not_two() {
    let world = World::new([proxy("a"), proxy("b")]).await;
    let body = r#"{"session":"job-1","target":"a.com"}"#;
    let first = world.lease(body).await;
    world.wait(100);
    let again = world.post("/v1/leases", body).await;
    assert_eq!((again.status.as_u16(), &again.json()["leaseID"]), (200, &json!(first)));
    assert_eq!(again.json()["expiresAt"], "2027-01-15T08:06:40Z");
    assert_eq!(again.headers["cache-control"], "no-store");
    for other in
        [r#"{"session":"job-1"}"#, r#"{"session":"job-1","target":"a.com","selector":{"geo":"local"}}"#]
    {
        assert_eq!(world.post("/v1/leases", other).await.error(), (409, "session_conflict".to_owned()));
    }
    let same = r#"{"session":"job-1","target":"A.com.:443","ttlSeconds":9}"#;
    assert_eq!(world.post("/v1/leases", same).await.status, 200, "another spelling of the same target");
    let list = world.get("/v1/proxies").await.json();
    let active = list["proxies"].as_array().unwrap().iter().map(|p| p["activeLeases"].as_u64().unwrap());
    assert_eq!(active.sum::<u64>(), 1);
    let counted = world.counted.0.lock().unwrap().clone();
    let expected = [
        LeaseOutcome::Granted,
        LeaseOutcome::Renewed,
        LeaseOutcome::SessionConflict,
        LeaseOutcome::SessionConflict,
        LeaseOutcome::Renewed,
    ];
    assert_eq!(counted, expected);
}

#[tokio::test]
async fn renewing_lasts_from_now_and_an_ended_lease_is_unknown() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease(r#"{"ttlSeconds":60}"#).await;
    world.wait(59);
    let renewed = world.post(&format!("/v1/leases/{lease}/renew"), r#"{"ttlSeconds":120}"#).await;
    assert_eq!(
        (renewed.status.as_u16(), &renewed.json()["expiresAt"]),
        (200, &json!("2027-01-15T08:02:59Z"))
    );
    assert_eq!(renewed.headers["cache-control"], "no-store");
    world.wait(120);
    let late = world.post(&format!("/v1/leases/{lease}/renew"), "{}").await;
    assert_eq!(late.error(), (404, "unknown_lease".to_owned()));
}

#[tokio::test]
async fn a_renewal_while_credentials_cannot_be_read_keeps_the_lease_and_says_that_they_are_needed() {
    let world = World::new([with("p", |f| f.auth = credentials("user", "secret"))]).await;
    let lease = world.lease("{}").await;
    world.set([with("p", |f| f.auth = Auth::Missing("no Secret".to_owned()))]);
    let renewed = world.post(&format!("/v1/leases/{lease}/renew"), "{}").await;
    assert_eq!(renewed.status, 200);
    let proxy = &renewed.json()["proxy"];
    assert_eq!((&proxy["authRequired"], &proxy["password"]), (&json!(true), &Value::Null));
    let described = &description()["components"]["schemas"]["LeasedProxy"]["properties"]["authRequired"];
    assert!(described["description"].as_str().unwrap().contains("Secret cannot be read"), "{described}");
}

#[tokio::test]
async fn the_lease_of_a_replaced_machine_is_gone() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease("{}").await;
    world.set([with("p", |f| f.machine.as_mut().unwrap().incarnation = Incarnation::parse("p-2").unwrap())]);
    let renewed = world.post(&format!("/v1/leases/{lease}/renew"), "{}").await;
    assert_eq!(renewed.error(), (410, "machine_gone".to_owned()));
    assert_eq!(world.delete(&format!("/v1/leases/{lease}")).await.status, 204);
}

#[tokio::test]
async fn releasing_twice_late_or_something_unknown_is_fine_and_frees_nobody_elses_lease() {
    let world = World::new([with("p", |f| f.max_leases = Some(1))]).await;
    let first = world.lease("{}").await;
    assert_eq!(world.delete(&format!("/v1/leases/{first}")).await.status, 204);
    let second = world.lease("{}").await;
    for id in [first.as_str(), "unknown", "%20", "%FF", "%zz", &"x".repeat(300)] {
        assert_eq!(world.delete(&format!("/v1/leases/{id}")).await.status, 204, "{id}");
    }
    assert_eq!(world.get("/v1/proxies/default/p").await.json()["activeLeases"], 1);
    world.wait(300);
    assert_eq!(world.delete(&format!("/v1/leases/{second}")).await.status, 204);
}

#[tokio::test]
async fn a_form_content_type_as_curl_sends_it_is_no_obstacle() {
    let world = World::with_tokens([proxy("p")], Default::default()).await;
    let request = http::Request::post("/v1/leases")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(axum::body::Body::from(r#"{"selector":null,"session":null}"#))
        .unwrap();
    let answer = world.send(request).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.json()["proxy"]["username"], Value::Null);
}
