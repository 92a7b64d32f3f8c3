use std::collections::BTreeSet;

use super::*;
use crate::provider::{Credentials, Secret};

fn one_of(key: &str, values: &[&str]) -> Selector {
    let values = values.iter().map(|v| (*v).to_owned()).collect();
    Selector { attributes: BTreeMap::from([(key.to_owned(), values)]), namespace: None }
}

/// What, the proxy, the counter it must be in, whether somebody leases it first.
type Row = (&'static str, ProxyFacts, fn(&NoMatch) -> u32, bool);

#[test]
fn each_proxy_stands_in_exactly_one_place() {
    let leased = |facts: &ProxyFacts, pool: &mut Pool| {
        let granted = pool.acquire(&fleet([facts.clone()]), order_for("a.com"), id("held"), at(0));
        assert!(granted.is_ok());
    };
    let rows: [Row; 12] = [
        ("suspended", with("p", |f| f.suspend = true), |n| n.suspended, false),
        (
            "suspended comes before unhealthy",
            with("p", |f| (f.suspend, f.healthy) = (true, Some(false))),
            |n| n.suspended,
            false,
        ),
        ("no machine", with("p", |f| f.machine = None), |n| n.not_ready, false),
        ("being replaced", with("p", |f| f.phase = Phase::Replacing), |n| n.not_ready, false),
        ("phase Deleting", with("p", |f| f.phase = Phase::Deleting), |n| n.not_ready, false),
        (
            "credentials unreadable",
            with("p", |f| f.auth = Auth::Missing("no Secret".into())),
            |n| n.not_ready,
            false,
        ),
        ("no verdict yet", with("p", |f| f.healthy = None), |n| n.not_ready, false),
        ("unhealthy", with("p", |f| f.healthy = Some(false)), |n| n.unhealthy, false),
        ("full", with("p", |f| f.max_leases = Some(1)), |n| n.at_capacity, true),
        ("never any lease", with("p", |f| f.max_leases = Some(0)), |n| n.at_capacity, false),
        (
            "full for the target",
            with("p", |f| f.max_leases_per_target = Some(1)),
            |n| n.target_at_capacity,
            true,
        ),
        (
            "full comes before full for the target",
            with("p", |f| (f.max_leases, f.max_leases_per_target) = (Some(1), Some(1))),
            |n| n.at_capacity,
            true,
        ),
    ];
    for (what, facts, counter, lease_first) in rows {
        let mut pool = pool();
        if lease_first {
            leased(&facts, &mut pool);
        }
        let why = refusal(pool.acquire(&fleet([facts]), order_for("a.com"), id("new"), at(0)));
        assert_eq!((why.considered, counter(&why)), (1, 1), "{what}: {why:?}");
        assert_eq!(sum(&why), 1, "{what}: {why:?}");
    }
}

fn sum(why: &NoMatch) -> u32 {
    why.suspended + why.not_ready + why.unhealthy + why.in_cooldown + why.at_capacity + why.target_at_capacity
}

#[test]
fn a_proxy_being_deleted_is_not_even_considered() {
    let leaving = fleet([with("p", |f| f.deleting = true)]);
    assert_eq!(refusal(pool().acquire(&leaving, order(), id("1"), at(0))).considered, 0);
}

#[test]
fn known_credentials_are_no_obstacle() {
    let credentials = Credentials { username: Secret::new("u".into()), password: Secret::new("p".into()) };
    let fleet = fleet([with("p", |f| f.auth = Auth::Known(credentials))]);
    assert!(pool().acquire(&fleet, order(), id("1"), at(0)).is_ok());
}

#[test]
fn nothing_is_concluded_before_the_fleet_is_known() {
    let unknown = Fleet::default();
    let mut pool = pool();
    assert_eq!(pool.acquire(&unknown, order(), id("1"), at(0)), Err(Refusal::NotReady));
    assert_eq!(pool.renew(&unknown, &id("1"), None, at(0)), Err(Refusal::NotReady));
    assert_eq!(pool.report(&unknown, &id("1"), report(Outcome::Ok), moment(0)), Err(Refusal::NotReady));
}

#[test]
fn a_selector_means_one_of_the_values_of_every_key() {
    let fleet = fleet([
        with("de", |f| f.attributes = attributes(&[("geo", "de"), ("tier", "a")])),
        with("fr", |f| f.attributes = attributes(&[("geo", "fr"), ("tier", "b")])),
    ]);
    let rows: [(Selector, u32); 6] = [
        (Selector::default(), 2),
        (one_of("geo", &["de"]), 1),
        (one_of("geo", &["de", "fr"]), 2),
        (one_of("geo", &[]), 0),
        (one_of("zone", &["de"]), 0),
        (Selector { namespace: Some("other".to_owned()), ..Selector::default() }, 0),
    ];
    for (selector, expected) in rows {
        let matching = fleet.proxies.values().filter(|f| selector.matches(f)).count();
        assert_eq!(u32::try_from(matching), Ok(expected), "{selector:?}");
    }
    let both = Selector {
        attributes: one_of("geo", &["de"])
            .attributes
            .into_iter()
            .chain(one_of("tier", &["b"]).attributes)
            .collect(),
        namespace: Some("default".to_owned()),
    };
    assert!(!fleet.proxies.values().any(|f| both.matches(f)));
}

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn a_key_that_no_proxy_has_is_named() {
    let why = refusal(pool().acquire(
        &fleet([proxy("p")]),
        Order { selector: one_of("goe", &["local"]), ..order() },
        id("1"),
        at(0),
    ));
    assert_eq!((why.considered, why.unknown_attributes), (0, vec!["goe".to_owned()]));
    let why = refusal(pool().acquire(
        &fleet([proxy("p")]),
        Order { selector: one_of("geo", &["mars"]), ..order() },
        id("1"),
        at(0),
    ));
    assert_eq!((why.considered, why.unknown_attributes), (0, vec![]));
}

#[test]
fn fewest_leases_then_latency_then_name() {
    let slow = |name: &str, millis| with(name, |f| f.latency = millis);
    let ms = Duration::from_millis;
    let fleet =
        fleet([slow("a", None), slow("b", Some(ms(30))), slow("d", Some(ms(20))), slow("c", Some(ms(20)))]);
    let mut pool = pool();
    let picks: Vec<String> =
        (0..5).map(|n| name(&pool.acquire(&fleet, order(), id(&n.to_string()), at(0))).to_owned()).collect();
    assert_eq!(picks, ["c", "d", "b", "a", "c"]);
}

#[test]
fn spread_goes_round_the_whole_fleet_whatever_the_latency() {
    let fleet = fleet(["a", "b", "c"].map(|n| with(n, |f| f.latency = (n == "c").then_some(span(0)))));
    let mut pool = pool();
    let mut picks = Vec::new();
    for n in 0..6 {
        let lease = id(&n.to_string());
        let order = Order { prefer: Prefer::Spread, ..order() };
        picks.push(name(&pool.acquire(&fleet, order, lease.clone(), at(n))).to_owned());
        pool.release(&lease, moment(n));
    }
    assert_eq!(picks, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn excluded_proxies_are_neither_granted_nor_considered() {
    let fleet = fleet([proxy("a"), with("b", |f| f.suspend = true)]);
    let exclude = BTreeSet::from([ProxyKey::new("default", "a")]);
    let why = refusal(pool().acquire(&fleet, Order { exclude, ..order() }, id("1"), at(0)));
    assert_eq!((why.considered, why.suspended), (1, 1));
}

#[test]
fn retry_after_is_the_earliest_end_that_makes_room() {
    let fleet = fleet([
        with("full", |f| f.max_leases = Some(1)),
        with("busy", |f| f.max_leases_per_target = Some(1)),
        proxy("limited"),
    ]);
    let mut pool = pool();
    for (n, ttl) in [("1", 500), ("2", 400), ("3", 300)] {
        pool.acquire(&fleet, Order { ttl: span(ttl), ..order_for("a.com") }, id(n), at(0)).unwrap();
    }
    let resting = ["1", "2", "3"].map(id).into_iter().find(|lease| {
        pool.renew(&fleet, lease, None, at(0)).is_ok_and(|granted| granted.proxy.key.name == "limited")
    });
    let limited = Report { cooldown: Some(span(90)), ..report(Outcome::RateLimited) };
    pool.report(&fleet, &resting.unwrap(), limited, moment(10)).unwrap();
    let why = refusal(pool.acquire(&fleet, order_for("a.com"), id("4"), at(20)));
    assert_eq!((why.at_capacity, why.target_at_capacity, why.in_cooldown), (1, 1, 1));
    assert_eq!(why.retry_after, Some(span(80)));
    assert!(pool.acquire(&fleet, order_for("a.com"), id("5"), at(100)).is_ok());
}
