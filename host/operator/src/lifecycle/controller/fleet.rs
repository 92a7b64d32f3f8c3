//! Publishes the fleet: every Proxy as health and pool need it, from the caches, on every replica.
//!
//! An entry is replaced only when it really changed, and nothing is published otherwise. What changed
//! together goes out together. Ready, once and for good, with the first fleet: the caches are filled, and
//! what a Proxy has from its provider is known from the config, loaded or not. Credentials that were read stay
//! with their machine: a Secret that cannot be read any more must not take a working proxy from its users.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::facts::{Auth, Fleet, ProxyFacts};
use egress_proxies_core::ids::{Incarnation, ProxyKey, ProxyUid};
use egress_proxies_core::provider::Credentials;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::lifecycle::memory::Memories;
use crate::lifecycle::observe::{Sources, key_of};
use crate::lifecycle::queue::{Queue, Taken};

/// Rest between two fleets, for each Proxy in them: 25 ms for a thousand.
const PER_PROXY: Duration = Duration::from_micros(25);
/// Longest rest: as long as anybody may wait for a change that has already happened.
const LONGEST_REST: Duration = Duration::from_millis(250);

/// The publisher.
pub(crate) struct FleetPublisher {
    pub(crate) sources: Sources,
    pub(crate) memories: Arc<Memories>,
    pub(crate) dirty: Arc<Queue>,
    pub(crate) fleet: watch::Sender<Fleet>,
    pub(crate) clock: SharedClock,
    /// This process is elected, and what has changed until then is in the caches and marked as dirty.
    pub(crate) read_since_elected: CancellationToken,
    /// Told once the fleet has that too.
    pub(crate) acting: watch::Sender<bool>,
}

/// What was published before, as far as the fleet itself does not say it.
#[derive(Debug, Default)]
struct Before {
    uids: BTreeMap<ProxyKey, ProxyUid>,
    credentials: LastRead,
}

/// Credentials by Proxy as they were last read, and for which machine.
#[derive(Debug, Default)]
struct LastRead(BTreeMap<ProxyUid, Read>);

#[derive(Debug)]
struct Read {
    incarnation: Incarnation,
    credentials: Credentials,
    missing: bool,
}

impl LastRead {
    /// Remembers what was read; fills in what was read before for the same machine and cannot be read now.
    fn fill(&mut self, facts: &mut ProxyFacts) {
        let Some(machine) = &facts.machine else { return };
        match &facts.auth {
            Auth::None => self.forget(&facts.uid),
            Auth::Known(credentials) => {
                let incarnation = machine.incarnation.clone();
                let read = Read { incarnation, credentials: credentials.clone(), missing: false };
                self.0.insert(facts.uid.clone(), read);
            }
            Auth::Missing(why) => {
                let Some(read) = self.0.get_mut(&facts.uid) else { return };
                if read.incarnation != machine.incarnation {
                    return;
                }
                if !read.missing {
                    tracing::warn!(proxy = %facts.key, %why, "credentials go on as they were read last");
                }
                read.missing = true;
                facts.auth = Auth::Known(read.credentials.clone());
            }
        }
    }

    fn forget(&mut self, uid: &ProxyUid) {
        self.0.remove(uid);
    }
}

/// Time between two fleets. Everybody who follows the fleet goes through all of it: what changes in quick
/// succession, as while a thousand are made, is published together. One change is published at once.
fn rest_after(proxies: usize) -> Duration {
    let proxies = u32::try_from(proxies).unwrap_or(u32::MAX);
    PER_PROXY.saturating_mul(proxies).min(LONGEST_REST)
}

