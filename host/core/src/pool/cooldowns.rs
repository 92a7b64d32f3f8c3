//! Rest times that clients asked for: a site limits or bans a proxy, so it is kept away from that site.
//!
//! Bound to a machine: the one that replaces it has another address, which no site has banned. A repeated
//! report extends a cooldown and never shortens it; only [`Cooldowns::clear`] ends one early. A machine keeps
//! so many targets and no more, or one client that reports ever new ones would fill the memory.

use std::collections::BTreeMap;

use super::Target;
use crate::ids::{Incarnation, ProxyUid};
use crate::time::Moment;

/// What a cooldown covers: one target, or all of them (`None`).
pub type Scope = Option<Target>;

/// Cooldowns of all proxies. Reads compare with `now`; nothing depends on [`Cooldowns::sweep`].
#[derive(Debug, Clone)]
pub struct Cooldowns {
    by_proxy: BTreeMap<ProxyUid, OfMachine>,
    most_targets: usize,
}

#[derive(Debug, Clone)]
struct OfMachine {
    incarnation: Incarnation,
    ends: BTreeMap<Scope, Moment>,
}

impl OfMachine {
    /// Drops the target whose cooldown ends first, while there are more than `most`. Folding the rest into
    /// a cooldown for every target would let one client take a proxy from all others.
    fn bound(&mut self, most: usize) {
        while self.ends.keys().flatten().count() > most {
            let first = self.ends.iter().filter(|(scope, _)| scope.is_some()).min_by_key(|(_, end)| **end);
            let Some(scope) = first.map(|(scope, _)| scope.clone()) else { return };
            self.ends.remove(&scope);
        }
    }
}

impl Cooldowns {
    /// None yet; each machine will keep `most_targets` at most.
    pub fn new(most_targets: usize) -> Self {
        Self { by_proxy: BTreeMap::new(), most_targets }
    }

    /// Keeps the machine from the scope until `end`, or until the later end that it already has.
    pub fn start(&mut self, uid: &ProxyUid, incarnation: &Incarnation, scope: Scope, end: Moment) {
        let of = self
            .by_proxy
            .entry(uid.clone())
            .or_insert_with(|| OfMachine { incarnation: incarnation.clone(), ends: BTreeMap::new() });
        if of.incarnation != *incarnation {
            *of = OfMachine { incarnation: incarnation.clone(), ends: BTreeMap::new() };
        }
        let known = of.ends.entry(scope).or_insert(end);
        *known = (*known).max(end);
        of.bound(self.most_targets);
    }

    /// When the machine may next be leased for the target, if a cooldown forbids it now. Without a target
    /// only a cooldown for all targets forbids: nobody knows where such a lease goes.
    pub fn blocked_until(
        &self,
        uid: &ProxyUid,
        incarnation: &Incarnation,
        target: Option<&Target>,
        now: Moment,
    ) -> Option<Moment> {
        let of = self.by_proxy.get(uid).filter(|of| of.incarnation == *incarnation)?;
        let everywhere = of.ends.get(&None).copied();
        let here = target.and_then(|target| of.ends.get(&Some(target.clone())).copied());
        everywhere.into_iter().chain(here).filter(|end| *end > now).max()
    }

    /// The cooldowns of a machine that are running, by scope.
    pub fn running(&self, uid: &ProxyUid, incarnation: &Incarnation, now: Moment) -> Vec<(Scope, Moment)> {
        self.by_proxy
            .get(uid)
            .filter(|of| of.incarnation == *incarnation)
            .map(|of| of.ends.iter().filter(|(_, end)| **end > now).map(|(s, e)| (s.clone(), *e)).collect())
            .unwrap_or_default()
    }

    /// Ends the cooldown for one target, or with `None` every cooldown of the proxy.
    pub fn clear(&mut self, uid: &ProxyUid, target: Option<&Target>) {
        match target {
            None => {
                self.by_proxy.remove(uid);
            }
            Some(target) => {
                if let Some(of) = self.by_proxy.get_mut(uid) {
                    of.ends.remove(&Some(target.clone()));
                }
            }
        }
    }

    /// Forgets Proxies that no longer exist.
    pub fn forget_proxies(&mut self, exists: impl Fn(&ProxyUid) -> bool) {
        self.by_proxy.retain(|uid, _| exists(uid));
    }

    /// Forgets what is over.
    pub fn sweep(&mut self, now: Moment) {
        self.by_proxy.retain(|_, of| {
            of.ends.retain(|_, end| *end > now);
            !of.ends.is_empty()
        });
    }

