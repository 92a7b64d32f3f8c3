use super::*;

#[test]
fn a_lease_ends_by_monotonic_time_and_makes_room() {
    let fleet = fleet([with("p", |f| f.max_leases = Some(1))]);
    let mut pool = pool();
    let granted = pool.acquire(&fleet, order(), id("1"), at(0)).unwrap();
    assert_eq!(granted.expires_at, at(300).wall);
    assert!(!granted.renewed);
    // The wall clock jumps a day ahead: the lease does not end.
    let jumped = Now { wall: at(86_400).wall, mono: moment(299) };
    assert_eq!(refusal(pool.acquire(&fleet, order(), id("2"), jumped)).at_capacity, 1);
    assert!(pool.acquire(&fleet, order(), id("2"), at(300)).is_ok());
}

#[test]
fn the_end_told_to_a_client_is_never_later_than_the_real_one() {
    let mut pool = pool();
    let now = Now { wall: at(0).wall + Duration::from_millis(900), mono: moment(0) };
    let granted = pool.acquire(&fleet([proxy("p")]), order(), id("1"), now).unwrap();
    assert_eq!(granted.expires_at, at(300).wall);
}

#[test]
fn renewing_counts_from_now_and_keeps_the_time_granted_before() {
    let fleet = fleet([proxy("p")]);
    let mut pool = pool();
    pool.acquire(&fleet, Order { ttl: span(60), ..order() }, id("1"), at(0)).unwrap();
    assert_eq!(pool.renew(&fleet, &id("1"), None, at(50)).unwrap().expires_at, at(110).wall);
    let renewed = pool.renew(&fleet, &id("1"), Some(span(500)), at(100)).unwrap();
    assert_eq!((renewed.expires_at, renewed.ttl, renewed.renewed), (at(600).wall, span(500), true));
    assert_eq!(pool.renew(&fleet, &id("1"), None, at(600)), Err(Refusal::UnknownLease));
}

#[test]
fn releasing_twice_or_late_frees_nobody_elses_lease() {
    let fleet = fleet([with("p", |f| f.max_leases = Some(1))]);
    let mut pool = pool();
    pool.acquire(&fleet, order(), id("first"), at(0)).unwrap();
    pool.release(&id("first"), moment(1));
    pool.acquire(&fleet, order(), id("second"), at(2)).unwrap();
    pool.release(&id("first"), moment(3));
    pool.release(&id("never"), moment(3));
    assert_eq!(*pool.counts(moment(3)), BTreeMap::from([(uid("p"), 1)]));
    assert_eq!(pool.renew(&fleet, &id("first"), None, at(3)), Err(Refusal::UnknownLease));
}

#[test]
fn a_lease_never_moves_to_the_machine_that_replaces_its_own() {
    let before = fleet([with("p", |f| f.max_leases = Some(1))]);
    let after = fleet([with("p", |f| (f.max_leases, f.machine) = (Some(1), Some(machine("p-m2"))))]);
    let mut pool = pool();
    pool.acquire(&before, order(), id("old"), at(0)).unwrap();
    assert_eq!(pool.renew(&after, &id("old"), None, at(1)), Err(Refusal::MachineGone));
    // The new machine has its whole capacity at once, sweep or no sweep.
    pool.acquire(&after, order(), id("new"), at(1)).unwrap();
    assert_eq!(pool.renew(&after, &id("old"), None, at(2)), Err(Refusal::MachineGone));
    assert_eq!(*pool.counts(moment(2)), BTreeMap::from([(uid("p"), 1)]));
}

#[test]
fn a_lease_on_a_leaving_machine_lives_on_but_is_not_renewed() {
    let rows = [
        with("p", |f| f.deleting = true),
        with("p", |f| f.phase = Phase::Replacing),
        with("p", |f| f.machine = None),
    ];
    for leaving in rows {
        let mut pool = pool();
        pool.acquire(&fleet([proxy("p")]), order(), id("1"), at(0)).unwrap();
        let leaving = fleet([leaving]);
        pool.sweep(&leaving, moment(1));
        assert_eq!(pool.renew(&leaving, &id("1"), None, at(2)), Err(Refusal::MachineGone));
        assert_eq!(*pool.counts(moment(2)), BTreeMap::from([(uid("p"), 1)]), "a drain waits for it");
        assert!(pool.counts(moment(300)).is_empty());
    }
}

#[test]
fn the_leases_of_a_deleted_or_recreated_proxy_end() {
    let recreated = with("p2", |f| f.key = ProxyKey::new("default", "p"));
    for after in [fleet([]), fleet([recreated])] {
        let mut pool = pool();
        pool.acquire(&fleet([proxy("p")]), order(), id("1"), at(0)).unwrap();
        pool.sweep(&after, moment(1));
        assert!(pool.counts(moment(1)).is_empty());
        assert_eq!(pool.renew(&after, &id("1"), None, at(2)), Err(Refusal::MachineGone));
    }
}

