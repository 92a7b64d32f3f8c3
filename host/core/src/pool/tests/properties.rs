//! Random interleavings against a model that keeps its own books by the simplest means. It never asks the
//! pool what is true: it says in advance what every answer must be, and compares.

use proptest::prelude::*;

use super::*;
use crate::facts::GoodProbe;

/// Proxies of the world.
const PROXIES: u8 = 3;
/// Targets that clients name.
const TARGETS: u8 = 3;

/// What clients, time and the cluster may do, in any order.
#[derive(Debug, Clone, Copy)]
enum Step {
    Acquire { target: Option<u8>, session: Option<u8>, ttl: u64 },
    Renew(usize, u64),
    Release(usize),
    Report(usize, Outcome, Option<u8>),
    Clear(u8, Option<u8>),
    Wait(u64),
    Replace(u8),
    Health(u8, Option<bool>),
    Suspend(u8, bool),
    Probed(u8, u64),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Ok),
        Just(Outcome::RateLimited),
        Just(Outcome::Banned),
        Just(Outcome::Unreachable)
    ];
    let some_target = || proptest::option::of(0..TARGETS);
    prop_oneof![
        8 => (some_target(), proptest::option::of(0u8..3), 1u64..200)
            .prop_map(|(target, session, ttl)| Step::Acquire { target, session, ttl }),
        2 => (0usize..60, 1u64..200).prop_map(|(n, ttl)| Step::Renew(n, ttl)),
        2 => (0usize..60).prop_map(Step::Release),
        3 => (0usize..20, outcome, some_target()).prop_map(|(n, o, t)| Step::Report(n, o, t)),
        1 => (0..PROXIES, some_target()).prop_map(|(p, t)| Step::Clear(p, t)),
        2 => (0u64..400).prop_map(Step::Wait),
        1 => (0..PROXIES).prop_map(Step::Replace),
        2 => (0..PROXIES, proptest::option::weighted(0.9, proptest::bool::weighted(0.7)))
            .prop_map(|(p, h)| Step::Health(p, h)),
        1 => (0..PROXIES, proptest::bool::weighted(0.3)).prop_map(|(p, s)| Step::Suspend(p, s)),
        1 => (0..PROXIES, 0u64..30).prop_map(|(p, ago)| Step::Probed(p, ago)),
        2 => Just(Step::Sweep),
    ]
}

/// A lease in the model's books.
#[derive(Debug, Clone)]
struct Held {
    proxy: usize,
    incarnation: Incarnation,
    target: Option<Target>,
    session: Option<String>,
    ends: u64,
}

/// A report of `unreachable` that nothing has answered yet.
#[derive(Debug)]
struct Unanswered {
    incarnation: Incarnation,
    since: u64,
    seen_unhealthy: bool,
}

