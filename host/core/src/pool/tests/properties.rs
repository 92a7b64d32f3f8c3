use proptest::prelude::*;

use super::*;

/// What clients and time may do, in any order.
#[derive(Debug, Clone, Copy)]
enum Step {
    Acquire { target: Option<u8>, session: Option<u8>, ttl: u64 },
    Renew(usize, u64),
    Release(usize),
    Report(usize, Outcome, Option<u8>),
    Wait(u64),
    Replace(u8),
    Health(u8, Option<bool>),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Ok),
        Just(Outcome::RateLimited),
        Just(Outcome::Banned),
        Just(Outcome::Unreachable)
    ];
    prop_oneof![
        6 => (proptest::option::of(0u8..3), proptest::option::of(0u8..3), 1u64..200)
            .prop_map(|(target, session, ttl)| Step::Acquire { target, session, ttl }),
        2 => (0usize..60, 1u64..200).prop_map(|(n, ttl)| Step::Renew(n, ttl)),
        2 => (0usize..60).prop_map(Step::Release),
        2 => (0usize..60, outcome, proptest::option::of(0u8..3)).prop_map(|(n, o, t)| Step::Report(n, o, t)),
        2 => (0u64..150).prop_map(Step::Wait),
        1 => (0u8..3).prop_map(Step::Replace),
        1 => (0u8..3, proptest::option::of(any::<bool>())).prop_map(|(p, h)| Step::Health(p, h)),
        1 => Just(Step::Sweep),
    ]
}

/// A world beside the pool that counts for itself, by the simplest means.
struct World {
    pool: Pool,
    proxies: Vec<ProxyFacts>,
    generation: u64,
    now: u64,
    granted: Vec<LeaseId>,
    /// lease -> (proxy, machine, target, end)
    held: BTreeMap<LeaseId, (usize, Incarnation, Option<Target>, u64)>,
}

fn target(n: u8) -> Target {
    Target::parse(&format!("site{n}.com")).unwrap()
}

impl World {
    fn new() -> Self {
        let limits = [(Some(1), None), (Some(3), Some(1)), (None, Some(2))];
        let proxies = limits.iter().enumerate().map(|(n, (all, per_target))| {
            with(&format!("p{n}"), |f| (f.max_leases, f.max_leases_per_target) = (*all, *per_target))
        });
        Self {
            pool: pool(),
            proxies: proxies.collect(),
            generation: 1,
            now: 0,
            granted: Vec::new(),
            held: BTreeMap::new(),
        }
    }

    fn run(&mut self, step: Step) {
        let fleet = fleet(self.proxies.clone());
        self.held.retain(|_, (.., end)| *end > self.now);
        match step {
            Step::Acquire { target: t, session, ttl } => {
                let order = Order {
                    target: t.map(target),
                    session: session.map(|s| format!("s{s}")),
                    ttl: span(ttl),
                    ..order()
                };
                self.acquire(&fleet, order);
            }
            Step::Renew(n, ttl) => {
                let Some(lease) = self.granted.get(n).cloned() else { return };
                let renewed = self.pool.renew(&fleet, &lease, Some(span(ttl)), at(self.now));
                let (now, known) = (self.now, self.held.get_mut(&lease));
                assert!(renewed.is_err() || known.is_some(), "an ended lease was renewed");
                if let (Ok(_), Some((.., end))) = (renewed, known) {
                    *end = now + ttl;
                }
            }
            Step::Release(n) => {
                let Some(lease) = self.granted.get(n) else { return };
                self.pool.release(lease, moment(self.now));
                self.held.remove(lease);
            }
            Step::Report(n, outcome, t) => {
                let Some(lease) = self.granted.get(n).cloned() else { return };
                let given = Report { target: t.map(target), ..report(outcome) };
                // Unknown by now is an answer too.
                self.pool.report(&fleet, &lease, given, moment(self.now)).unwrap_or_default();
            }
            Step::Wait(seconds) => self.now += seconds,
            Step::Replace(n) => {
                self.generation += 1;
                let incarnation = format!("p{n}-m{}", self.generation);
                self.proxies[usize::from(n)].machine = Some(machine(&incarnation));
            }
            Step::Health(n, healthy) => self.proxies[usize::from(n)].healthy = healthy,
            Step::Sweep => self.pool.sweep(&fleet, moment(self.now)),
        }
    }

    fn acquire(&mut self, fleet: &Fleet, order: Order) {
        let lease = id(&format!("l{}", self.granted.len()));
        let ends = self.now + order.ttl.as_secs();
        match self.pool.acquire(fleet, order.clone(), lease, at(self.now)) {
            Ok(granted) => {
                let index: usize = granted.proxy.key.name[1..].parse().unwrap();
                assert_eq!(self.proxies[index].healthy, Some(true), "an unhealthy proxy was handed out");
                assert_eq!(self.proxies[index].machine.as_ref(), Some(&granted.machine));
                if granted.renewed {
                    self.held.get_mut(&granted.id).expect("a renewed lease is a live one").3 = ends;
                } else {
                    self.granted.push(granted.id.clone());
                    let entry = (index, granted.machine.incarnation, order.target, ends);
                    self.held.insert(granted.id, entry);
                }
            }
            Err(Refusal::NoMatch(why)) => {
                let counts = [
                    why.suspended,
                    why.not_ready,
                    why.unhealthy,
                    why.in_cooldown,
                    why.at_capacity,
                    why.target_at_capacity,
                ];
                assert_eq!(counts.iter().sum::<u32>(), why.considered);
                assert_eq!(why.considered, 3);
            }
            Err(other) => assert_eq!(other, Refusal::SessionConflict),
        }
    }

    /// By the model's own books no machine carries more than it may.
    fn check_capacity(&self) {
        for (index, facts) in self.proxies.iter().enumerate() {
            let current = &facts.machine.as_ref().unwrap().incarnation;
            let here: Vec<_> = self
                .held
                .iter()
                .filter(|(id, (proxy, m, _, end))| {
                    *proxy == index && m == current && *end > self.now && self.is_live(id)
                })
                .map(|(_, (_, _, target, _))| target.clone())
                .collect();
            let count = |wanted: &Option<Target>| here.iter().filter(|t| *t == wanted).count();
            if let Some(limit) = facts.max_leases {
                assert!(here.len() <= usize::try_from(limit).unwrap(), "{} has {here:?}", facts.key);
            }
            if let Some(limit) = facts.max_leases_per_target {
                for n in 0..3 {
                    let toward = count(&Some(target(n))) + count(&None);
                    assert!(toward <= usize::try_from(limit).unwrap(), "{} has {here:?}", facts.key);
                }
            }
        }
    }

    /// A session's earlier lease ends when it is given another proxy; the model learns that from the pool.
    fn is_live(&self, lease: &LeaseId) -> bool {
        let fleet = fleet(self.proxies.clone());
        self.pool.clone().renew(&fleet, lease, None, at(self.now)).is_ok()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_interleaving_exceeds_a_capacity_or_breaks_the_counts(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
            world.check_capacity();
        }
        let last_end = world.now + 1000;
        prop_assert!(world.pool.counts(moment(last_end)).is_empty());
    }
}
