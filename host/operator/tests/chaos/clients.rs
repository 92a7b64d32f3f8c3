//! Clients that hold leases on machines: what the pool would count. They outlive operator processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::facts::LeaseCounts;
use egress_proxies_core::ids::ProxyUid;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::operator::World;
use crate::wiring::is_ready;

/// A lease on one machine. It is counted from a moment at which the Proxy was still Ready.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) uid: ProxyUid,
    pub(crate) machine: String,
    /// When the client gave it back.
    pub(crate) ended: Option<Instant>,
    /// The Proxy was seen to show the machine. A watch that is late tells of the time before it after the lease was
    /// taken, and no pool forgets a lease for that.
    shown: bool,
    /// The Proxy no longer shows the machine: the pool forgets the lease, the client does not.
    forgotten: bool,
}

impl Held {
    pub(crate) fn of(uid: ProxyUid, machine: &str, ended: Option<Instant>) -> Self {
        Self { uid, machine: machine.to_owned(), ended, shown: false, forgotten: false }
    }
}

/// All clients of a world.
#[derive(Debug)]
pub(crate) struct Clients {
    held: Mutex<Vec<Held>>,
    counts: watch::Sender<LeaseCounts>,
}

impl Clients {
    pub(crate) fn new() -> Self {
        Self { held: Mutex::default(), counts: watch::channel(LeaseCounts::default()).0 }
    }

    /// What the pool tells the lifecycle.
    pub(crate) fn counts(&self) -> watch::Receiver<LeaseCounts> {
        self.counts.subscribe()
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        self.held.lock().unwrap().clone()
    }

    /// A client takes a lease, if there is something to lease. One that comes when the machine may have begun to
    /// drain is none: nothing protects it.
    pub(crate) async fn take(&self, world: &World, name: &str) {
        let Some((uid, machine)) = world.get(name).await.as_ref().and_then(leasable) else { return };
        self.change(|held| held.push(Held::of(uid.clone(), &machine, None)));
        let still = world.get(name).await.as_ref().and_then(leasable);
        if still != Some((uid.clone(), machine.clone())) {
            self.change(|held| {
                let last = held.iter().rposition(|it| it.uid == uid && it.machine == machine);
                held.remove(last.unwrap());
            });
        }
    }

    /// All leases on this Proxy are given back.
    pub(crate) fn end(&self, uid: &str) {
        self.end_those(|it| it.uid.as_str() == uid);
    }

    pub(crate) fn end_all(&self) {
        self.end_those(|_| true);
    }

    fn end_those(&self, which: impl Fn(&Held) -> bool) {
        self.change(|held| {
            for it in held.iter_mut().filter(|it| it.ended.is_none() && which(it)) {
                it.ended = Some(Instant::now());
            }
        });
    }

    /// The Proxy shows this machine now, or none.
    pub(crate) fn shown(&self, uid: &str, machine: Option<&str>) {
        for it in self.held.lock().unwrap().iter_mut().filter(|it| it.uid.as_str() == uid) {
            it.shown |= Some(it.machine.as_str()) == machine;
        }
        let is_gone = |it: &Held| {
            it.uid.as_str() == uid && it.shown && !it.forgotten && Some(it.machine.as_str()) != machine
        };
        if self.held.lock().unwrap().iter().any(is_gone) {
            self.change(|held| {
                for it in held.iter_mut().filter(|it| is_gone(it)) {
                    it.forgotten = true;
                }
            });
        }
    }

    /// Times first, then the count: whoever saw the count may act on it.
    fn change(&self, change: impl FnOnce(&mut Vec<Held>)) {
        let mut held = self.held.lock().unwrap();
        change(&mut held);
        let mut counts = BTreeMap::<ProxyUid, u32>::new();
        for it in held.iter().filter(|it| it.ended.is_none() && !it.forgotten) {
            *counts.entry(it.uid.clone()).or_default() += 1;
        }
        self.counts.send_replace(Arc::new(counts));
    }
}

fn leasable(proxy: &Proxy) -> Option<(ProxyUid, String)> {
    if !is_ready(proxy) || proxy.spec.suspend || proxy.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let machine = proxy.status.as_ref()?.incarnation.clone()?;
    Some((ProxyUid::parse(proxy.metadata.uid.clone()?).ok()?, machine))
}