/// The pool, and what must be true of it.
struct World {
    pool: Pool,
    proxies: Vec<ProxyFacts>,
    generation: u64,
    now: u64,
    granted: Vec<LeaseId>,
    held: BTreeMap<LeaseId, Held>,
    /// Ended leases, whether their machine went away, and until when they take reports.
    past: BTreeMap<LeaseId, (Held, Ended, u64)>,
    cooldowns: BTreeMap<(usize, Incarnation, Option<Target>), u64>,
    unanswered: BTreeMap<usize, Unanswered>,
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
            past: BTreeMap::new(),
            cooldowns: BTreeMap::new(),
            unanswered: BTreeMap::new(),
        }
    }

    fn fleet(&self) -> Fleet {
        fleet(self.proxies.clone())
    }

    fn machine(&self, proxy: usize) -> &Incarnation {
        &self.proxies[proxy].machine.as_ref().unwrap().incarnation
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Acquire { target: t, session, ttl } => {
                let session = session.map(|s| format!("s{s}"));
                self.acquire(Order { target: t.map(target), session, ttl: span(ttl), ..order() });
            }
            Step::Renew(n, ttl) => self.renew(n, ttl),
            Step::Release(n) => {
                let Some(lease) = self.granted.get(n).cloned() else { return };
                self.pool.release(&lease, moment(self.now));
                self.end(&lease, Ended::Released, self.now);
            }
            Step::Report(n, outcome, t) => self.report(n, outcome, t.map(target)),
            Step::Clear(n, t) => {
                let proxy = usize::from(n);
                let t = t.map(target);
                self.pool.clear_cooldowns(&self.proxies[proxy].uid, t.as_ref());
                self.cooldowns.retain(|(p, _, scope), _| *p != proxy || (t.is_some() && *scope != t));
            }
            Step::Wait(seconds) => self.now += seconds,
            Step::Replace(n) => {
                self.generation += 1;
                let incarnation = format!("p{n}-m{}", self.generation);
                self.proxies[usize::from(n)].machine = Some(machine(&incarnation));
            }
            Step::Health(n, healthy) => self.proxies[usize::from(n)].healthy = healthy,
            Step::Suspend(n, suspend) => self.proxies[usize::from(n)].suspend = suspend,
            Step::Probed(n, ago) => self.probed(usize::from(n), self.now.saturating_sub(ago)),
            Step::Sweep => self.sweep(),
        }
        self.expire();
        self.check();
    }

    fn renew(&mut self, n: usize, ttl: u64) {
        let Some(lease) = self.granted.get(n).cloned() else { return };
        let expected = self.renewable(&lease);
        let renewed = self.pool.renew(&self.fleet(), &lease, Some(span(ttl)), at(self.now));
        assert_eq!(renewed.map(|granted| granted.id), expected, "renewal of {lease}");
        if expected.is_ok() {
            self.held.get_mut(&lease).unwrap().ends = self.now + ttl;
        }
    }

    /// What a renewal must answer.
    fn renewable(&self, lease: &LeaseId) -> Result<LeaseId, Refusal> {
        match (self.held.get(lease), self.past.get(lease)) {
            (Some(held), _) if held.incarnation == *self.machine(held.proxy) => Ok(lease.clone()),
            (Some(_), _) | (None, Some((_, Ended::MachineGone, _))) => Err(Refusal::MachineGone),
            (None, Some((_, Ended::Expired | Ended::Released, _)) | None) => Err(Refusal::UnknownLease),
        }
    }

    fn report(&mut self, n: usize, outcome: Outcome, about: Option<Target>) {
        let Some(lease) = self.granted.get(n).cloned() else { return };
        let given = Report { target: about.clone(), ..report(outcome) };
        let taken = self.pool.report(&self.fleet(), &lease, given, moment(self.now));
        let known = self.held.get(&lease).or_else(|| self.past.get(&lease).map(|(held, ..)| held));
        assert_eq!(taken, known.map(|_| ()).ok_or(Refusal::UnknownLease), "report on {lease}");
        let Some(held) = known.filter(|held| held.incarnation == *self.machine(held.proxy)).cloned() else {
            return;
        };
        match outcome {
            Outcome::Ok => {}
            Outcome::RateLimited | Outcome::Banned => {
                let end = self.now + DEFAULT_COOLDOWN.as_secs();
                let scope = (held.proxy, held.incarnation, about.or(held.target));
                self.cooldowns.entry(scope).and_modify(|known| *known = (*known).max(end)).or_insert(end);
            }
            Outcome::Unreachable => {
                let incarnation = held.incarnation;
                let report = Unanswered { incarnation, since: self.now, seen_unhealthy: false };
                self.unanswered.insert(held.proxy, report);
            }
        }
    }

    fn probed(&mut self, proxy: usize, started: u64) {
        let (uid, incarnation) = (self.proxies[proxy].uid.clone(), self.machine(proxy).clone());
        if self
            .unanswered
            .get(&proxy)
            .is_some_and(|report| report.incarnation == incarnation && started >= report.since)
        {
            self.unanswered.remove(&proxy);
        }
        self.pool.probed(&GoodProbe { uid, incarnation, started: moment(started) });
    }

    fn sweep(&mut self) {
        self.pool.sweep(&self.fleet(), moment(self.now));
        let gone = |lease: &Held| lease.incarnation != *self.machine(lease.proxy);
        let ended: Vec<LeaseId> =
            self.held.iter().filter(|(_, held)| gone(held)).map(|(id, _)| id.clone()).collect();
        for lease in ended {
            self.end(&lease, Ended::MachineGone, self.now);
        }
        for (proxy, facts) in self.proxies.iter().enumerate() {
            let current = &facts.machine.as_ref().unwrap().incarnation;
            let Some(report) = self.unanswered.get_mut(&proxy) else { continue };
            report.seen_unhealthy |= facts.healthy == Some(false);
            let recovered = report.seen_unhealthy && facts.healthy == Some(true);
            if report.incarnation != *current || recovered {
                self.unanswered.remove(&proxy);
            }
        }
    }

    fn acquire(&mut self, order: Order) {
        let lease = id(&format!("l{}", self.granted.len()));
        let ends = self.now + order.ttl.as_secs();
        let answer = self.pool.acquire(&self.fleet(), order.clone(), lease.clone(), at(self.now));
        let of_session =
            self.held.iter().find(|(_, held)| order.session.is_some() && held.session == order.session);
        let of_session = of_session.map(|(id, held)| (id.clone(), held.clone()));
        if let Some((earlier, held)) = &of_session {
            if held.target != order.target {
                assert_eq!(answer, Err(Refusal::SessionConflict));
                return;
            }
            if held.incarnation == *self.machine(held.proxy) && self.fit(held.proxy, order.target.as_ref()) {
                let granted = answer.expect("the lease of the session");
                assert_eq!((&granted.id, granted.renewed), (earlier, true));
                self.held.get_mut(earlier).unwrap().ends = ends;
                return;
            }
        }
        let free: Vec<usize> =
            (0..self.proxies.len()).filter(|p| self.free(*p, order.target.as_ref())).collect();
        match answer {
            Ok(granted) => {
                let proxy: usize = granted.proxy.key.name[1..].parse().unwrap();
                assert!(free.contains(&proxy), "{} was handed out and must not be", granted.proxy.key);
                assert_eq!((&granted.id, granted.renewed), (&lease, false));
                assert_eq!(self.proxies[proxy].machine.as_ref(), Some(&granted.machine));
                let incarnation = granted.machine.incarnation;
                self.enter(
                    lease,
                    Held { proxy, incarnation, target: order.target, session: order.session, ends },
                );
            }
            Err(refused) => {
                assert!(free.is_empty(), "{refused:?}, though {free:?} may be handed out");
                self.check_refusal(refused);
            }
        }
    }

    /// A new lease ends that of the same session, and those on the machine that was replaced.
    fn enter(&mut self, lease: LeaseId, new: Held) {
        let (mut replaced, mut switched) = (Vec::new(), Vec::new());
        for (id, held) in &self.held {
            if held.proxy == new.proxy && held.incarnation != new.incarnation {
                replaced.push(id.clone());
            } else if new.session.is_some() && held.session == new.session {
                switched.push(id.clone());
            }
        }
        for id in replaced {
            self.end(&id, Ended::MachineGone, self.now);
        }
        for id in switched {
            self.end(&id, Ended::Released, self.now);
        }
        self.granted.push(lease.clone());
        self.held.insert(lease, new);
    }

    fn check_refusal(&self, refused: Refusal) {
        let why = refusal(Err(refused));
        let all = [
            why.suspended,
            why.not_ready,
            why.unhealthy,
            why.in_cooldown,
            why.at_capacity,
            why.target_at_capacity,
        ];
        assert_eq!((all.iter().sum::<u32>(), why.considered), (u32::from(PROXIES), u32::from(PROXIES)));
        let suspended = self.proxies.iter().filter(|f| f.suspend).count();
        assert_eq!(usize::try_from(why.suspended), Ok(suspended));
    }

    /// The proxy may be handed out, apart from its capacity.
    fn fit(&self, proxy: usize, wanted: Option<&Target>) -> bool {
        let (facts, current) = (&self.proxies[proxy], self.machine(proxy));
        let resting = self.cooldowns.iter().any(|((p, machine, scope), end)| {
            *p == proxy
                && machine == current
                && *end > self.now
                && (scope.is_none() || scope.as_ref() == wanted)
        });
        let unreachable = self.unanswered.get(&proxy).is_some_and(|report| report.incarnation == *current);
        facts.healthy == Some(true) && !facts.suspend && !resting && !unreachable
    }

    fn free(&self, proxy: usize, wanted: Option<&Target>) -> bool {
        let (all, busiest) = self.load(proxy, wanted);
        let facts = &self.proxies[proxy];
        self.fit(proxy, wanted)
            && facts.max_leases.is_none_or(|limit| all < usize::try_from(limit).unwrap())
            && facts.max_leases_per_target.is_none_or(|limit| busiest < usize::try_from(limit).unwrap())
    }

    /// Leases on the proxy's machine: all, and those that may visit the target or, without one, the busiest.
    fn load(&self, proxy: usize, wanted: Option<&Target>) -> (usize, usize) {
        let current = self.machine(proxy);
        let here: Vec<_> =
            self.held.values().filter(|l| l.proxy == proxy && l.incarnation == *current).collect();
        let toward = |wanted: &Target| {
            here.iter().filter(|l| l.target.as_ref().is_none_or(|target| target == wanted)).count()
        };
        let busiest = match wanted {
            Some(wanted) => toward(wanted),
            None => (0..TARGETS).map(|n| toward(&target(n))).max().unwrap(),
        };
        (here.len(), busiest)
    }

    fn end(&mut self, lease: &LeaseId, why: Ended, when: u64) {
        if let Some(held) = self.held.remove(lease) {
            self.past.insert(lease.clone(), (held, why, when + DEFAULT_COOLDOWN.as_secs()));
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        let over: Vec<(LeaseId, u64)> =
            self.held.iter().filter(|(_, l)| l.ends <= now).map(|(id, l)| (id.clone(), l.ends)).collect();
        for (lease, end) in over {
            self.end(&lease, Ended::Expired, end);
        }
        self.past.retain(|_, (.., until)| *until > now);
    }

    /// No machine carries more than it may, the pool counts what the model counts, and every lease can be
    /// renewed exactly if the model says so.
    fn check(&self) {
        for (proxy, facts) in self.proxies.iter().enumerate() {
            let (all, busiest) = self.load(proxy, None);
            let within =
                |limit: Option<u32>, n| limit.is_none_or(|limit| n <= usize::try_from(limit).unwrap());
            assert!(within(facts.max_leases, all), "{} has {all} leases", facts.key);
            assert!(within(facts.max_leases_per_target, busiest), "{} has {busiest} for a target", facts.key);
        }
        let mut counts = BTreeMap::new();
        for lease in self.held.values() {
            *counts.entry(self.proxies[lease.proxy].uid.clone()).or_insert(0) += 1;
        }
        let mut pool = self.pool.clone();
        assert_eq!(*pool.counts(moment(self.now)), counts);
        let fleet = self.fleet();
        for lease in &self.granted {
            let renewed = pool.renew(&fleet, lease, None, at(self.now)).map(|granted| granted.id);
            assert_eq!(renewed, self.renewable(lease), "{lease}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_answer_is_the_one_that_the_model_foretells(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        let last_end = world.now + 1000;
        prop_assert!(world.pool.counts(moment(last_end)).is_empty());
    }
}
