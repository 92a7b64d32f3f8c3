//! A row per line of the tables in `docs/health.md`.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::crd::Mode;
use crate::facts::{Machine, ProbePlan, ProxyFacts, Verdict};
use crate::ids::{Incarnation, ProxyKey, ProxyUid};
use crate::time::{Moment, Now};

fn at(seconds: u64) -> Now {
    let elapsed = Duration::from_secs(seconds);
    let wall = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(elapsed).unwrap();
    Now { wall, mono: Moment::after_start(elapsed) }
}

fn plan(success_threshold: u32, failure_threshold: u32) -> ProbePlan {
    ProbePlan {
        url: "https://target.example/".to_owned(),
        expected_status: vec![200],
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        success_threshold,
        failure_threshold,
        networks: Arc::default(),
        ca_pem: None,
        insecure_skip_verify: false,
    }
}

fn state(healthy: Option<bool>, latency_ms: Option<u64>) -> HealthState {
    let (key, uid) = (ProxyKey::new("ns", "a"), ProxyUid::parse("u-1").unwrap());
    let latency = latency_ms.map(Duration::from_millis);
    let facts = ProxyFacts { healthy, latency, ..ProxyFacts::new(key, uid, Mode::External) };
    let incarnation = Incarnation::parse("m1").unwrap();
    HealthState::new(Machine { incarnation, address: "10.0.0.1".to_owned(), port: 3128 }, &facts)
}

fn ok(ms: u64) -> Outcome {
    Outcome::Passed { latency: Duration::from_millis(ms) }
}

fn fails(reason: ProbeReason) -> Outcome {
    Outcome::Failed { reason, message: format!("do something about {reason}") }
}

/// Feeds outcomes, one per 30 s unless said otherwise, and returns what was published after each.
fn feed(
    state: &mut HealthState,
    plan: &ProbePlan,
    hold: Hold,
    steps: &[(u64, Outcome)],
) -> Vec<Option<Verdict>> {
    let mut published = Vec::new();
    for (seconds, outcome) in steps {
        let judgement = judge(state, plan, outcome, hold, at(*seconds));
        *state = judgement.state;
        published.push(judgement.publish);
    }
    published
}

fn short(published: &[Option<Verdict>]) -> Vec<&'static str> {
    published.iter().map(|v| v.as_ref().map_or("-", |verdict| verdict.reason)).collect()
}

#[test]
fn the_first_verdict_is_healthy_at_the_success_threshold() {
    let mut new = state(None, None);
    let out = feed(&mut new, &plan(2, 3), Hold::No, &[(0, ok(10)), (30, ok(11)), (60, ok(12))]);
    assert_eq!(short(&out), ["-", "ProbeSucceeded", "-"]);
    let verdict = out[1].as_ref().unwrap();
    assert_eq!((verdict.healthy, verdict.latency), (true, Some(Duration::from_millis(11))));
    assert_eq!(verdict.probed_at, at(30).wall);
}

#[test]
fn a_failure_starts_the_row_of_successes_anew() {
    let mut new = state(Some(false), None);
    let steps = [(0, ok(1)), (30, fails(ProbeReason::Timeout)), (60, ok(1)), (90, ok(1))];
    assert_eq!(short(&feed(&mut new, &plan(2, 3), Hold::No, &steps)), ["-", "-", "-", "ProbeSucceeded"]);
}

#[test]
fn the_first_verdict_is_unhealthy_only_after_threshold_and_settling() {
    let refused = || fails(ProbeReason::Refused);
    let mut new = state(None, None);
    let steps = [(0, refused()), (1, refused()), (3, refused()), (7, refused()), (15, refused())];
    assert_eq!(short(&feed(&mut new, &plan(1, 3), Hold::No, &steps)), ["-", "-", "-", "-", "Refused"]);

    let mut starting = state(None, None);
    let steps = [(0, refused()), (1, refused()), (3, refused()), (7, ok(5))];
    assert_eq!(short(&feed(&mut starting, &plan(1, 3), Hold::No, &steps)), ["-", "-", "-", "ProbeSucceeded"]);
}