    /// Nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.by_proxy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    fn uid() -> ProxyUid {
        ProxyUid::parse("u1").unwrap()
    }

    fn machine(name: &str) -> Incarnation {
        Incarnation::parse(name).unwrap()
    }

    fn site(host: &str) -> Target {
        Target::parse(host).unwrap()
    }

    #[test]
    fn a_repeated_report_extends_and_never_shortens() {
        let mut cooldowns = Cooldowns::new(3);
        let (uid, m) = (uid(), machine("m1"));
        cooldowns.start(&uid, &m, Some(site("a.com")), at(100));
        cooldowns.start(&uid, &m, Some(site("a.com")), at(50));
        assert_eq!(cooldowns.blocked_until(&uid, &m, Some(&site("a.com")), at(0)), Some(at(100)));
        cooldowns.start(&uid, &m, Some(site("a.com")), at(200));
        assert_eq!(cooldowns.blocked_until(&uid, &m, Some(&site("a.com")), at(0)), Some(at(200)));
        assert_eq!(cooldowns.blocked_until(&uid, &m, Some(&site("a.com")), at(200)), None);
    }

    #[test]
    fn a_cooldown_covers_its_target_alone_and_one_without_target_covers_all() {
        let mut cooldowns = Cooldowns::new(3);
        let (uid, m) = (uid(), machine("m1"));
        cooldowns.start(&uid, &m, Some(site("a.com")), at(100));
        assert_eq!(cooldowns.blocked_until(&uid, &m, Some(&site("b.com")), at(0)), None);
        assert_eq!(cooldowns.blocked_until(&uid, &m, None, at(0)), None);
        cooldowns.start(&uid, &m, None, at(60));
        assert_eq!(cooldowns.blocked_until(&uid, &m, Some(&site("b.com")), at(0)), Some(at(60)));
        assert_eq!(cooldowns.blocked_until(&uid, &m, None, at(0)), Some(at(60)));
        assert_eq!(cooldowns.blocked_until(&uid, &m, Some(&site("a.com")), at(0)), Some(at(100)));
    }

    #[test]
    fn a_replacement_machine_starts_without_the_cooldowns_of_the_old_one() {
        let mut cooldowns = Cooldowns::new(3);
        let uid = uid();
        cooldowns.start(&uid, &machine("m1"), None, at(100));
        assert_eq!(cooldowns.blocked_until(&uid, &machine("m2"), None, at(0)), None);
        cooldowns.start(&uid, &machine("m2"), Some(site("a.com")), at(10));
        assert_eq!(cooldowns.running(&uid, &machine("m2"), at(0)), [(Some(site("a.com")), at(10))]);
    }

    #[test]
    fn clearing_one_target_leaves_the_others_and_sweeping_leaves_nothing_behind() {
        let mut cooldowns = Cooldowns::new(3);
        let (uid, m) = (uid(), machine("m1"));
        for scope in [None, Some(site("a.com")), Some(site("b.com"))] {
            cooldowns.start(&uid, &m, scope, at(100));
        }
        cooldowns.clear(&uid, Some(&site("a.com")));
        assert_eq!(cooldowns.running(&uid, &m, at(0)), [(None, at(100)), (Some(site("b.com")), at(100))]);
        cooldowns.sweep(at(100));
        assert!(cooldowns.is_empty());
        cooldowns.start(&uid, &m, None, at(300));
        cooldowns.clear(&uid, None);
        assert!(cooldowns.is_empty());
    }

    #[test]
    fn a_machine_keeps_so_many_targets_and_drops_the_one_that_ends_first() {
        let mut cooldowns = Cooldowns::new(3);
        let (uid, m) = (uid(), machine("m1"));
        cooldowns.start(&uid, &m, None, at(10));
        for (host, end) in [("a.com", 300), ("b.com", 100), ("c.com", 200), ("d.com", 400)] {
            cooldowns.start(&uid, &m, Some(site(host)), at(end));
        }
        let kept =
            [(None, 10), (Some(site("a.com")), 300), (Some(site("c.com")), 200), (Some(site("d.com")), 400)];
        assert_eq!(cooldowns.running(&uid, &m, at(0)), kept.map(|(scope, end)| (scope, at(end))));
        for n in 0..1000 {
            cooldowns.start(&uid, &m, Some(site(&format!("site{n}.com"))), at(50));
        }
        assert_eq!(cooldowns.running(&uid, &m, at(0)).len(), 4);
    }

    #[test]
    fn the_cooldowns_of_a_deleted_proxy_are_forgotten() {
        let mut cooldowns = Cooldowns::new(3);
        cooldowns.start(&uid(), &machine("m1"), None, at(100));
        cooldowns.forget_proxies(|_| true);
        assert!(!cooldowns.is_empty());
        cooldowns.forget_proxies(|_| false);
        assert!(cooldowns.is_empty());
    }
}
