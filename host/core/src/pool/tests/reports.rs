use super::*;
use crate::facts::GoodProbe;

fn blocked(pool: &mut Pool, fleet: &Fleet, order: Order, now: u64) -> bool {
    let attempt = pool.acquire(fleet, order, id(&format!("try-{now}")), at(now));
    if let Ok(granted) = &attempt {
        pool.release(&granted.id, moment(now));
    }
    attempt.is_err()
}

#[test]
fn what_each_report_does() {
    // outcome, target of the lease, target of the report -> blocked for a.com, for b.com, for any
    let rows = [
        (Outcome::Ok, None, None, [false, false, false]),
        (Outcome::RateLimited, site("a.com"), None, [true, false, false]),
        (Outcome::RateLimited, site("b.com"), site("a.com"), [true, false, false]),
        (Outcome::RateLimited, None, site("A.COM."), [true, false, false]),
        (Outcome::Banned, None, None, [true, true, true]),
        (Outcome::Unreachable, site("a.com"), None, [true, true, true]),
    ];
    for (outcome, lease_target, target, expected) in rows {
        let fleet = fleet([proxy("p")]);
        let mut pool = pool();
        pool.acquire(&fleet, Order { target: lease_target, ..order() }, id("1"), at(0)).unwrap();
        let given = Report { target, ..report(outcome) };
        pool.report(&fleet, &id("1"), given.clone(), moment(1)).unwrap();
        let found = [order_for("a.com"), order_for("b.com"), order()]
            .map(|order| blocked(&mut pool, &fleet, order, 2));
        assert_eq!(found, expected, "{given:?}");
    }
}

#[test]
fn a_cooldown_lasts_as_the_report_or_the_default_says_and_ok_clears_nothing() {
    let fleet = fleet([proxy("p")]);
    let mut pool = pool();
    pool.acquire(&fleet, order(), id("1"), at(0)).unwrap();
    let brief = Report { cooldown: Some(span(20)), ..report(Outcome::RateLimited) };
    pool.report(&fleet, &id("1"), brief.clone(), moment(0)).unwrap();
    pool.report(&fleet, &id("1"), report(Outcome::Ok), moment(1)).unwrap();
    assert!(blocked(&mut pool, &fleet, order(), 19));
    assert!(!blocked(&mut pool, &fleet, order(), 20));
    pool.report(&fleet, &id("1"), report(Outcome::Banned), moment(30)).unwrap();
    pool.report(&fleet, &id("1"), brief, moment(31)).unwrap();
    assert!(blocked(&mut pool, &fleet, order(), 929), "the shorter report shortened it");
    assert!(!blocked(&mut pool, &fleet, order(), 930));
}

#[test]
fn a_report_may_release_the_lease_and_a_late_one_still_counts() {
    let fleet = fleet([with("p", |f| f.max_leases = Some(1))]);
    let mut pool = pool();
    pool.acquire(&fleet, order_for("a.com"), id("1"), at(0)).unwrap();
    let done = Report { release: true, ..report(Outcome::Ok) };
    pool.report(&fleet, &id("1"), done, moment(1)).unwrap();
    assert!(pool.counts(moment(1)).is_empty());
    // Released at 1; reports are taken for the cooldown window after that.
    pool.report(&fleet, &id("1"), report(Outcome::Banned), moment(900)).unwrap();
    assert!(blocked(&mut pool, &fleet, order_for("a.com"), 901));
    let late = pool.report(&fleet, &id("1"), report(Outcome::Banned), moment(901));
    assert_eq!(late, Err(Refusal::UnknownLease));
}

#[test]
fn an_expired_lease_takes_reports_for_the_cooldown_window_after_its_end() {
    let fleet = fleet([proxy("p")]);
    for (when, expected) in [(300, Ok(())), (1199, Ok(())), (1200, Err(Refusal::UnknownLease))] {
        let mut pool = pool();
        pool.acquire(&fleet, order_for("a.com"), id("1"), at(0)).unwrap();
        assert_eq!(pool.report(&fleet, &id("1"), report(Outcome::Banned), moment(when)), expected, "{when}");
        assert_eq!(blocked(&mut pool, &fleet, order_for("a.com"), when), expected.is_ok());
    }
    assert_eq!(
        pool().report(&fleet, &id("never"), report(Outcome::Ok), moment(0)),
        Err(Refusal::UnknownLease)
    );
}

#[test]
fn a_report_about_a_replaced_machine_is_taken_and_harms_its_replacement_not() {
    for outcome in [Outcome::Banned, Outcome::Unreachable] {
        let mut pool = pool();
        pool.acquire(&fleet([proxy("p")]), order(), id("1"), at(0)).unwrap();
        let after = fleet([with("p", |f| f.machine = Some(machine("p-m2")))]);
        pool.sweep(&after, moment(1));
        assert_eq!(pool.report(&after, &id("1"), report(outcome), moment(2)), Ok(()));
        assert!(!blocked(&mut pool, &after, order(), 3));
        assert!(pool.probes_due(moment(3)).is_empty());
    }
}