impl FleetPublisher {
    /// Publishes all, then whatever changes. The caches must be filled.
    pub(crate) async fn run(self) {
        let mut before = Before::default();
        let now = self.clock.now().mono;
        for proxy in self.sources.stores.proxies.all() {
            self.dirty.add(key_of(&proxy), now);
        }
        loop {
            let read = self.read_since_elected.is_cancelled();
            let mut fleet = self.fleet.borrow().clone();
            let changed = self.update(&mut fleet, &mut before);
            let rest = rest_after(fleet.proxies.len());
            if changed || !fleet.ready {
                fleet.ready = true;
                self.fleet.send_replace(fleet);
            }
            if read {
                self.acting.send_if_modified(|acting| !std::mem::replace(acting, true));
            }
            if changed {
                tokio::time::sleep(rest).await;
            }
            tokio::select! {
                () = self.dirty.changed() => {}
                () = self.read_since_elected.cancelled(), if !read => {}
            }
        }
    }

    fn update(&self, fleet: &mut Fleet, before: &mut Before) -> bool {
        let Before { uids, credentials } = before;
        let mut changed = false;
        let now = self.clock.now().mono;
        while let Taken::Key(key) = self.dirty.take(now) {
            let facts = self.facts(&key);
            let old = uids.get(&key).filter(|uid| facts.as_ref().is_none_or(|facts| facts.uid != **uid));
            if let Some(old) = old {
                Arc::make_mut(&mut fleet.proxies).remove(old);
                credentials.forget(old);
                changed = true;
            }
            match facts {
                None => {
                    uids.remove(&key);
                }
                Some(mut facts) => {
                    credentials.fill(&mut facts);
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

#[cfg(test)]
mod tests {
    use egress_proxies_core::crd::{Mode, Phase};
    use egress_proxies_core::facts::Machine;
    use egress_proxies_core::provider::Secret;

    use super::*;

    fn facts(incarnation: Option<&str>, auth: Auth) -> ProxyFacts {
        let uid = ProxyUid::parse("u1").unwrap();
        ProxyFacts {
            phase: Phase::Ready,
            machine: incarnation.map(|name| Machine {
                incarnation: Incarnation::parse(name).unwrap(),
                address: "192.0.2.1".to_owned(),
                port: 3128,
            }),
            auth,
            healthy: Some(true),
            ..ProxyFacts::new(ProxyKey::new("default", "p"), uid, Mode::Managed)
        }
    }

    fn known(password: &str) -> Auth {
        let (username, password) = (Secret::new("user".to_owned()), Secret::new(password.to_owned()));
        Auth::Known(Credentials { username, password })
    }

    fn missing() -> Auth {
        Auth::Missing("there is no Secret".to_owned())
    }

    fn filled(last: &mut LastRead, incarnation: Option<&str>, auth: Auth) -> Auth {
        let mut facts = facts(incarnation, auth);
        last.fill(&mut facts);
        facts.auth
    }

    #[test]
    fn credentials_stay_with_their_machine_when_the_secret_cannot_be_read_any_more() {
        let mut last = LastRead::default();
        assert_eq!(filled(&mut last, Some("m1"), missing()), missing(), "never read");
        assert_eq!(filled(&mut last, Some("m1"), known("a")), known("a"));
        assert_eq!(filled(&mut last, Some("m1"), missing()), known("a"));
        assert_eq!(filled(&mut last, None, missing()), missing());
        assert_eq!(
            filled(&mut last, Some("m1"), missing()),
            known("a"),
            "seen without an address in between"
        );
        assert_eq!(filled(&mut last, Some("m1"), known("b")), known("b"), "rotated");
        assert_eq!(filled(&mut last, Some("m1"), missing()), known("b"));
        assert_eq!(filled(&mut last, Some("m2"), missing()), missing(), "another machine");
    }

    #[test]
    fn credentials_are_forgotten_with_the_proxy_or_when_it_demands_none_any_more() {
        let mut last = LastRead::default();
        filled(&mut last, Some("m1"), known("a"));
        assert_eq!(filled(&mut last, Some("m1"), Auth::None), Auth::None);
        assert_eq!(filled(&mut last, Some("m1"), missing()), missing());
        filled(&mut last, Some("m1"), known("a"));
        last.forget(&ProxyUid::parse("u1").unwrap());
        assert_eq!(filled(&mut last, Some("m1"), missing()), missing());
    }
}