#[test]
fn a_short_interval_settles_sooner() {
    let quick = ProbePlan { interval: Duration::from_secs(1), ..plan(1, 2) };
    let mut new = state(None, None);
    let steps = [(0, fails(ProbeReason::Dns)), (1, fails(ProbeReason::Dns)), (2, fails(ProbeReason::Dns))];
    assert_eq!(short(&feed(&mut new, &quick, Hold::No, &steps)), ["-", "-", "Dns"]);
}

#[test]
fn a_healthy_one_falls_at_the_failure_threshold_and_keeps_its_latency() {
    let mut healthy = state(Some(true), Some(40));
    let failed = || fails(ProbeReason::Timeout);
    let out = feed(&mut healthy, &plan(1, 3), Hold::No, &[(0, failed()), (30, failed()), (60, failed())]);
    assert_eq!(short(&out), ["-", "-", "Timeout"]);
    let verdict = out[2].as_ref().unwrap();
    assert_eq!(verdict.message, "do something about Timeout");
    assert_eq!((verdict.healthy, verdict.latency), (false, Some(Duration::from_millis(40))));
}

#[test]
fn a_single_blip_changes_nothing() {
    let mut healthy = state(Some(true), Some(40));
    let failed = || fails(ProbeReason::Timeout);
    feed(&mut healthy, &plan(1, 3), Hold::No, &[(0, ok(40))]);
    let steps =
        [(30, failed()), (60, failed()), (90, ok(40)), (120, failed()), (150, failed()), (180, ok(40))];
    assert_eq!(short(&feed(&mut healthy, &plan(1, 3), Hold::No, &steps)), ["-"; 6]);
}

#[test]
fn an_unhealthy_one_rises_at_the_success_threshold() {
    let mut unhealthy = state(Some(false), None);
    let out = feed(&mut unhealthy, &plan(1, 3), Hold::No, &[(0, ok(9))]);
    assert_eq!(short(&out), ["ProbeSucceeded"]);
}

#[test]
fn a_handed_over_verdict_is_confirmed_once_and_with_the_latency_that_status_has() {
    let mut healthy = state(Some(true), Some(40));
    let out = feed(&mut healthy, &plan(1, 3), Hold::No, &[(0, ok(45)), (30, ok(38)), (900, ok(45))]);
    assert_eq!(short(&out), ["ProbeSucceeded", "-", "-"]);
    let confirmed = out[0].as_ref().unwrap();
    assert_eq!((confirmed.healthy, confirmed.latency), (true, Some(Duration::from_millis(40))));

    let mut moved = state(Some(true), Some(40));
    let steps = [(0, ok(90)), (28, ok(91)), (55, ok(92)), (85, ok(200)), (113, ok(200)), (114, ok(200))];
    let out = feed(&mut moved, &plan(1, 3), Hold::No, &steps);
    assert_eq!(short(&out), ["ProbeSucceeded", "-", "ProbeSucceeded", "-", "-", "-"]);
    let latency = |at: usize| out[at].as_ref().unwrap().latency;
    assert_eq!(latency(0), Some(Duration::from_millis(40)), "a restart is no reason for a write");
    // The third probe settles it, though it ends less than a minute after the first: a confirmation is no report.
    // The next change waits for its minute.
    assert_eq!(latency(2), Some(Duration::from_millis(92)));
}

#[test]
fn another_cause_is_reported_when_it_lasts_and_at_most_once_a_minute() {
    let (refused, timeout) = (|| fails(ProbeReason::Refused), || fails(ProbeReason::Timeout));
    let mut healthy = state(Some(true), None);
    let steps =
        [(0, refused()), (10, refused()), (20, timeout()), (30, timeout()), (40, timeout()), (80, timeout())];
    let out = feed(&mut healthy, &plan(1, 2), Hold::No, &steps);
    assert_eq!(short(&out), ["-", "Refused", "-", "-", "-", "Timeout"]);

    let mut flapping = state(Some(true), None);
    let steps: Vec<_> = (0..20).map(|i| (i * 60, if i % 2 == 0 { refused() } else { timeout() })).collect();
    let out = feed(&mut flapping, &plan(1, 2), Hold::No, &steps);
    assert_eq!(out.iter().flatten().count(), 1, "alternating causes write once: {:?}", short(&out));
}

