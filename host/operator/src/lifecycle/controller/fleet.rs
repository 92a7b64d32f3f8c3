//! Publishes the fleet: every Proxy as health and pool need it, from the caches, on every replica.
//!
//! An entry is replaced only when it really changed, and nothing is published otherwise. What changed
//! together goes out together. Ready, once and for good, when no provider that a Proxy names is still being
//! loaded: without its attributes a selector would miss proxies that exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_proxies_core::facts::{Fleet, ProxyFacts};
use egress_proxies_core::ids::{ProxyKey, ProxyUid};
use tokio::sync::watch;

use crate::clock::SharedClock;
use crate::lifecycle::memory::Memories;
use crate::lifecycle::observe::{Sources, key_of};
use crate::lifecycle::queue::{Queue, Taken};

/// The publisher.
pub(crate) struct FleetPublisher {
    pub(crate) sources: Sources,
    pub(crate) memories: Arc<Memories>,
    pub(crate) dirty: Arc<Queue>,
    pub(crate) fleet: watch::Sender<Fleet>,
    pub(crate) clock: SharedClock,
}

impl FleetPublisher {
    /// Publishes all, then whatever changes. The caches must be filled.
    pub(crate) async fn run(self) {
        let mut uids = BTreeMap::<ProxyKey, ProxyUid>::new();
        let now = self.clock.now().mono;
        for proxy in self.sources.stores.proxies.all() {
            self.dirty.add(key_of(&proxy), now);
        }
        loop {
            let mut fleet = self.fleet.borrow().clone();
            let changed = self.update(&mut fleet, &mut uids);
            let becomes_ready = !fleet.ready && !self.sources.waits_for_providers();
            if changed || becomes_ready {
                fleet.ready |= becomes_ready;
                self.fleet.send_replace(fleet);
            }
            self.dirty.changed().await;
        }
    }

    fn update(&self, fleet: &mut Fleet, uids: &mut BTreeMap<ProxyKey, ProxyUid>) -> bool {
        let mut changed = false;
        let now = self.clock.now().mono;
        while let Taken::Key(key) = self.dirty.take(now) {
            let facts = self.facts(&key);
            let old = uids.get(&key).filter(|uid| facts.as_ref().is_none_or(|facts| facts.uid != **uid));
            if let Some(old) = old {
                Arc::make_mut(&mut fleet.proxies).remove(old);
                changed = true;
            }
            match facts {
                None => {
                    uids.remove(&key);
                }
                Some(facts) => {
                    uids.insert(key.clone(), facts.uid.clone());
                    if fleet.proxies.get(&facts.uid).is_none_or(|known| **known != facts) {
                        Arc::make_mut(&mut fleet.proxies).insert(facts.uid.clone(), Arc::new(facts));
                        changed = true;
                    }
                }
            }
            self.dirty.done(&key, None);
        }
        changed
    }

    fn facts(&self, key: &ProxyKey) -> Option<ProxyFacts> {
        let proxy = self.sources.stores.proxies.get(&key.namespace, &key.name)?;
        let uid = ProxyUid::parse(proxy.metadata.uid.clone()?).ok()?;
        let running = self.memories.running_machine(key, &uid);
        self.sources
            .facts(&proxy, running)
            .inspect_err(|error| tracing::error!(proxy = %key, %error, "object of no use"))
            .ok()
    }
}
