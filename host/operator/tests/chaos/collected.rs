//! Plain deletes come right after creates, while operators that collect garbage come and go: in the end one
//! Proxy has its machine, and there is no other. kube-apiserver looks at the finalizers of an object first and deletes it then, so that such a delete may
//! take away an object whose finalizer was just added; what is made for it is garbage collection's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use egress_proxies_core::gc::Seen;
use egress_proxies_core::ids::ProviderName;
use egress_proxies_operator::gc::{GcMetrics, PassOutcome, Removed};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use crate::churn::restarts;
use crate::gate::Fates;
use crate::operator::{Access, World};
use crate::settings::{Settings, say};
use crate::wiring::is_ready;

const PATIENCE: Duration = Duration::from_mins(2);
/// One that stays: its machine must outlive all that is collected beside it.
const STAYS: &str = "stays";

/// Machines that garbage collection deleted.
#[derive(Default)]
pub(crate) struct Collected(AtomicU64);

impl GcMetrics for Collected {
    fn pass(&self, _outcome: PassOutcome) {}
    fn seen(&self, _provider: &ProviderName, _seen: Option<(&Seen, Option<usize>)>) {}
    fn removed(&self, _provider: &ProviderName, removed: Removed) {
        self.0.fetch_add(u64::from(removed == Removed::Deleted), Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_deletes_during_creates_and_kills_leave_no_machine_once_garbage_is_collected() {
    let Some(access) = Access::open().await else { return };
    let world = World::new(&access, "collected", Fates::calm()).await;
    let collected = Arc::<Collected>::default();
    let spec = json!({"mode": "Managed", "provider": "fake"});
    world.create(STAYS, spec.clone()).await.unwrap();
    let made = tokio::select! {
        made = churn(&world) => made,
        () = restarts(|| world.start_collecting(&collected)) => unreachable!(),
    };
    let forced = forced_away_while_nobody_looks(&world);
    tokio::time::timeout(PATIENCE, forced).await.expect("two more become Ready");
    let last = world.start_collecting(&collected);
    let drained = tokio::time::timeout(PATIENCE, drained(&world)).await;
    let machines = world.cloud.machines();
    let (born, collected) = (world.cloud.born(), collected.0.load(Ordering::SeqCst));
    say(&format!(
        "plain deletes: {made} Proxies, {born} machines made, {collected} of them collected, {} left",
        machines.len()
    ));
    assert!(drained.is_ok(), "left: {:#?}, {machines:#?}", world.state().await);
    assert!(collected >= 2, "of those that were forced away nothing tells but the cloud");
    assert!(born > 3 && world.cloud.doubles().is_empty(), "{:?}", world.cloud.doubles());
    last.end().await;
}

/// Two that were Ready, deleted by force between two operators.
async fn forced_away_while_nobody_looks(world: &World) {
    let operator = world.start();
    for name in ["x", "y"] {
        world.create(name, json!({"mode": "Managed", "provider": "fake"})).await.unwrap();
        while !world.get(name).await.is_some_and(|proxy| is_ready(&proxy)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    operator.end().await;
    for name in ["x", "y"] {
        world.patch(name, json!({"metadata": {"finalizers": null}})).await;
        delete_plainly(world, name).await;
    }
}

/// Deletes each Proxy a moment after it was created: before, during or after its first pass.
async fn churn(world: &World) -> u64 {
    let end = Instant::now() + Duration::from_secs(Settings::read().churn_seconds);
    let mut made = 0_u64;
    while Instant::now() < end {
        let name = format!("p{made}");
        world.create(&name, json!({"mode": "Managed", "provider": "fake"})).await.unwrap();
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..30))).await;
        delete_plainly(world, &name).await;
        made += 1;
    }
    made
}

/// Whatever its version is.
async fn delete_plainly(world: &World, name: &str) {
    let uid = world.get(name).await.and_then(|proxy| proxy.metadata.uid);
    world.books.deleted(uid);
    if let Err(error) = world.proxies().delete(name, &DeleteParams::default()).await {
        say(&format!("the delete of {name} was not answered well: {error}"));
    }
}

/// One Proxy and its machine, and nothing else, now and a few passes later.
async fn drained(world: &World) {
    let mut calm = 0;
    while calm < 10 {
        let one = world.list().await.len() == 1 && world.cloud.machines().len() == 1;
        let named = world.get(STAYS).await.and_then(|proxy| proxy.status?.provider_id);
        let its = world.cloud.machines().iter().any(|machine| Some(machine.id.as_str()) == named.as_deref());
        calm = if one && its && world.cloud.landing() == 0 { calm + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