#[test]
fn latency_is_reported_on_a_real_and_lasting_change_only() {
    for (reported, measured, seconds, publishes) in [
        (10, 30, 100, false),   // 20 ms is not more than 20 ms
        (10, 31, 100, true),    // more than 20 ms
        (100, 150, 100, false), // 50 % is not more than 50 %
        (100, 151, 100, true),
        (100, 49, 100, true),
        (10, 500, 59, false), // too soon after the last report
        (10, 500, 60, true),
    ] {
        let mut new = state(None, None);
        let steps = [
            (0, ok(reported)),
            (seconds - 20, ok(measured)),
            (seconds - 10, ok(measured)),
            (seconds, ok(measured)),
        ];
        let out = feed(&mut new, &plan(1, 3), Hold::No, &steps);
        assert_eq!(short(&out)[1..3], ["-"; 2], "not before three agree");
        assert_eq!(out[3].is_some(), publishes, "{reported} -> {measured} ms after {seconds} s");
    }
    let slow_now_and_then =
        [(0, ok(10)), (70, ok(500)), (100, ok(12)), (130, ok(500)), (160, ok(500)), (190, ok(11))];
    let out = feed(&mut state(None, None), &plan(1, 3), Hold::No, &slow_now_and_then);
    assert_eq!(out.iter().flatten().count(), 1, "{:?}", short(&out));
}

#[test]
fn a_failure_of_ours_never_takes_a_healthy_one_away_but_explains_a_new_one() {
    for reason in [ProbeReason::AuthSecretMissing, ProbeReason::CaSecretMissing, ProbeReason::CaInvalid] {
        let ours = [(0, fails(reason)), (30, fails(reason)), (60, fails(reason))];
        let out = feed(&mut state(Some(true), None), &plan(1, 2), Hold::No, &ours);
        assert_eq!(short(&out), ["-"; 3], "{reason}");
    }
    let ours = || fails(ProbeReason::AuthSecretMissing);
    let steps = [(0, ours()), (30, ours()), (60, ours())];
    let out = feed(&mut state(None, None), &plan(1, 2), Hold::No, &steps);
    assert_eq!(short(&out), ["-", "AuthSecretMissing", "-"]);
}

#[test]
fn while_the_target_is_suspected_only_a_proxys_own_fault_makes_it_fall() {
    for reason in ProbeReason::ALL {
        let steps = [(0, fails(reason)), (30, fails(reason)), (60, fails(reason))];
        let falls = feed(&mut state(Some(true), None), &plan(1, 3), Hold::Yes, &steps)[2].is_some();
        assert_eq!(falls, reason.blame() == Blame::Proxy, "{reason}");
        let first = feed(&mut state(None, None), &plan(1, 3), Hold::Yes, &steps)[2].is_some();
        assert_eq!(first, reason.blame() != Blame::Undecided, "{reason} without a verdict");
    }
    assert!(feed(&mut state(Some(false), None), &plan(1, 3), Hold::Yes, &[(0, ok(1))])[0].is_some());
}

#[test]
fn failures_that_are_held_do_not_count_towards_a_proxys_own() {
    let mut held = state(Some(true), None);
    let (timeout, refused) = (|| fails(ProbeReason::Timeout), || fails(ProbeReason::Refused));
    let steps: Vec<_> = (0..20).map(|i| (i * 30, timeout())).collect();
    feed(&mut held, &plan(1, 3), Hold::Yes, &steps);
    let steps = [(600, refused()), (630, refused()), (660, timeout()), (690, refused()), (720, refused())];
    assert_eq!(short(&feed(&mut held, &plan(1, 3), Hold::Yes, &steps)), ["-"; 5]);
    assert_eq!(short(&feed(&mut held, &plan(1, 3), Hold::Yes, &[(750, refused())])), ["Refused"]);

    let mut new = state(None, None);
    let ours = || fails(ProbeReason::AuthSecretMissing);
    let steps = [(0, timeout()), (30, timeout()), (60, ours()), (90, ours()), (120, ours())];
    let out = feed(&mut new, &plan(1, 3), Hold::Yes, &steps);
    assert_eq!(short(&out), ["-", "-", "-", "-", "AuthSecretMissing"]);
}

