//! Who takes up room, who has to ask for it anew, and what is given up without another machine in its place.

use super::*;
use crate::crd::Mode;
use crate::facts::{self, Machine, ProbePlan, ProxyFacts};
use crate::ids::ProxyKey;

/// Five, of which one may be away. The second one has served nobody for two minutes, and waits for its place under the
/// cap since the spec of all was edited.
fn one_waits_for_its_place() -> Fleet {
    let mut fleet = Fleet::of(5, MaxUnavailable::Count(1));
    let few = Caps { replacements_per_minute: 1, ..Caps::default() };
    fleet.ledger = Ledger::new(few, fleet.now());
    fleet.away(&[1]);
    fleet.sick.push(1);
    assert_eq!(fleet.why(2, Purpose::Exchange), Some(Refusal::Pending));
    fleet.later(121);
    assert_eq!(fleet.ask(3, Purpose::Surplus), Admission::Granted, "the place of this minute");
    assert_eq!(fleet.why(1, Purpose::Removal), Some(Refusal::Capped));
    fleet.later(1);
    assert_eq!(fleet.why(2, Purpose::Exchange), Some(Refusal::Pending), "the fleet shows that one is away");
    fleet
}

#[test]
fn one_that_recovers_while_it_waits_for_its_place_asks_for_room_like_any_other() {
    let mut fleet = one_waits_for_its_place();
    // Another one falls away, then its probe succeeds: its status says Ready, and it asks in the same moment.
    fleet.away(&[4]);
    assert_eq!(fleet.why(1, Purpose::Exchange), Some(Refusal::Pending));
}

#[test]
fn one_that_recovers_while_it_waits_for_its_place_is_not_taken_for_one_that_came_back_once_it_has_room() {
    let mut fleet = one_waits_for_its_place();
    assert_eq!(fleet.ask(1, Purpose::Exchange), Admission::Granted);
    fleet.serves.insert(1, true);
    fleet.sick.clear();
    fleet.later(1);
    assert_eq!(fleet.why(2, Purpose::Exchange), Some(Refusal::Pending), "the fleet shows that it serves");
    fleet.away(&[1]);
    fleet.draining.push(1);
    fleet.later(1);
    assert_eq!(fleet.why(2, Purpose::Exchange), Some(Refusal::Pending), "it drains");
    fleet.draining.clear();
    fleet.back(&[1]);
    fleet.later(1);
    assert_eq!(fleet.ask(2, Purpose::Exchange), Admission::Granted);
}

#[test]
fn one_that_was_never_well_takes_up_room_and_is_not_called_a_replacement() {
    let mut fleet = Fleet::of(5, FIFTH);
    fleet.away(&[4]);
    fleet.sick.push(4);
    assert_eq!(fleet.why(0, Purpose::Exchange), Some(Refusal::Pending));
    fleet.later(600);
    assert_eq!(fleet.why(0, Purpose::Exchange), Some(Refusal::Standstill));
    // Its owner mends it.
    fleet.serves.insert(4, true);
    assert_eq!(fleet.ask(0, Purpose::Exchange), Admission::Granted);
}

#[test]
fn one_that_nobody_judges_takes_up_no_room() {
    let mut fleet = Fleet::of(5, FIFTH);
    fleet.away(&[4]);
    fleet.unjudged = vec![4];
    assert_eq!(fleet.ask(0, Purpose::Exchange), Admission::Granted);
    assert_eq!(fleet.why(1, Purpose::Exchange), Some(Refusal::Pending), "one may be away");
}

/// Runs at an address if `machine`, and is probed if `judged`, without success so far.
fn facts(number: usize, machine: bool, judged: bool) -> ProxyFacts {
    let plan = ProbePlan {
        url: "http://probe/".to_owned(),
        expected_status: vec![200],
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        success_threshold: 1,
        failure_threshold: 3,
        networks: Arc::default(),
        ca_pem: None,
        insecure_skip_verify: false,
    };
    let runs = Machine { incarnation: incarnation(number, 1), address: "10.0.0.1".to_owned(), port: 3128 };
    ProxyFacts {
        provider: Some(ProviderName::parse("p").unwrap()),
        begun: true,
        machine: machine.then_some(runs),
        probe: judged.then_some(plan),
        ..ProxyFacts::new(ProxyKey::new("crawl", "p"), uid(number), Mode::Managed)
    }
}

#[test]
fn whoever_is_judged_and_not_well_is_away_and_whoever_has_no_machine_to_show() {
    let all = [facts(0, true, false), facts(1, false, false), facts(2, true, true), facts(3, false, true)];
    let proxies = all.into_iter().map(|facts| (facts.uid.clone(), Arc::new(facts))).collect();
    let censuses = Census::of(&facts::Fleet { ready: true, proxies: Arc::new(proxies) });
    let away: Vec<&ProxyUid> = censuses.values().flat_map(|census| &census.down).collect();
    assert_eq!(away, [&uid(1), &uid(2), &uid(3)]);
}

#[test]
fn machines_that_are_somebody_elses_all_at_once_are_given_up_only_as_far_as_some_may_be_away() {
    let mut fleet = Fleet::of(50, FIFTH);
    let mut hidden = Vec::new();
    for _ in 0..240 {
        for number in (0..50).filter(|number| !hidden.contains(number)).collect::<Vec<_>>() {
            match fleet.ask(number, Purpose::Disowned) {
                Admission::Granted => hidden.push(number),
                Admission::Refused { why, .. } => assert_eq!(why, Refusal::Suspect),
            }
        }
        fleet.away(&hidden);
        fleet.failed.clone_from(&hidden);
        fleet.later(60);
    }
    assert_eq!(hidden.len(), 10, "in four hours");
    let left = (0..50).find(|number| !hidden.contains(number)).unwrap();
    assert_eq!(fleet.why(left, Purpose::Exchange), Some(Refusal::Suspect));
}
