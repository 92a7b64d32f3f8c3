//! Who of a provider's Managed Proxies serves clients now.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::crd::Mode;
use crate::facts::{Fleet, ProxyFacts};
use crate::ids::{Incarnation, ProviderName, ProxyUid};

/// Standing of one Proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) state: State,
    /// Somebody finds out whether it serves: there is a page to fetch through it.
    pub(super) judged: bool,
    /// It can't become ready without a change by a person.
    pub(super) failed: bool,
    /// The machine that it shows.
    pub(super) incarnation: Option<Incarnation>,
}

/// What it is to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// They can be sent there.
    Serves,
    /// It still shows its address while its leases run out.
    Drains,
    /// Neither.
    Down,
}

impl Standing {
    pub(super) fn serves(&self) -> bool {
        self.state == State::Serves
    }

    pub(super) fn drains(&self) -> bool {
        self.state == State::Drains
    }

    /// It is back: it serves, or has a machine of which nobody can say more.
    pub(super) fn stands(&self) -> bool {
        match self.state {
            State::Serves => true,
            State::Drains => false,
            State::Down => !self.judged && self.incarnation.is_some(),
        }
    }
}

/// The Managed Proxies of one provider. Those being deleted no longer count, and those for which no machine was
/// ever begun do not count yet: somebody's spec that can't work must not hold up everybody's replacements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    pub(super) all: BTreeMap<ProxyUid, Standing>,
    /// Those that are away, in order: whoever does not stand.
    pub(super) down: Vec<ProxyUid>,
}

impl Census {
    /// One census per provider.
    pub fn of(fleet: &Fleet) -> BTreeMap<ProviderName, Arc<Self>> {
        let mut censuses: BTreeMap<ProviderName, Self> = BTreeMap::new();
        let counts = |facts: &&Arc<ProxyFacts>| facts.mode == Mode::Managed && facts.begun && !facts.deleting;
        let counted = fleet.proxies.values().filter(counts);
        for facts in counted {
            if let Some(provider) = &facts.provider {
                censuses.entry(provider.clone()).or_default().add(facts);
            }
        }
        censuses.into_iter().map(|(provider, census)| (provider, Arc::new(census))).collect()
    }

    fn add(&mut self, facts: &ProxyFacts) {
        let standing = Standing {
            state: if facts.serves() {
                State::Serves
            } else if facts.is_leaving() && facts.machine.is_some() {
                State::Drains
            } else {
                State::Down
            },
            judged: facts.probe.is_some(),
            failed: facts.has_failed(),
            incarnation: facts.machine.as_ref().map(|machine| machine.incarnation.clone()),
        };
        self.insert(facts.uid.clone(), standing);
    }

    /// One that nobody judges is not away while it has a machine: it would never come back, and take the room of one
    /// that is judged for as long as it lives.
    pub(super) fn insert(&mut self, uid: ProxyUid, standing: Standing) {
        if !standing.stands() {
            self.down.push(uid.clone());
        }
        self.all.insert(uid, standing);
    }
}
