//! Which proxy gets a lease. Pure: it reads the fleet and the pool's state, and changes neither.
//!
//! Every proxy that the selector matches stands in exactly one place, so that a refusal can say how many
//! are where and the counts add up. `docs/pool.md` has the table; `tests` has a row for each of its lines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Cooldowns, Holds, Ledger, Target};
use crate::facts::{Auth, Fleet, Machine, ProxyFacts};
use crate::ids::ProxyKey;
use crate::time::Moment;

/// Which proxies are meant: each named attribute has one of the listed values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// Allowed values by attribute; an attribute with no value matches nothing.
    pub attributes: BTreeMap<String, BTreeSet<String>>,
    /// Only this namespace.
    pub namespace: Option<String>,
}

impl Selector {
    /// The Proxy is one of those meant.
    pub fn matches(&self, facts: &ProxyFacts) -> bool {
        self.covers_namespace(facts)
            && self
                .attributes
                .iter()
                .all(|(key, allowed)| facts.attributes.get(key).is_some_and(|value| allowed.contains(value)))
    }

    /// Its digest: no two selectors share one, and all are of one size, whatever a client sent.
    pub fn digest(&self) -> SelectorDigest {
        let mut digest = Sha256::new();
        let mut feed = |text: &str| {
            digest.update(text.len().to_be_bytes());
            digest.update(text);
        };
        for (key, values) in &self.attributes {
            feed(key);
            feed(&values.len().to_string());
            for value in values {
                feed(value);
            }
        }
        if let Some(namespace) = &self.namespace {
            // A last text that no count follows is no attribute.
            feed(namespace);
        }
        SelectorDigest(digest.finalize().into())
    }

    fn covers_namespace(&self, facts: &ProxyFacts) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| facts.key.namespace == *namespace)
    }
}

/// What is kept of a selector, to recognise a repeated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectorDigest([u8; 32]);

/// What decides between proxies with equally few leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prefer {
    /// The lower latency, then the name.
    #[default]
    Latency,
    /// The one leased least recently, then the name: requests go round the whole fleet.
    Spread,
}

/// A request for a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Which proxies will do.
    pub selector: Selector,
    /// Proxies that will not.
    pub exclude: BTreeSet<ProxyKey>,
    /// The site that it is for; none = any.
    pub target: Option<Target>,
    /// How long.
    pub ttl: Duration,
    /// The client's name for what it is doing: a repeated request gets the lease it already has.
    pub session: Option<String>,
    /// What decides between equally loaded proxies.
    pub prefer: Prefer,
    /// Who asks, for people.
    pub holder: Option<String>,
}

/// Where a proxy stands for one request. The first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its owner suspended it.
    Suspended,
    /// No machine, one that is leaving, no verdict yet, or credentials that cannot be read.
    NotReady,
    /// Its probes fail, or a client found it unreachable and no probe has succeeded since.
    Unhealthy,
    /// A client reported a limit or a ban for this target; until then.
    InCooldown(Moment),
    /// `maxLeases` is reached; room is expected then.
    AtCapacity(Option<Moment>),
    /// `maxLeasesPerTarget` is reached for this target; room is expected then.
    TargetAtCapacity(Option<Moment>),
    /// It can be leased.
    Free,
}

/// Why no proxy was granted: how many stand where. The counts add up to `considered`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoMatch {
    /// Proxies that the request matches; those being deleted and excluded are left out.
    pub considered: u32,
    /// Suspended by their owner.
    pub suspended: u32,
    /// Not ready.
    pub not_ready: u32,
    /// Unhealthy.
    pub unhealthy: u32,
    /// In cooldown for the target.
    pub in_cooldown: u32,
    /// At `maxLeases`.
    pub at_capacity: u32,
    /// At `maxLeasesPerTarget`.
    pub target_at_capacity: u32,
    /// Time until the earliest end of a lease or cooldown that stands in the way.
    pub retry_after: Option<Duration>,
    /// Selector keys that no Proxy of the namespace has: probably misspelt.
    pub unknown_attributes: Vec<String>,
}

/// What selection reads of the pool.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The leases.
    pub ledger: &'a Ledger,
    /// The cooldowns.
    pub cooldowns: &'a Cooldowns,
    /// The proxies that a client found unreachable.
    pub holds: &'a Holds,
}

/// The machine that may be used now and in the near future, whatever its health: none while the Proxy is
/// being deleted or its machine replaced.
pub fn staying_machine(facts: &ProxyFacts) -> Option<&Machine> {
    facts.staying_machine()
}

