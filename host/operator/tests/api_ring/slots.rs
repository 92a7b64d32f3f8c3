//! A provider that never answers, beside one that does: it has no more passes than its share, however many of its
//! Proxies are due.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Instance, InstanceRef, Listing, Lookup, Observation, Provider,
    ProviderInfo, ProviderSettings, Providers, Tags,
};
use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::operator::{Bench, Crash, managed, quick};
use crate::provider::Configured;

/// Far more than there are passes at once.
const SLOW: usize = 300;
/// Passes that one provider alone may have.
const SHARE: usize = 96;

/// The provider `slow`: each of its calls hangs.
struct Slow {
    info: ProviderInfo,
    hanging: AtomicUsize,
}

impl Slow {
    fn hang<'a, T: 'a>(&'a self) -> Call<'a, T> {
        self.hanging.fetch_add(1, Ordering::SeqCst);
        Box::pin(pending())
    }

    fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }
}

impl Provider for Slow {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn validate_create<'a>(&'a self, _: &'a CreateRequest) -> Call<'a, CreatePlan> {
        self.hang()
    }

    fn create<'a>(&'a self, _: &'a CreateRequest) -> Call<'a, Instance> {
        self.hang()
    }

    fn get<'a>(&'a self, _: &'a InstanceRef) -> Call<'a, Observation> {
        self.hang()
    }

    fn delete<'a>(&'a self, _: &'a InstanceRef) -> Call<'a, Deletion> {
        self.hang()
    }

    fn list_owned<'a>(&'a self, _: &'a Tags) -> Call<'a, Listing> {
        self.hang()
    }
}

/// A providers config with `fake` and `slow` in it.
struct Both {
    fake: Configured,
    slow: Arc<Slow>,
}

impl Both {
    fn new(bench: &Bench) -> (Arc<Self>, Arc<Slow>) {
        let name = ProviderName::parse("slow").unwrap();
        let info = bench.shelf.info(&name, "sha256:01");
        let slow = Arc::new(Slow { info, hanging: AtomicUsize::new(0) });
        let fake = Configured::new(Arc::clone(&bench.shelf), Arc::clone(&bench.cloud), Crash::never());
        (Arc::new(Self { fake, slow: Arc::clone(&slow) }), slow)
    }
}

impl Providers for Both {
    fn lookup(&self, name: &ProviderName) -> Lookup {
        if *name == self.slow.info.name {
            return Lookup::Ready(Arc::<Slow>::clone(&self.slow));
        }
        self.fake.lookup(name)
    }

    fn settings(&self, name: &ProviderName) -> Option<ProviderSettings> {
        if *name == self.slow.info.name {
            return Some(self.slow.info.settings.clone());
        }
        self.fake.settings(name)
    }
}

#[tokio::test]
async fn a_provider_that_never_answers_holds_up_its_own_proxies_alone() {
    let Some(bench) = Bench::open("slots").await else { return };
    let names: Vec<String> = (0..SLOW).map(|number| format!("slow{number}")).collect();
    let spec = json!({"mode": "Managed", "provider": "slow"});
    join_all(names.iter().map(|name| bench.create(name, spec.clone()))).await;
    let (both, slow) = Both::new(&bench);
    let operator = bench.operator_of(both, bench.shelf.changes(), quick(), Crash::never());
    let began = Instant::now();
    while slow.hanging() < SHARE {
        assert!(began.elapsed() < Duration::from_mins(1), "only {} calls were made", slow.hanging());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    let others: Vec<String> = (0..5).map(|number| format!("quick{number}")).collect();
    for name in &others {
        bench.create(name, managed()).await;
    }
    for name in &others {
        bench.until_ready(name).await;
        bench.delete(name).await;
    }
    for name in &others {
        bench.until_gone(name).await;
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(slow.hanging(), SHARE);
    // Nothing ends, so that those without a place wait longer and longer; how long it is by now is up to the machine.
    let began = Instant::now();
    while operator.metrics.longest_wait() < Duration::from_secs(2) {
        assert!(began.elapsed() < Duration::from_secs(20), "whoever is on call sees that others wait");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
