//! What clients tell, and what it does to later leases.

use serde_json::json;

use crate::world::{World, proxy};

async fn report(world: &World, lease: &str, body: &str) -> u16 {
    world.post(&format!("/v1/leases/{lease}/report"), body).await.status.as_u16()
}

#[tokio::test]
async fn a_ban_keeps_the_proxy_from_its_target_until_it_is_over_or_undone() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease(r#"{"target":"b\u00fccher.example"}"#).await;
    assert_eq!(report(&world, &lease, r#"{"result":"banned","release":true}"#).await, 204);
    let wanted = r#"{"target":"XN--BCHER-KVA.example."}"#;
    let refused = world.post("/v1/leases", wanted).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["inCooldown"]), (409, &json!(1)));
    assert_eq!(refused.headers["retry-after"], "900");
    assert_eq!(world.post("/v1/leases", r#"{"target":"other.example"}"#).await.status, 201);
    assert_eq!(world.delete("/v1/proxies/default/p/cooldowns?target=other.example").await.status, 204);
    assert_eq!(world.post("/v1/leases", wanted).await.status, 409);
    for _ in 0..2 {
        let path = "/v1/proxies/default/p/cooldowns?target=b%C3%BCcher.example";
        assert_eq!(world.delete(path).await.status, 204);
    }
    assert_eq!(world.post("/v1/leases", wanted).await.status, 201);
}

#[tokio::test]
async fn without_any_target_a_ban_covers_every_target_and_clearing_all_undoes_it() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease("{}").await;
    assert_eq!(report(&world, &lease, r#"{"result":"rate_limited","cooldownSeconds":30}"#).await, 204);
    for body in ["{}", r#"{"target":"a.com"}"#] {
        assert_eq!(world.post("/v1/leases", body).await.headers["retry-after"], "30");
    }
    assert_eq!(world.delete("/v1/proxies/default/p/cooldowns").await.status, 204);
    assert_eq!(world.post("/v1/leases", "{}").await.status, 201);
}

#[tokio::test]
async fn a_report_after_the_end_of_the_lease_counts_for_a_while() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease(r#"{"ttlSeconds":10,"target":"a.com"}"#).await;
    world.wait(900);
    assert_eq!(report(&world, &lease, r#"{"result":"banned"}"#).await, 204);
    assert_eq!(world.post("/v1/leases", r#"{"target":"a.com"}"#).await.status, 409);
    world.wait(10);
    let late = world.post(&format!("/v1/leases/{lease}/report"), r#"{"result":"ok"}"#).await;
    assert_eq!(late.error(), (404, "unknown_lease".to_owned()));
}

#[tokio::test]
async fn an_unreachable_proxy_is_not_leased_and_counts_as_unhealthy() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease("{}").await;
    assert_eq!(report(&world, &lease, r#"{"result":"unreachable"}"#).await, 204);
    let refused = world.post("/v1/leases", "{}").await.json();
    assert_eq!((&refused["reason"], &refused["unhealthy"]), (&json!("busy"), &json!(1)));
}