#[test]
fn an_outage_of_ours_ends_no_lease() {
    let mut pool = pool();
    pool.acquire(&fleet([proxy("p")]), order(), id("1"), at(0)).unwrap();
    pool.sweep(&Fleet::default(), moment(1));
    assert!(pool.renew(&fleet([proxy("p")]), &id("1"), None, at(2)).is_ok());
}

#[test]
fn suspended_and_unhealthy_proxies_are_kept_by_whoever_has_them() {
    for facts in [with("p", |f| f.suspend = true), with("p", |f| f.healthy = Some(false))] {
        let mut pool = pool();
        pool.acquire(&fleet([proxy("p")]), order(), id("1"), at(0)).unwrap();
        assert!(pool.renew(&fleet([facts]), &id("1"), None, at(1)).is_ok());
    }
}

#[test]
fn a_repeated_request_of_a_session_gets_the_lease_it_already_has() {
    let fleet = fleet([proxy("a"), proxy("b")]);
    let mut pool = pool();
    let first = pool.acquire(&fleet, order_of("s"), id("1"), at(0)).unwrap();
    let again = pool.acquire(&fleet, order_of("s"), id("2"), at(100)).unwrap();
    assert_eq!((&again.id, again.renewed, again.expires_at), (&first.id, true, at(400).wall));
    let other = pool.acquire(&fleet, order_of("t"), id("3"), at(100)).unwrap();
    assert_eq!((other.renewed, other.proxy.key.name.as_str()), (false, "b"));
    assert_eq!(pool.counts(moment(100)).values().sum::<u32>(), 2);
}

#[test]
fn a_session_that_asks_for_something_else_is_in_conflict_until_its_lease_ends() {
    let fleet = fleet([proxy("a"), proxy("b")]);
    let mut pool = pool();
    let first = pool.acquire(&fleet, order_of("s"), id("1"), at(0)).unwrap();
    let others = [
        Order { target: site("a.com"), ..order_of("s") },
        Order {
            selector: Selector { namespace: Some("default".into()), ..Selector::default() },
            ..order_of("s")
        },
        Order { exclude: [first.proxy.key.clone()].into(), ..order_of("s") },
    ];
    for (n, other) in others.into_iter().enumerate() {
        let conflict = pool.acquire(&fleet, other.clone(), id(&format!("c{n}")), at(1));
        assert_eq!(conflict, Err(Refusal::SessionConflict), "{other:?}");
    }
    pool.release(&id("1"), moment(2));
    assert!(pool.acquire(&fleet, order_for("a.com"), id("2"), at(3)).is_ok());
}

#[test]
fn a_session_whose_proxy_must_not_be_handed_out_gets_another_one_and_never_two() {
    let changes: [fn(&mut ProxyFacts); 4] = [
        |f| f.suspend = true,
        |f| f.healthy = Some(false),
        |f| f.deleting = true,
        |f| f.machine = Some(machine("a-m2")),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut pool = pool();
        let start = fleet([proxy("a"), with("b", |f| f.latency = Some(span(9)))]);
        assert_eq!(name(&pool.acquire(&start, order_of("s"), id("1"), at(0))), "a");
        let changed = fleet([with("a", change), with("b", |f| f.latency = Some(span(9)))]);
        let again = pool.acquire(&changed, order_of("s"), id("2"), at(1)).unwrap();
        assert!(!again.renewed, "row {n}");
        assert!(again.proxy.healthy == Some(true) && !again.proxy.suspend && !again.proxy.deleting);
        assert_eq!(pool.counts(moment(1)).values().sum::<u32>(), 1, "row {n}");
    }
}

#[test]
fn a_session_whose_proxy_must_rest_or_is_unreachable_gets_another_one() {
    for outcome in [Outcome::RateLimited, Outcome::Banned, Outcome::Unreachable] {
        let fleet = fleet([proxy("a"), with("b", |f| f.latency = Some(span(9)))]);
        let mut pool = pool();
        pool.acquire(&fleet, order_of("s"), id("1"), at(0)).unwrap();
        pool.report(&fleet, &id("1"), report(outcome), moment(1)).unwrap();
        let again = pool.acquire(&fleet, order_of("s"), id("2"), at(2));
        assert_eq!((name(&again), again.as_ref().map(|g| g.renewed)), ("b", Ok(false)), "{outcome:?}");
        assert_eq!(*pool.counts(moment(2)), BTreeMap::from([(uid("b"), 1)]), "{outcome:?}");
    }
}

