//! A replica that stands by: it shows the Proxies and keeps no leases.

use std::sync::atomic::Ordering;

use egress_proxies_operator::http::LeaseOutcome;

use crate::world::{World, proxy};

#[tokio::test]
async fn a_standby_lists_proxies_and_sends_whoever_wants_a_lease_to_another_replica() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease("{}").await;
    world.leads.store(false, Ordering::SeqCst);
    let answers = [
        world.post("/v1/leases", "{}").await,
        world.post("/v1/leases", "no JSON").await,
        world.post(&format!("/v1/leases/{lease}/renew"), "{}").await,
        world.post(&format!("/v1/leases/{lease}/report"), r#"{"result":"ok"}"#).await,
        world.delete(&format!("/v1/leases/{lease}")).await,
        world.delete("/v1/proxies/default/p/cooldowns").await,
    ];
    for answer in answers {
        assert_eq!(answer.error(), (503, "not_leader".to_owned()));
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.headers["connection"], "close", "a Service chooses a replica per connection");
        assert!(answer.message().contains("new connection"), "{}", answer.message());
    }
    let outcomes = world.counted.0.lock().unwrap().clone();
    assert_eq!(outcomes, [LeaseOutcome::Granted, LeaseOutcome::NotLeader, LeaseOutcome::NotLeader]);
    assert_eq!(world.get("/v1/proxies").await.json()["count"], 1);
    assert_eq!(world.get("/v1/proxies/default/p").await.status, 200);
    assert_eq!(world.get("/healthz").await.status, 200);

    world.leads.store(true, Ordering::SeqCst);
    assert_eq!(world.delete(&format!("/v1/leases/{lease}")).await.status, 204);
}