#[test]
fn when_the_suspicion_ends_the_next_failure_counts() {
    let mut held = state(Some(true), None);
    let failed = || fails(ProbeReason::Timeout);
    let steps = [(0, failed()), (30, failed()), (60, failed())];
    assert_eq!(short(&feed(&mut held, &plan(1, 3), Hold::Yes, &steps)), ["-"; 3]);
    assert_eq!(short(&feed(&mut held, &plan(1, 3), Hold::No, &[(90, failed())])), ["Timeout"]);
}

#[test]
fn reasons_are_distinct_and_valid_condition_reasons() {
    let names: std::collections::BTreeSet<_> = ProbeReason::ALL.iter().map(|r| r.as_str()).collect();
    assert_eq!(names.len(), ProbeReason::ALL.len());
    assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_alphabetic())));
}

#[test]
fn more_than_four_fifths_of_at_least_five_raise_suspicion_and_half_clears_it() {
    for (before, failing, passing, after) in [
        (false, 4, 0, false), // too few: these are judged one by one
        (false, 5, 0, true),
        (false, 4, 1, false), // 80 % is not more than 80 %
        (false, 5, 1, true),
        (false, 8, 2, false),
        (false, 9, 2, true),
        (true, 6, 4, true), // stays until half of them pass
        (true, 5, 5, false),
        (true, 4, 0, true), // one has left, the target is no better
        (true, 1, 0, true),
        (true, 1, 1, false),
        (true, 0, 0, false),
        (false, 0, 0, false),
    ] {
        let group = GroupCount { passing, failing };
        assert_eq!(suspect_target(before, group), after, "{before} {failing} failing {passing} passing");
    }
}

#[test]
fn who_counts_in_a_group() {
    let failed =
        |reason, count: u64| -> Vec<(u64, Outcome)> { (0..count).map(|i| (i * 30, fails(reason))).collect() };
    for (before, steps, expected) in [
        (None, vec![], Standing::Outside),
        (None, vec![(0, ok(1))], Standing::Passing),
        (None, failed(ProbeReason::Timeout, 9), Standing::Outside), // was never healthy
        (Some(true), vec![], Standing::Passing),
        (Some(true), failed(ProbeReason::Timeout, 1), Standing::Failing),
        (Some(true), failed(ProbeReason::Refused, 1), Standing::Outside), // its own fault
        (Some(true), failed(ProbeReason::Timeout, 3), Standing::Failing), // fell just now
        (Some(true), failed(ProbeReason::Timeout, 4), Standing::Failing),
        (Some(true), failed(ProbeReason::Timeout, 5), Standing::Outside), // long known
        (Some(false), failed(ProbeReason::Timeout, 1), Standing::Outside),
    ] {
        let mut one = state(before, None);
        feed(&mut one, &plan(1, 3), Hold::No, &steps);
        assert_eq!(standing(&one, &plan(1, 3)), expected, "{before:?} after {steps:?}");
    }
}

#[test]
fn one_failure_of_its_own_takes_no_failing_proxy_out_of_its_group() {
    let mut one = state(Some(true), None);
    let failed = |reason, from: u64, to: u64| -> Vec<(u64, Outcome)> {
        (from..to).map(|i| (i * 30, fails(reason))).collect()
    };
    feed(&mut one, &plan(1, 3), Hold::Yes, &failed(ProbeReason::Timeout, 0, 9));
    for (from, expected) in [(9, Standing::Failing), (10, Standing::Failing), (11, Standing::Outside)] {
        feed(&mut one, &plan(1, 3), Hold::Yes, &failed(ProbeReason::Refused, from, from + 1));
        assert_eq!(standing(&one, &plan(1, 3)), expected, "after failure {from}");
    }
}

