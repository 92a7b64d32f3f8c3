//! Looks that may be wrong, and Proxies that serve nobody for one reason or another: what they may cost.

use super::*;

/// Fifty, of which ten were exchanged because of a bad edit: their machines run and serve nobody.
fn after_a_bad_edit(minutes: u64) -> Fleet {
    let mut fleet = Fleet::of(50, FIFTH);
    let exchanged = fleet.granted(Purpose::Exchange);
    assert_eq!(exchanged.len(), 10);
    for number in &exchanged {
        assert_eq!(fleet.ask(*number, Purpose::Removal), Admission::Granted);
    }
    fleet.back(&exchanged);
    fleet.away(&exchanged);
    fleet.sick = exchanged;
    fleet.ask(49, Purpose::Exchange);
    fleet.later(minutes * 60);
    fleet
}

/// Its probes fail from now on.
fn falls_sick(fleet: &mut Fleet, number: usize) {
    fleet.away(&[number]);
    fleet.sick.push(number);
}

#[test]
fn a_probe_that_fails_for_a_moment_costs_no_machine_that_waits_behind_a_bad_edit() {
    for (minutes, restarts) in [(3, false), (3, true), (20, false), (20, true)] {
        let mut fleet = after_a_bad_edit(minutes);
        if restarts {
            fleet.restart();
        }
        falls_sick(&mut fleet, 30);
        for _ in 0..7 {
            let why = fleet.why(30, Purpose::Removal);
            let waits = matches!(why, Some(Refusal::Pending | Refusal::Paused));
            assert!(waits, "{why:?} at {minutes} min, {restarts}");
            fleet.later(15);
        }
    }
}

#[test]
fn a_change_that_does_not_work_stays_one_whatever_becomes_of_the_machines_that_tried_it() {
    let mut fleet = after_a_bad_edit(16);
    // They never ran, and are made anew after their time.
    for number in fleet.sick.clone() {
        fleet.ask(number, Purpose::Repair);
    }
    fleet.later(60);
    assert_eq!(fleet.why(40, Purpose::Exchange), Some(Refusal::Paused));
    falls_sick(&mut fleet, 30);
    fleet.later(600);
    assert_eq!(fleet.why(30, Purpose::Removal), Some(Refusal::Paused));
    // The cure begins with those that are ill of it.
    assert_eq!(fleet.ask(0, Purpose::Removal), Admission::Granted);
}

#[test]
fn a_fleet_that_was_never_well_is_corrected_in_the_end() {
    for size in [1, 3, 50] {
        let mut fleet = Fleet::of(size, FIFTH);
        let all: Vec<usize> = (0..size).collect();
        fleet.away(&all);
        fleet.sick = all;
        fleet.restart();
        for _ in 0..200 {
            let granted = fleet.granted(Purpose::Removal);
            fleet.sick.retain(|number| !granted.contains(number));
            fleet.later(30);
            fleet.back(&granted);
        }
        assert!(fleet.sick.is_empty(), "{:?} of {size}", fleet.sick);
    }
}

#[test]
fn where_nobody_probes_all_are_replaced_under_the_cap_alone() {
    let mut fleet = Fleet::of(50, FIFTH);
    fleet.unjudged = (0..50).collect();
    fleet.away(&(0..50).collect::<Vec<_>>());
    let mut done = std::collections::BTreeSet::new();
    for _ in 0..60 {
        for number in (0..50).filter(|number| !done.contains(number)).collect::<Vec<_>>() {
            match fleet.ask(number, Purpose::Removal) {
                Admission::Granted => {
                    *fleet.machines.get_mut(&number).unwrap() += 1;
                    done.insert(number);
                }
                Admission::Refused { why, .. } => assert_eq!(why, Refusal::Capped),
            }
        }
        fleet.later(15);
    }
    assert_eq!(done.len(), 50);
}

#[test]
fn one_that_was_never_well_says_nothing_of_the_change_that_reaches_it() {
    let mut fleet = Fleet::of(50, FIFTH);
    falls_sick(&mut fleet, 0);
    fleet.ask(49, Purpose::Surplus);
    fleet.later(600);
    assert_eq!(fleet.ask(0, Purpose::Removal), Admission::Granted);
    fleet.later(1200);
    assert_eq!(fleet.ask(1, Purpose::Exchange), Admission::Granted);
}

#[test]
fn after_a_restart_those_that_have_drained_go_and_nobody_is_suspected() {
    let mut fleet = Fleet::of(50, FIFTH);
    let drained = fleet.granted(Purpose::Exchange);
    fleet.draining.clone_from(&drained);
    fleet.away(&drained);
    fleet.restart();
    let mut gone = Vec::new();
    for _ in 0..8 {
        for number in drained.iter().filter(|number| !gone.contains(*number)).collect::<Vec<_>>() {
            match fleet.ask(*number, Purpose::Removal) {
                Admission::Granted => gone.push(*number),
                Admission::Refused { why, .. } => assert_eq!(why, Refusal::Capped),
            }
        }
        fleet.later(15);
    }
    assert_eq!(gone.len(), 10);
}

#[test]
fn room_that_was_given_lasts_until_the_place_under_the_cap_has_come() {
    let mut fleet = Fleet::of(50, FIFTH);
    let few = Caps { replacements_per_minute: 4, ..Caps::default() };
    fleet.ledger = Ledger::new(few, fleet.now());
    let first = fleet.granted(Purpose::Exchange);
    assert_eq!(first.len(), 10);
    let mut gone = Vec::new();
    for _ in 0..20 {
        for number in first.iter().filter(|number| !gone.contains(*number)).collect::<Vec<_>>() {
            if fleet.ask(*number, Purpose::Removal) == Admission::Granted {
                gone.push(*number);
            }
        }
        fleet.away(&gone);
        assert_eq!(fleet.why(40, Purpose::Exchange), Some(Refusal::Pending), "nobody else comes before");
        fleet.later(15);
    }
    assert_eq!(gone.len(), 10);
}

#[test]
fn one_that_only_waited_holds_up_nobody_once_it_asks_no_more() {
    let mut fleet = Fleet::of(50, FIFTH);
    let few = Caps { replacements_per_minute: 1, ..Caps::default() };
    fleet.ledger = Ledger::new(few, fleet.now());
    fleet.ask(0, Purpose::Surplus);
    for number in [1, 2] {
        assert_eq!(fleet.why(number, Purpose::Repair), Some(Refusal::Capped));
        falls_sick(&mut fleet, number);
    }
    fleet.later(15 * 60);
    assert_eq!(fleet.ask(40, Purpose::Exchange), Admission::Granted);
}

#[test]
fn whoever_asks_rarely_is_counted_with_those_that_asked_before() {
    let mut fleet = Fleet::of(50, FIFTH);
    let first = fleet.granted(Purpose::Repair);
    fleet.away(&first);
    // A back-off of five minutes holds all the others.
    fleet.later(300);
    let more: Vec<usize> =
        fleet.granted(Purpose::Repair).into_iter().filter(|n| !first.contains(n)).collect();
    assert!(first.len() + more.len() <= 10, "{first:?} and {more:?}");
}
