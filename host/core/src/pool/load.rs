//! The live leases on one machine, counted in the two ways that capacity is limited.
//!
//! A lease without a target counts for every target, because nobody knows which site it visits: with any
//! other rule, leaving the target out would be a way around `maxLeasesPerTarget`.

use std::collections::{BTreeMap, BTreeSet};

use super::cooldowns::Scope;
use super::{Lease, Target};
use crate::ids::{Incarnation, LeaseId};
use crate::time::Moment;

/// The live leases on one machine.
#[derive(Debug, Clone)]
pub struct Load {
    incarnation: Incarnation,
    by_end: BTreeSet<(Moment, LeaseId, Scope)>,
    per_scope: BTreeMap<Scope, u32>,
}

impl Load {
    /// No leases on this machine yet.
    pub fn new(incarnation: Incarnation) -> Self {
        Self { incarnation, by_end: BTreeSet::new(), per_scope: BTreeMap::new() }
    }

    /// The machine.
    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// Counts a lease in.
    pub fn add(&mut self, lease: &Lease) {
        if self.by_end.insert((lease.ends, lease.id.clone(), lease.target.clone())) {
            *self.per_scope.entry(lease.target.clone()).or_default() += 1;
        }
    }

    /// Counts a lease out, with the end it was counted in with.
    pub fn remove(&mut self, lease: &Lease) {
        if !self.by_end.remove(&(lease.ends, lease.id.clone(), lease.target.clone())) {
            return;
        }
        if let Some(count) = self.per_scope.get_mut(&lease.target) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.per_scope.remove(&lease.target);
            }
        }
    }

    /// No lease is left.
    pub fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// All leases.
    pub fn total(&self) -> u32 {
        u32::try_from(self.by_end.len()).unwrap_or(u32::MAX)
    }

    /// Leases that may visit the target: those for it and those for any. For a lease without a target:
    /// the busiest target's.
    pub fn toward(&self, target: Option<&Target>) -> u32 {
        let anywhere = self.per_scope.get(&None).copied().unwrap_or(0);
        let there = match target {
            Some(target) => self.per_scope.get(&Some(target.clone())).copied().unwrap_or(0),
            None => self.per_scope.iter().filter(|(s, _)| s.is_some()).map(|(_, n)| *n).max().unwrap_or(0),
        };
        anywhere.saturating_add(there)
    }

    /// When fewer than `limit` leases are left if none is renewed; none with a limit of zero.
    pub fn below(&self, limit: u32) -> Option<Moment> {
        nth_end(self.by_end.iter().map(|(end, ..)| *end), self.total(), limit)
    }

    /// When fewer than `limit` leases toward the target are left if none is renewed.
    pub fn below_toward(&self, target: Option<&Target>, limit: u32) -> Option<Moment> {
        match target {
            Some(_) => self.scope_below(target, limit),
            // Every target must come below the limit.
            None if self.per_scope.keys().all(Option::is_none) => self.scope_below(None, limit),
            None => self
                .per_scope
                .keys()
                .filter_map(Option::as_ref)
                .filter(|target| self.toward(Some(target)) >= limit)
                .map(|target| self.scope_below(Some(target), limit))
                .collect::<Option<Vec<_>>>()
                .and_then(|ends| ends.into_iter().max()),
        }
    }

    /// Ids, earliest end first.
    pub fn ids(&self) -> impl Iterator<Item = &LeaseId> {
        self.by_end.iter().map(|(_, id, _)| id)
    }

    fn scope_below(&self, target: Option<&Target>, limit: u32) -> Option<Moment> {
        let ends = self
            .by_end
            .iter()
            .filter(|(.., scope)| scope.is_none() || scope.as_ref() == target)
            .map(|(end, ..)| *end);
        nth_end(ends, self.toward(target), limit)
    }
}

/// The end after which fewer than `limit` of `count` leases are left; `ends` come in order.
fn nth_end(mut ends: impl Iterator<Item = Moment>, count: u32, limit: u32) -> Option<Moment> {
    if limit == 0 {
        return None;
    }
    let index = usize::try_from(count.saturating_sub(limit)).ok()?;
    ends.nth(index)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::ProxyUid;
    use crate::pool::Selector;

    fn lease(id: &str, target: Option<&str>, ends: u64) -> Lease {
        Lease {
            id: LeaseId::parse(id).unwrap(),
            uid: ProxyUid::parse("u1").unwrap(),
            incarnation: Incarnation::parse("m1").unwrap(),
            target: target.map(|t| Target::parse(t).unwrap()),
            selector: Selector::default().digest(),
            session: None,
            holder: None,
            ttl: Duration::from_secs(1),
            ends: at(ends),
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    fn load(leases: &[Lease]) -> Load {
        let mut load = Load::new(Incarnation::parse("m1").unwrap());
        for lease in leases {
            load.add(lease);
        }
        load
    }

    #[test]
    fn a_lease_without_target_counts_for_every_target() {
        let load = load(&[
            lease("1", Some("a.com"), 10),
            lease("2", Some("a.com"), 20),
            lease("3", Some("b.com"), 30),
            lease("4", None, 40),
        ]);
        let site = |host| Target::parse(host).unwrap();
        assert_eq!(load.total(), 4);
        assert_eq!(load.toward(Some(&site("a.com"))), 3);
        assert_eq!(load.toward(Some(&site("b.com"))), 2);
        assert_eq!(load.toward(Some(&site("c.com"))), 1);
        assert_eq!(load.toward(None), 3);
    }

    #[test]
    fn it_says_when_there_is_room_again_even_after_the_limit_was_lowered() {
        let load =
            load(&[lease("1", Some("a.com"), 10), lease("2", None, 20), lease("3", Some("b.com"), 30)]);
        assert_eq!(load.below(3), Some(at(10)));
        assert_eq!(load.below(1), Some(at(30)));
        assert_eq!(load.below(0), None);
        let a = Target::parse("a.com").unwrap();
        assert_eq!(load.below_toward(Some(&a), 2), Some(at(10)));
        assert_eq!(load.below_toward(Some(&a), 1), Some(at(20)));
        assert_eq!(
            load.below_toward(None, 2),
            Some(at(20)),
            "b.com comes below 2 when the lease for any ends"
        );
    }

    #[test]
    fn counting_out_twice_counts_once() {
        let one = lease("1", None, 10);
        let mut load = load(&[one.clone(), lease("2", None, 20)]);
        load.remove(&one);
        load.remove(&one);
        assert_eq!((load.total(), load.toward(None)), (1, 1));
    }
}