#[test]
fn a_fall_counts_as_recent_however_many_failures_were_held_before() {
    let mut one = state(Some(true), None);
    let failed = |from: u64, to: u64| -> Vec<(u64, Outcome)> {
        (from..to).map(|i| (i * 30, fails(ProbeReason::Timeout))).collect()
    };
    feed(&mut one, &plan(1, 3), Hold::Yes, &failed(0, 50));
    feed(&mut one, &plan(1, 3), Hold::No, &failed(50, 51));
    assert_eq!((one.verdict(), standing(&one, &plan(1, 3))), (Some(false), Standing::Failing));
    assert!(restore(&one, &plan(1, 3), at(2000)).is_some());
    feed(&mut one, &plan(1, 3), Hold::No, &failed(51, 53));
    assert_eq!(standing(&one, &plan(1, 3)), Standing::Outside, "long known");
}

#[test]
fn a_fall_on_the_way_to_the_suspicion_is_taken_back() {
    let hair_trigger = plan(1, 1);
    let mut fallen = state(Some(true), Some(40));
    feed(&mut fallen, &hair_trigger, Hold::No, &[(0, fails(ProbeReason::Timeout))]);
    assert_eq!(fallen.verdict(), Some(false));
    let judgement = restore(&fallen, &hair_trigger, at(9)).unwrap();
    assert_eq!(judgement.state.verdict(), Some(true));
    assert_eq!(judgement.publish.unwrap().latency, Some(Duration::from_millis(40)));
    assert_eq!(restore(&judgement.state, &hair_trigger, at(9)), None);
    assert_eq!(restore(&state(Some(false), None), &hair_trigger, at(9)), None);
}

#[test]
fn a_new_machine_that_fails_is_asked_again_soon_and_others_by_the_interval() {
    let thirty = plan(1, 3);
    let gap = |state: &HealthState, plan: &ProbePlan| next_due(state, plan, at(100).mono) - at(100).mono;
    let mut new = state(None, None);
    let mut gaps = Vec::new();
    for i in 0..7 {
        feed(&mut new, &thirty, Hold::No, &[(i, fails(ProbeReason::Refused))]);
        gaps.push(gap(&new, &thirty).as_secs());
    }
    assert_eq!(gaps, [1, 2, 4, 8, 16, 30, 30]);
    feed(&mut new, &thirty, Hold::No, &[(200, ok(1)), (230, fails(ProbeReason::Refused))]);
    assert_eq!(gap(&new, &thirty).as_secs(), 30, "it has worked before: no hurry");
    let mut known = state(Some(false), None);
    feed(&mut known, &thirty, Hold::No, &[(0, fails(ProbeReason::Refused))]);
    assert_eq!(gap(&known, &thirty).as_secs(), 30);
    let zero = ProbePlan { interval: Duration::ZERO, ..plan(1, 3) };
    assert_eq!(gap(&known, &zero).as_secs(), 1, "an interval of zero would spin");
}

#[test]
fn a_fleet_taken_over_is_spread_across_the_interval() {
    let thirty = plan(1, 3);
    let spans: Vec<_> = (0..100u64)
        .map(|i| known_due(&thirty, i.wrapping_mul(0x9e37_79b9_7f4a_7c15), at(50).mono) - at(50).mono)
        .collect();
    assert!(spans.iter().all(|s| *s < Duration::from_secs(30)));
    for third in 0..3 {
        let from = Duration::from_secs(third * 10);
        let count = spans.iter().filter(|s| (from..from + Duration::from_secs(10)).contains(*s)).count();
        assert!((15..=55).contains(&count), "third {third} holds {count} of 100");
    }
}

#[test]
fn forced_probes_keep_ten_seconds_between_them() {
    assert_eq!(forced_due(None, at(5).mono), at(5).mono);
    assert_eq!(forced_due(Some(at(5).mono), at(7).mono), at(15).mono);
    assert_eq!(forced_due(Some(at(5).mono), at(70).mono), at(70).mono);
}