#[test]
fn a_session_with_nowhere_to_go_is_refused_and_keeps_what_it_has() {
    let mut pool = pool();
    pool.acquire(&fleet([proxy("a")]), order_of("s"), id("1"), at(0)).unwrap();
    let unhealthy = fleet([with("a", |f| f.healthy = Some(false))]);
    assert_eq!(refusal(pool.acquire(&unhealthy, order_of("s"), id("2"), at(1))).unhealthy, 1);
    assert!(pool.renew(&unhealthy, &id("1"), None, at(2)).is_ok());
}

#[test]
fn no_proxy_exceeds_its_leases_per_target_when_another_is_banned() {
    let limited = |n: &str| with(n, |f| f.max_leases_per_target = Some(10));
    let fleet = fleet([limited("a"), limited("b"), limited("c")]);
    let mut pool = pool();
    let first = pool.acquire(&fleet, order_for("shop.com"), id("0"), at(0)).unwrap();
    pool.report(&fleet, &first.id, report(Outcome::Banned), moment(0)).unwrap();
    let granted = (1..40)
        .filter(|n| pool.acquire(&fleet, order_for("shop.com"), id(&n.to_string()), at(1)).is_ok())
        .count();
    assert_eq!(granted, 20);
    assert!(pool.counts(moment(1)).values().all(|n| *n <= 10));
}

#[test]
fn leaving_the_target_out_is_no_way_around_the_limit_per_target() {
    let fleet = fleet([with("p", |f| f.max_leases_per_target = Some(2))]);
    let mut pool = pool();
    pool.acquire(&fleet, order_for("a.com"), id("1"), at(0)).unwrap();
    pool.acquire(&fleet, order(), id("2"), at(0)).unwrap();
    assert_eq!(refusal(pool.acquire(&fleet, order(), id("3"), at(0))).target_at_capacity, 1);
    assert_eq!(refusal(pool.acquire(&fleet, order_for("a.com"), id("3"), at(0))).target_at_capacity, 1);
    assert!(pool.acquire(&fleet, order_for("b.com"), id("3"), at(0)).is_ok());
}

#[test]
fn beyond_the_live_leases_kept_in_all_none_is_granted_until_one_ends() {
    let fleet = fleet([proxy("p")]);
    let mut pool = Pool::bounded(DEFAULT_COOLDOWN, Bounds { live: 2, ..Bounds::default() });
    let of = |session: &str, ttl| Order { ttl: span(ttl), ..order_of(session) };
    pool.acquire(&fleet, of("a", 100), id("1"), at(0)).unwrap();
    pool.acquire(&fleet, of("b", 200), id("2"), at(0)).unwrap();
    assert_eq!(pool.acquire(&fleet, order(), id("3"), at(40)), Err(Refusal::TooManyLeases(span(60))));
    let session = pool.acquire(&fleet, of("a", 100), id("4"), at(50));
    assert!(session.is_ok_and(|granted| granted.renewed), "a session keeps what it has");
    pool.release(&id("1"), moment(60));
    assert!(pool.acquire(&fleet, order(), id("5"), at(60)).is_ok());
    assert!(matches!(pool.acquire(&fleet, order(), id("6"), at(60)), Err(Refusal::TooManyLeases(_))));
    assert!(pool.acquire(&fleet, order(), id("7"), at(200)).is_ok(), "one has expired");
}

#[test]
fn a_session_that_must_change_its_proxy_may_do_so_with_every_place_taken() {
    let mut pool = Pool::bounded(DEFAULT_COOLDOWN, Bounds { live: 1, ..Bounds::default() });
    pool.acquire(&fleet([proxy("a"), proxy("b")]), order_of("s"), id("1"), at(0)).unwrap();
    let sick = fleet([with("a", |f| f.healthy = Some(false)), proxy("b")]);
    assert_eq!(name(&pool.acquire(&sick, order_of("s"), id("2"), at(1))), "b");
}

#[test]
fn what_a_lease_keeps_of_its_selector_tells_any_two_apart_and_does_not_grow() {
    let of = |pairs: &[(&str, &[&str])], namespace: Option<&str>| Selector {
        attributes: pairs
            .iter()
            .map(|(key, values)| ((*key).to_owned(), values.iter().map(|v| (*v).to_owned()).collect()))
            .collect(),
        namespace: namespace.map(str::to_owned),
    };
    let selectors = [
        of(&[], None),
        of(&[], Some("a")),
        of(&[("a", &[])], None),
        of(&[("a", &["b"])], None),
        of(&[("a", &["b", "c"])], None),
        of(&[("a", &["bc"])], None),
        of(&[("a", &["b"]), ("c", &[])], None),
        of(&[("a", &["b"])], Some("c")),
        of(&[("ab", &[""])], None),
    ];
    for (n, one) in selectors.iter().enumerate() {
        for (m, other) in selectors.iter().enumerate() {
            assert_eq!(one.digest() == other.digest(), n == m, "{one:?} {other:?}");
        }
    }
    assert!(size_of::<SelectorDigest>() <= 32);
}