impl View<'_> {
    /// Where the proxy stands apart from its capacity.
    pub fn fitness(&self, facts: &ProxyFacts, target: Option<&Target>, now: Moment) -> Standing {
        if facts.suspend {
            return Standing::Suspended;
        }
        let Some(machine) = staying_machine(facts) else { return Standing::NotReady };
        if matches!(facts.auth, Auth::Missing(_)) {
            return Standing::NotReady;
        }
        match facts.healthy {
            None => return Standing::NotReady,
            Some(false) => return Standing::Unhealthy,
            Some(true) if self.holds.holds(&facts.uid, &machine.incarnation) => return Standing::Unhealthy,
            Some(true) => {}
        }
        match self.cooldowns.blocked_until(&facts.uid, &machine.incarnation, target, now) {
            Some(end) => Standing::InCooldown(end),
            None => Standing::Free,
        }
    }

    /// Where the proxy stands for a new lease.
    pub fn standing(&self, facts: &ProxyFacts, target: Option<&Target>, now: Moment) -> Standing {
        let fitness = self.fitness(facts, target, now);
        if fitness != Standing::Free {
            return fitness;
        }
        let load = facts.machine.as_ref().and_then(|m| self.ledger.load(&facts.uid, &m.incarnation));
        if let Some(limit) = facts.max_leases
            && load.map_or(0, super::Load::total) >= limit
        {
            return Standing::AtCapacity(load.and_then(|load| load.below(limit)));
        }
        if let Some(limit) = facts.max_leases_per_target
            && load.map_or(0, |load| load.toward(target)) >= limit
        {
            return Standing::TargetAtCapacity(load.and_then(|load| load.below_toward(target, limit)));
        }
        Standing::Free
    }

    /// The proxy to lease.
    ///
    /// # Errors
    /// How many proxies stand where, if none is free.
    pub fn choose(&self, fleet: &Fleet, order: &Order, now: Moment) -> Result<Arc<ProxyFacts>, NoMatch> {
        let mut refusal = NoMatch::default();
        let mut best: Option<(Rank<'_>, &Arc<ProxyFacts>)> = None;
        let candidates = fleet.proxies.values().filter(|facts| {
            !facts.deleting && order.selector.matches(facts) && !order.exclude.contains(&facts.key)
        });
        for facts in candidates {
            let standing = self.standing(facts, order.target.as_ref(), now);
            refusal.count(standing, now);
            if standing == Standing::Free {
                let rank = self.rank(facts, order.prefer);
                if best.as_ref().is_none_or(|(lowest, _)| rank < *lowest) {
                    best = Some((rank, facts));
                }
            }
        }
        if let Some((_, facts)) = best {
            return Ok(Arc::clone(facts));
        }
        if refusal.considered == 0 {
            refusal.unknown_attributes = unknown_attributes(fleet, &order.selector);
        }
        Err(refusal)
    }

    fn rank<'f>(&self, facts: &'f ProxyFacts, prefer: Prefer) -> Rank<'f> {
        let load = facts.machine.as_ref().and_then(|m| self.ledger.load(&facts.uid, &m.incarnation));
        let second = match prefer {
            // A proxy of unknown latency comes last.
            Prefer::Latency => (Reverse(facts.latency.is_some()), facts.latency.unwrap_or_default(), 0),
            Prefer::Spread => (Reverse(true), Duration::ZERO, self.ledger.last_grant(&facts.uid)),
        };
        (load.map_or(0, super::Load::total), second, &facts.key)
    }
}

/// Smallest wins: leases, then what the client prefers, then the name.
type Rank<'a> = (u32, (Reverse<bool>, Duration, u64), &'a ProxyKey);

impl NoMatch {
    fn count(&mut self, standing: Standing, now: Moment) {
        self.considered += 1;
        let (counter, end) = match standing {
            Standing::Free => return,
            Standing::Suspended => (&mut self.suspended, None),
            Standing::NotReady => (&mut self.not_ready, None),
            Standing::Unhealthy => (&mut self.unhealthy, None),
            Standing::InCooldown(end) => (&mut self.in_cooldown, Some(end)),
            Standing::AtCapacity(end) => (&mut self.at_capacity, end),
            Standing::TargetAtCapacity(end) => (&mut self.target_at_capacity, end),
        };
        *counter += 1;
        let wait = end.map(|end| end.since(now));
        self.retry_after = match (self.retry_after, wait) {
            (Some(known), Some(wait)) => Some(known.min(wait)),
            (known, wait) => known.or(wait),
        };
    }
}

fn unknown_attributes(fleet: &Fleet, selector: &Selector) -> Vec<String> {
    let known: BTreeSet<&String> = fleet
        .proxies
        .values()
        .filter(|facts| !facts.deleting && selector.covers_namespace(facts))
        .flat_map(|facts| facts.attributes.keys())
        .collect();
    selector.attributes.keys().filter(|key| !known.contains(key)).cloned().collect()
}
