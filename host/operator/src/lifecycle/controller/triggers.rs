//! What makes a Proxy due: a change of it, of a Secret it refers to, of its verdict, of the providers.
//!
//! The event that brings back our own write is no trigger: the pass that wrote has already decided what
//! comes next.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use egress_proxies_core::facts::{Fleet, LeaseCounts, Verdicts};
use egress_proxies_core::ids::{ProviderName, ProxyKey, ProxyUid};
use egress_proxies_core::provider::Providers;
use kube::ResourceExt;
use tokio::sync::watch;

use crate::clock::SharedClock;
use crate::lifecycle::memory::Memories;
use crate::lifecycle::observe::{Change, OnChange, OwnWrites, Stores, key_of, refers_to};
use crate::lifecycle::queue::{Lane, Queue, Whose};

/// Turns changes into work.
pub(crate) struct Triggers {
    pub(crate) work: Arc<Queue>,
    pub(crate) dirty: Arc<Queue>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) clock: SharedClock,
    providers: Arc<dyn Providers>,
    stores: OnceLock<Stores>,
    working: AtomicBool,
}

impl Triggers {
    /// Nothing is due before [`Triggers::begin`], and no more than `at_once` are worked on at the same time.
    pub(crate) fn new(at_once: usize, providers: Arc<dyn Providers>, clock: SharedClock) -> Self {
        Self {
            work: Arc::new(Queue::shared(at_once)),
            dirty: Arc::default(),
            own_writes: Arc::default(),
            memories: Arc::default(),
            clock,
            providers,
            stores: OnceLock::new(),
            working: AtomicBool::new(false),
        }
    }

    /// The caches are filled: from now on changes of Secrets count.
    pub(crate) fn filled(&self, stores: &Stores) {
        self.stores.get_or_init(|| stores.clone());
    }

    /// This process acts from now on: everything is due.
    pub(crate) fn begin(&self) {
        self.working.store(true, Ordering::SeqCst);
        self.everything();
    }

    /// Each Proxy in the cache is due, for the fleet and for work.
    pub(crate) fn everything(&self) {
        for proxy in self.stores.get().into_iter().flat_map(|stores| stores.proxies.all()) {
            self.due(key_of(&proxy));
        }
    }

    /// What the work on a Proxy waits for has come.
    pub(crate) fn goes_on(&self, key: ProxyKey) {
        self.work_on(Lane::Begun, key);
    }

    fn due(&self, key: ProxyKey) {
        self.dirty.add(key.clone(), self.clock.now().mono);
        self.work_on(Lane::News, key);
    }

    fn work_on(&self, lane: Lane, key: ProxyKey) {
        if self.working.load(Ordering::SeqCst) {
            self.work.add_to(lane, self.whose(&key), key, self.clock.now().mono);
        }
    }

    /// The provider that a pass over this Proxy may ask, also if only its memory is left. Of those that are not in
    /// the providers config nobody is asked.
    fn whose(&self, key: &ProxyKey) -> Whose {
        let stored = self.stores.get().and_then(|stores| stores.proxies.get(&key.namespace, &key.name));
        let name = match stored {
            Some(proxy) => proxy.spec.provider.as_deref().and_then(|name| ProviderName::parse(name).ok()),
            None => self.memories.provider_of(key),
        };
        name.filter(|name| self.providers.has_settings(name))
    }

    fn brought_back(&self, change: &Change) -> bool {
        match (&change.uid, &change.version) {
            (Some(uid), Some(version)) => self.own_writes.arrived(uid, version),
            (None, _) | (_, None) => false,
        }
    }
}

impl OnChange for Triggers {
    fn proxy(&self, change: Change) {
        let own = self.brought_back(&change);
        let (namespace, name) = change.key;
        let key = ProxyKey::new(namespace, name);
        if own {
            self.dirty.add(key, self.clock.now().mono);
        } else {
            self.due(key);
        }
    }

    fn secret(&self, change: Change) {
        let (namespace, name) = change.key;
        for proxy in self.stores.get().into_iter().flat_map(|stores| stores.proxies.all()) {
            if proxy.namespace().as_deref() == Some(&namespace) && refers_to(&proxy.spec, &name) {
                self.due(key_of(&proxy));
            }
        }
    }
}

/// What other loops say.
pub(crate) struct News {
    pub(crate) verdicts: watch::Receiver<Verdicts>,
    pub(crate) leases: watch::Receiver<LeaseCounts>,
    pub(crate) providers: watch::Receiver<u64>,
}

/// Passes on new verdicts, the end of the last lease of a machine that drains, and changes of the providers,
/// for ever.
pub(crate) async fn relay(triggers: Arc<Triggers>, news: News, fleet: watch::Sender<Fleet>) {
    let News { mut verdicts, mut leases, mut providers } = news;
    let mut known = verdicts.borrow_and_update().clone();
    let mut counted = leases.borrow_and_update().clone();
    loop {
        tokio::select! {
            Ok(()) = verdicts.changed() => {
                let new = verdicts.borrow_and_update().clone();
                for uid in differing(&known, &new) {
                    let key = fleet.borrow().proxies.get(uid).map(|facts| facts.key.clone());
                    if let Some(key) = key {
                        triggers.goes_on(key);
                    }
                }
                known = new;
            }
            Ok(()) = leases.changed() => {
                let new = leases.borrow_and_update().clone();
                for uid in counted.keys().filter(|uid| new.get(*uid).is_none_or(|count| *count == 0)) {
                    let facts = fleet.borrow().proxies.get(uid).cloned();
                    if let Some(facts) = facts.filter(|facts| facts.is_leaving()) {
                        triggers.goes_on(facts.key.clone());
                    }
                }
                counted = new;
            }
            Ok(()) = providers.changed() => triggers.everything(),
            else => return std::future::pending().await, // both senders are gone: the process is ending
        }
    }
}

fn differing<'a>(old: &'a Verdicts, new: &'a Verdicts) -> impl Iterator<Item = &'a ProxyUid> {
    let changed = new.iter().filter(|(uid, verdict)| old.get(*uid) != Some(*verdict)).map(|(uid, _)| uid);
    let gone = old.keys().filter(|uid| !new.contains_key(*uid));
    changed.chain(gone)
}
