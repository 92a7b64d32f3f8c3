//! Somebody who watches the Proxies of a world, each write in its order, and notes what must never be: more of
//! them taken out of service by the operator's decision than the providers config allows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use egress_proxies_core::crd::{ConditionType, Proxy};
use egress_proxies_core::lifecycle::ObjectFacts;
use futures::StreamExt;
use jiff::Timestamp;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time::Instant;

use crate::operator::World;
use crate::schedule::Terms;

/// Of what use a Proxy is to clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Service {
    /// It never served.
    #[default]
    NotYet,
    Serves,
    /// It served, and its machine began to drain since.
    Drained,
    /// It served, and does not for a reason that is not seen.
    Lost,
}

/// What became of one Proxy so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    pub(crate) name: String,
    /// When it was seen to be gone.
    pub(crate) gone: Option<Instant>,
    deleting: bool,
    /// Its last word was that its machine may be left behind.
    pub(crate) abandon: bool,
    service: Service,
    /// The machine that the status names, and whether clients may see it.
    pub(crate) machine: Option<String>,
    /// Since when each machine drained, as the status had it last.
    pub(crate) drains: BTreeMap<String, Timestamp>,
    /// Value of the replace annotation, and the one that was taken up.
    pub(crate) asks: Option<String>,
    pub(crate) took_up: Option<String>,
    pub(crate) replacing: Option<String>,
    /// Machines that went for each value.
    pub(crate) went_for: BTreeMap<String, BTreeSet<String>>,
}

impl Life {
    /// One that served and does not; its machine drained, or not.
    pub(crate) fn away(drained: bool) -> Self {
        let service = if drained { Service::Drained } else { Service::Lost };
        Self { service, ..Self::default() }
    }
}

/// What was seen so far, by uid.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) lives: BTreeMap<String, Life>,
    /// How often the watch began anew: what happened meanwhile was not seen.
    pub(crate) beginnings: u32,
    /// Most that were out of service by a decision at once, and which.
    pub(crate) most_away: usize,
    pub(crate) away: Vec<String>,
}

/// Sees, and tells the clients which machines are still shown.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Mutex<Seen>,
}

impl Witness {
    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Resolves when the watch has begun.
    pub(crate) async fn begun(&self) {
        while self.seen.lock().unwrap().beginnings == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Watches for ever.
    pub(crate) async fn watch(&self, world: &World, terms: &Terms) {
        let watch = watcher(world.proxies(), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(watch);
        let mut there = BTreeSet::new();
        while let Some(event) = events.next().await {
            let mut seen = self.seen.lock().unwrap();
            match event {
                Ok(watcher::Event::Init) => there.clear(),
                Ok(watcher::Event::InitApply(proxy)) => {
                    there.insert(proxy.metadata.uid.clone().unwrap_or_default());
                    seen.note(&proxy);
                    drop(seen);
                    tell(world, &proxy);
                    continue;
                }
                Ok(watcher::Event::InitDone) => seen.begin_with(&there),
                Ok(watcher::Event::Apply(proxy)) => {
                    seen.note(&proxy);
                    tell(world, &proxy);
                }
                Ok(watcher::Event::Delete(proxy)) => {
                    seen.note(&proxy);
                    seen.is_gone(proxy.metadata.uid.as_deref().unwrap_or_default());
                    world.clients.shown(proxy.metadata.uid.as_deref().unwrap_or_default(), None);
                }
                Err(_) => continue, // it is begun again after a while
            }
            seen.judge(terms);
        }
    }
}

fn tell(world: &World, proxy: &Proxy) {
    let status = proxy.status.as_ref();
    let shown = status.filter(|it| it.ip.is_some() && proxy.metadata.deletion_timestamp.is_none());
    let machine = shown.and_then(|it| it.incarnation.as_deref());
    world.clients.shown(proxy.metadata.uid.as_deref().unwrap_or_default(), machine);
}

impl Seen {
    /// Not everything was seen.
    pub(crate) fn has_gaps(&self) -> bool {
        self.beginnings > 1
    }

    pub(crate) fn note(&mut self, proxy: &Proxy) {
        let object = ObjectFacts::of(proxy).unwrap();
        let status = &object.status;
        let life = self.lives.entry(object.uid.to_string()).or_default();
        life.name.clone_from(&object.key.name);
        (life.deleting, life.abandon) = (object.deleting, object.abandon);
        life.machine.clone_from(&status.incarnation);
        let drain = drain_of(proxy);
        life.service = match life.service {
            _ if object.serves() => Service::Serves,
            _ if drain.is_some() => Service::Drained,
            Service::Serves => Service::Lost,
            before @ (Service::NotYet | Service::Drained | Service::Lost) => before,
        };
        life.drains.extend(drain);
        life.asks.clone_from(&object.replace_nonce);
        life.took_up.clone_from(&status.replace_nonce);
        life.replacing.clone_from(&status.replacing);
        if let (Some(value), Some(machine)) = (&status.replace_nonce, &status.replacing) {
            life.went_for.entry(value.clone()).or_default().insert(machine.clone());
        }
    }

    pub(crate) fn is_gone(&mut self, uid: &str) {
        if let Some(life) = self.lives.get_mut(uid) {
            life.gone.get_or_insert_with(Instant::now);
        }
    }

    fn begin_with(&mut self, there: &BTreeSet<String>) {
        self.beginnings += 1;
        let lost: Vec<String> = self.lives.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
        for uid in lost {
            self.is_gone(&uid);
        }
    }

    /// Where nothing goes wrong by itself, whoever served and does not is away by a decision of the operator. Else
    /// only those count of which it is certain: they drained.
    pub(crate) fn judge(&mut self, terms: &Terms) {
        let is_away = |life: &&Life| {
            let is_away = match life.service {
                Service::NotYet | Service::Serves => false,
                Service::Drained => true,
                Service::Lost => terms.fair,
            };
            is_away && life.gone.is_none() && !life.deleting
        };
        let away = self.lives.values().filter(is_away);
        let away: Vec<String> = away.map(|life| life.name.clone()).collect();
        if away.len() > self.most_away {
            (self.most_away, self.away) = (away.len(), away);
        }
    }
}

/// The machine that drains, and since when: the time of the condition Ready says so.
fn drain_of(proxy: &Proxy) -> Option<(String, Timestamp)> {
    let status = proxy.status.as_ref()?;
    let find = |kind: ConditionType| status.conditions.iter().find(|it| it.type_ == kind.as_str());
    let drains = find(ConditionType::Provisioned).is_some_and(|it| it.reason == "Draining");
    let since = find(ConditionType::Ready)?.last_transition_time.0;
    Some((status.incarnation.clone().filter(|_| drains)?, since))
}
