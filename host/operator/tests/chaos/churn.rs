//! Objects come and go every 100 ms while operators come and go: in the end there is nothing.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::gate::Fates;
use crate::operator::{Access, Operator, World};
use crate::settings::{Settings, say};

const PATIENCE: Duration = Duration::from_mins(2);
/// Names that come again.
const NAMES: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn churn_of_creates_deletes_and_operator_restarts_drains_to_no_proxy_and_no_machine() {
    let Some(access) = Access::open().await else { return };
    let world = World::new(&access, "churn", Fates::calm()).await;
    let made = tokio::select! {
        made = churn(&world) => made,
        () = restarts(|| world.start()) => unreachable!(),
    };
    let drained = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            () = drained(&world) => {}
            () = world.keep_running() => unreachable!(),
        }
    });
    let left = drained.await.is_err();
    let machines = world.cloud.machines();
    say(&format!("churn: {made} Proxies, {} machines made, {} left", world.cloud.born(), machines.len()));
    assert!(!left && machines.is_empty(), "left: {:#?}, {machines:#?}", world.state().await);
    assert!(world.cloud.born() > 0 && world.cloud.doubles().is_empty(), "{:?}", world.cloud.doubles());
}

/// Creates one and deletes one every 100 ms; the names come again.
async fn churn(world: &World) -> u64 {
    let end = Instant::now() + Duration::from_secs(Settings::read().churn_seconds);
    let mut made = 0_u64;
    let mut step = 0_u64;
    while Instant::now() < end {
        let name = |number: u64| format!("p{}", number % NAMES);
        let spec = json!({"mode": "Managed", "provider": "fake"});
        made += u64::from(world.create(&name(step), spec).await.is_ok());
        world.delete(&name(step.wrapping_add(6))).await;
        step += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for number in 0..NAMES {
        world.delete(&format!("p{number}")).await;
    }
    made
}

/// An operator for a moment or a few seconds, then the next; none ends in order.
pub(crate) async fn restarts(start: impl Fn() -> Operator) {
    loop {
        let operator = start();
        tokio::time::sleep(Duration::from_millis(rand::random_range(200..3000))).await;
        drop(operator);
    }
}

async fn drained(world: &World) {
    loop {
        if world.list().await.is_empty() && world.cloud.machines().is_empty() && world.cloud.landing() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