#[test]
fn a_cleared_cooldown_makes_room_at_once() {
    let fleet = fleet([proxy("p")]);
    let mut pool = pool();
    pool.acquire(&fleet, order_for("a.com"), id("1"), at(0)).unwrap();
    pool.report(&fleet, &id("1"), report(Outcome::Banned), moment(1)).unwrap();
    pool.clear_cooldowns(&uid("p"), site("b.com").as_ref());
    assert!(blocked(&mut pool, &fleet, order_for("a.com"), 2));
    pool.clear_cooldowns(&uid("p"), site("a.com").as_ref());
    assert!(!blocked(&mut pool, &fleet, order_for("a.com"), 2));
}

#[test]
fn an_unreachable_proxy_waits_for_a_probe_that_is_forced_at_once() {
    let fleet = fleet([proxy("p")]);
    let mut pool = pool();
    pool.acquire(&fleet, order(), id("1"), at(0)).unwrap();
    pool.report(&fleet, &id("1"), report(Outcome::Unreachable), moment(5)).unwrap();
    let asked = pool.probes_due(moment(5));
    assert_eq!(asked.len(), 1);
    assert_eq!(refusal(pool.acquire(&fleet, order(), id("2"), at(6))).unhealthy, 1);
    assert!(pool.usage(&fleet, &uid("p"), at(6)).reported_unreachable);
    let incarnation = asked[0].incarnation.clone();
    let answer = |started| GoodProbe { uid: uid("p"), incarnation: incarnation.clone(), started };
    pool.probed(&answer(moment(4)));
    assert!(blocked(&mut pool, &fleet, order(), 7), "a probe from before the report answered it");
    pool.probed(&answer(moment(6)));
    assert!(!blocked(&mut pool, &fleet, order(), 8));
}

#[test]
fn an_unreachable_proxy_is_back_once_it_was_seen_to_recover_or_has_another_machine() {
    let reported = || {
        let mut pool = pool();
        let start = fleet([proxy("p")]);
        pool.acquire(&start, order(), id("1"), at(0)).unwrap();
        pool.report(&start, &id("1"), report(Outcome::Unreachable), moment(1)).unwrap();
        pool
    };
    let mut pool = reported();
    let healthy = fleet([proxy("p")]);
    pool.sweep(&healthy, moment(2));
    assert!(blocked(&mut pool, &healthy, order(), 3), "healthy as before the report proves nothing");
    pool.sweep(&fleet([with("p", |f| f.healthy = Some(false))]), moment(4));
    pool.sweep(&healthy, moment(5));
    assert!(!blocked(&mut pool, &healthy, order(), 6));

    let mut pool = reported();
    let replaced = fleet([with("p", |f| f.machine = Some(machine("p-m2")))]);
    pool.sweep(&replaced, moment(2));
    assert!(!blocked(&mut pool, &replaced, order(), 3));
}

#[test]
fn usage_shows_who_has_what_and_what_rests_but_no_lease_id() {
    let fleet = fleet([proxy("p")]);
    let mut pool = pool();
    let holder = Some("spider-7".to_owned());
    pool.acquire(&fleet, Order { holder: holder.clone(), ..order_for("a.com") }, id("1"), at(0)).unwrap();
    pool.report(&fleet, &id("1"), report(Outcome::RateLimited), moment(10)).unwrap();
    let usage = pool.usage(&fleet, &uid("p"), at(20));
    assert_eq!(usage.leases, [HeldLease { target: site("a.com"), holder, expires_at: at(300).wall }]);
    assert_eq!(usage.cooldowns, [(site("a.com"), at(910).wall)]);
    assert!(!usage.reported_unreachable);
}

#[test]
fn ever_new_targets_fill_no_memory_and_take_the_proxy_from_nobody_else() {
    let fleet = fleet([proxy("p")]);
    let mut pool = pool();
    pool.acquire(&fleet, order(), id("1"), at(0)).unwrap();
    for n in 0..2000 {
        let given = Report { target: site(&format!("site{n}.com")), ..report(Outcome::Banned) };
        pool.report(&fleet, &id("1"), given, moment(n / 100)).unwrap();
    }
    assert_eq!(pool.usage(&fleet, &uid("p"), at(20)).cooldowns.len(), Bounds::default().targets);
    assert!(blocked(&mut pool, &fleet, order_for("site1999.com"), 21), "the latest ban stands");
    assert!(!blocked(&mut pool, &fleet, order_for("elsewhere.com"), 22));
}

#[test]
fn a_deleted_proxy_leaves_no_cooldown_behind() {
    let start = fleet([proxy("p")]);
    let mut pool = pool();
    pool.acquire(&start, order(), id("1"), at(0)).unwrap();
    pool.report(&start, &id("1"), report(Outcome::Banned), moment(1)).unwrap();
    pool.sweep(&fleet([]), moment(2));
    assert!(pool.usage(&start, &uid("p"), at(3)).cooldowns.is_empty());
}
