//! Fleets that are replaced, broken, or seen wrongly, and how much of them the ledger lets go.

mod looks;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::census::{Standing, State};
use super::{Admission, Ask, Caps, Census, Ledger, Purpose, Refusal};
use crate::ids::{Incarnation, InstanceId, ProviderName, ProxyUid};
use crate::provider::{MaxUnavailable, Replacement};
use crate::time::Moment;

/// A fleet and its ledger; each Proxy is at its n-th machine.
struct Fleet {
    ledger: Ledger,
    machines: BTreeMap<usize, u32>,
    serves: BTreeMap<usize, bool>,
    failed: Vec<usize>,
    draining: Vec<usize>,
    /// Their machines run, and their probes fail.
    sick: Vec<usize>,
    /// There is no page to fetch through them; their machines run.
    unjudged: Vec<usize>,
    replacement: Replacement,
    clock: Duration,
}

fn uid(number: usize) -> ProxyUid {
    ProxyUid::parse(format!("u{number:04}")).unwrap()
}

fn incarnation(number: usize, machine: u32) -> Incarnation {
    Incarnation::parse(format!("i{number}-{machine}")).unwrap()
}

impl Fleet {
    /// All serve; the operator began long ago.
    fn of(size: usize, max_unavailable: MaxUnavailable) -> Self {
        let mut fleet = Self {
            ledger: Ledger::new(Caps::default(), Moment::after_start(Duration::ZERO)),
            machines: (0..size).map(|number| (number, 1)).collect(),
            serves: (0..size).map(|number| (number, true)).collect(),
            failed: Vec::new(),
            draining: Vec::new(),
            sick: Vec::new(),
            unjudged: Vec::new(),
            replacement: Replacement { max_unavailable, ..Replacement::default() },
            clock: Duration::from_hours(1),
        };
        fleet.ledger.ask(&fleet.question(0, Purpose::Surplus), &fleet.census(), fleet.now());
        fleet.clock += Duration::from_mins(10);
        fleet
    }

    fn now(&self) -> Moment {
        Moment::after_start(self.clock)
    }

    fn restart(&mut self) {
        self.ledger = Ledger::new(Caps::default(), self.now());
    }

    /// Its status names its machine.
    fn shows(&self, number: usize) -> bool {
        self.serves[&number]
            || self.unjudged.contains(&number)
            || self.draining.contains(&number)
            || self.sick.contains(&number)
    }

    fn census(&self) -> Arc<Census> {
        let mut census = Census::default();
        for (number, machine) in &self.machines {
            let serves = self.serves[number];
            let standing = Standing {
                state: match (serves, self.draining.contains(number)) {
                    (true, _) => State::Serves,
                    (false, true) => State::Drains,
                    (false, false) => State::Down,
                },
                judged: !self.unjudged.contains(number),
                failed: self.failed.contains(number),
                incarnation: self.shows(*number).then(|| incarnation(*number, *machine)),
            };
            census.insert(uid(*number), standing);
        }
        Arc::new(census)
    }

    fn question(&self, number: usize, purpose: Purpose) -> Ask {
        Ask {
            uid: uid(number),
            provider: ProviderName::parse("p").unwrap(),
            machine: InstanceId::parse(format!("m{number}")).unwrap(),
            incarnation: Some(incarnation(number, self.machines[&number])),
            purpose,
            replacement: self.replacement,
        }
    }

    fn ask(&mut self, number: usize, purpose: Purpose) -> Admission {
        let (question, census, now) = (self.question(number, purpose), self.census(), self.now());
        self.ledger.ask(&question, &census, now)
    }

    fn granted(&mut self, purpose: Purpose) -> Vec<usize> {
        let all: Vec<usize> = self.machines.keys().copied().collect();
        all.into_iter().filter(|number| self.ask(*number, purpose) == Admission::Granted).collect()
    }

    fn why(&mut self, number: usize, purpose: Purpose) -> Option<Refusal> {
        match self.ask(number, purpose) {
            Admission::Granted => None,
            Admission::Refused { why, .. } => Some(why),
        }
    }

    fn away(&mut self, numbers: &[usize]) {
        for number in numbers {
            self.serves.insert(*number, false);
        }
    }

    /// The next machines of these serve.
    fn back(&mut self, numbers: &[usize]) {
        for number in numbers {
            self.serves.insert(*number, true);
            *self.machines.get_mut(number).unwrap() += 1;
        }
    }

    fn later(&mut self, seconds: u64) {
        self.clock += Duration::from_secs(seconds);
    }
}

const FIFTH: MaxUnavailable = MaxUnavailable::Percent(20);

#[test]
fn as_many_as_may_be_away_are_admitted_although_the_fleet_does_not_show_it_yet() {
    for (size, max, expected) in [
        (50, FIFTH, 10),
        (1, FIFTH, 1),
        (3, FIFTH, 1),
        (5, MaxUnavailable::Count(9), 5),
        (5, MaxUnavailable::Count(2), 2),
    ] {
        let mut fleet = Fleet::of(size, max);
        assert_eq!(fleet.granted(Purpose::Exchange).len(), expected, "{max:?} of {size}");
        let first: Vec<usize> = (0..expected).collect();
        fleet.away(&first);
        assert_eq!(fleet.granted(Purpose::Exchange), first, "those that have room keep it");
    }
}

#[test]
fn one_that_asks_before_the_fleet_shows_that_it_serves_is_not_taken_for_one_that_came_back() {
    let mut fleet = Fleet::of(5, MaxUnavailable::Count(1));
    // Its status says Ready, and it asks in the same moment: the fleet shows what was before.
    fleet.away(&[1]);
    assert_eq!(fleet.ask(1, Purpose::Exchange), Admission::Granted);
    fleet.later(1);
    assert_eq!(fleet.why(2, Purpose::Exchange), Some(Refusal::Pending));
    fleet.serves.insert(1, true);
    fleet.later(1);
    assert_eq!(fleet.why(2, Purpose::Exchange), Some(Refusal::Pending), "what it was admitted on");
    fleet.away(&[1]);
    fleet.later(1);
    assert_eq!(fleet.why(2, Purpose::Exchange), Some(Refusal::Pending), "now it is away");
    fleet.back(&[1]);
    fleet.later(1);
    assert_eq!(fleet.ask(2, Purpose::Exchange), Admission::Granted);
}

#[test]
fn every_fleet_is_replaced_in_the_end_and_never_more_than_may_be_away_are() {
    for (size, max) in [(1, FIFTH), (2, FIFTH), (7, FIFTH), (50, FIFTH), (9, MaxUnavailable::Count(4))] {
        let mut fleet = Fleet::of(size, max);
        for _ in 0..=size {
            let wanting: Vec<usize> = (0..size).filter(|number| fleet.machines[number] == 1).collect();
            let admitted: Vec<usize> = wanting
                .into_iter()
                .filter(|number| fleet.ask(*number, Purpose::Exchange) == Admission::Granted)
                .collect();
            assert!(admitted.len() <= max.of(size));
            fleet.away(&admitted);
            fleet.later(120);
            for number in &admitted {
                assert_eq!(fleet.ask(*number, Purpose::Removal), Admission::Granted);
            }
            fleet.later(60);
            fleet.back(&admitted);
        }
        assert!(fleet.machines.values().all(|machine| *machine == 2), "{size} {max:?}");
    }
}

#[test]
fn those_that_are_away_for_another_reason_take_up_room() {
    let mut fleet = Fleet::of(50, FIFTH);
    fleet.away(&(40..48).collect::<Vec<_>>());
    let granted = (0..40).filter(|number| fleet.ask(*number, Purpose::Exchange) == Admission::Granted);
    assert_eq!(granted.count(), 2);
    assert_eq!(fleet.why(5, Purpose::Exchange), Some(Refusal::Pending));
}

#[test]
fn replacements_that_do_not_become_ready_stop_the_others_until_they_do() {
    let mut fleet = Fleet::of(50, FIFTH);
    let first = [0, 1, 2];
    for number in first {
        assert_eq!(fleet.ask(number, Purpose::Exchange), Admission::Granted);
        assert_eq!(fleet.ask(number, Purpose::Removal), Admission::Granted);
    }
    fleet.away(&first);
    fleet.later(599);
    assert_eq!(fleet.ask(3, Purpose::Exchange), Admission::Granted);
    fleet.later(1);
    assert_eq!(fleet.why(4, Purpose::Exchange), Some(Refusal::Paused));
    fleet.back(&first);
    assert_eq!(fleet.ask(4, Purpose::Exchange), Admission::Granted);
}

#[test]
fn a_replacement_that_failed_stops_the_others_at_once() {
    let mut fleet = Fleet::of(50, FIFTH);
    assert_eq!(fleet.ask(0, Purpose::Exchange), Admission::Granted);
    assert_eq!(fleet.ask(0, Purpose::Removal), Admission::Granted);
    fleet.away(&[0]);
    fleet.failed.push(0);
    fleet.later(5);
    assert_eq!(fleet.why(1, Purpose::Exchange), Some(Refusal::Paused));
    // Its owner deletes it: the others go on.
    fleet.machines.remove(&0);
    assert_eq!(fleet.ask(1, Purpose::Exchange), Admission::Granted);
}

#[test]
fn a_fleet_that_has_no_room_for_long_says_that_it_is_paused_also_after_a_restart() {
    let mut fleet = Fleet::of(5, FIFTH);
    fleet.away(&[4]);
    fleet.restart();
    assert_eq!(fleet.why(0, Purpose::Exchange), Some(Refusal::Pending));
    fleet.later(600);
    assert_eq!(fleet.why(0, Purpose::Exchange), Some(Refusal::Standstill));
}

#[test]
fn room_that_is_not_used_is_free_again() {
    let mut fleet = Fleet::of(1, FIFTH);
    fleet.machines.insert(1, 1);
    fleet.serves.insert(1, true);
    assert_eq!(fleet.ask(0, Purpose::Exchange), Admission::Granted);
    fleet.later(89);
    assert_eq!(fleet.why(1, Purpose::Exchange), Some(Refusal::Pending));
    fleet.later(1);
    assert_eq!(fleet.ask(1, Purpose::Exchange), Admission::Granted);
}

#[test]
fn a_machine_that_may_go_pays_once() {
    let mut fleet = Fleet::of(200, MaxUnavailable::Percent(100));
    let asked: Vec<bool> = (0..100).map(|_| fleet.ask(7, Purpose::Removal) == Admission::Granted).collect();
    assert!(asked.iter().all(|granted| *granted));
    assert_eq!(fleet.granted(Purpose::Removal).len(), 15, "a quarter of the cap at once, one of them known");
}

/// Most grants within a minute while all ask all the time; the operator restarts now and then.
fn most_in_a_minute(purpose: Purpose, restart_every: Option<u64>) -> usize {
    let mut fleet = Fleet::of(130, MaxUnavailable::Percent(100));
    let mut grants: Vec<Moment> = Vec::new();
    let mut left: Vec<usize> = (0..130).collect();
    for second in 0..80 {
        if restart_every.is_some_and(|every| second % every == every - 1) {
            fleet.restart();
        }
        let (census, now) = (fleet.census(), fleet.now());
        left.retain(|number| {
            let granted =
                fleet.ledger.ask(&fleet.question(*number, purpose), &census, now) == Admission::Granted;
            if granted {
                grants.push(now);
            }
            !granted
        });
        fleet.later(1);
    }
    let within = |from: &Moment| {
        grants.iter().filter(|at| *at >= from && at.since(*from) < Duration::from_mins(1)).count()
    };
    grants.iter().map(within).max().unwrap_or_default()
}

#[test]
fn no_minute_sees_more_machines_go_than_the_cap_whatever_they_go_for() {
    for purpose in [Purpose::Removal, Purpose::Repair, Purpose::Surplus] {
        assert!(most_in_a_minute(purpose, None) <= 60, "{purpose:?}");
    }
    assert!(most_in_a_minute(Purpose::Surplus, Some(20)) <= 64, "one more for each restart at most");
}

#[test]
fn a_fleet_that_looks_broken_all_at_once_is_left_alone_but_for_a_few() {
    for size in [50, 10] {
        let mut fleet = Fleet::of(size, FIFTH);
        // Whoever looks is wrong: all serve, and go on asking.
        let mut taken = Vec::new();
        for _ in 0..20 {
            let granted = fleet.granted(Purpose::Repair);
            fleet.away(&granted);
            taken.extend(granted);
            fleet.later(15);
        }
        taken.sort_unstable();
        taken.dedup();
        assert!(taken.len() <= size / 5, "{} of {size}", taken.len());
        let left = (0..size).find(|number| !taken.contains(number)).unwrap();
        assert_eq!(fleet.why(left, Purpose::Repair), Some(Refusal::Suspect));
        assert_eq!(fleet.why(left, Purpose::Exchange), Some(Refusal::Suspect));
        // The look is right again.
        fleet.later(Caps::default().at_once.as_secs() + 1);
        fleet.back(&taken);
        assert_eq!(fleet.ask(left, Purpose::Exchange), Admission::Granted);
    }
}

#[test]
fn machines_of_a_suspect_fleet_come_back_one_after_the_other_then_faster() {
    let mut fleet = Fleet::of(100, FIFTH);
    fleet.restart();
    let all: Vec<usize> = (0..100).collect();
    fleet.away(&all);
    let mut rounds = Vec::new();
    let mut left = all;
    while !left.is_empty() {
        assert!(rounds.len() < 40, "{rounds:?}");
        let mut granted = Vec::new();
        for number in &left {
            if fleet.ask(*number, Purpose::Repair) == Admission::Granted {
                granted.push(*number);
            }
        }
        rounds.push(granted.len());
        fleet.later(60);
        fleet.back(&granted);
        left.retain(|number| !granted.contains(number));
    }
    assert!(rounds[0] <= 2, "{rounds:?}");
    assert!(rounds[..4].iter().sum::<usize>() <= 15, "{rounds:?}");
    assert!(rounds.iter().max() > Some(&10), "{rounds:?}");
}

#[test]
fn a_suspect_fleet_whose_repairs_never_come_back_is_still_tried_now_and_then() {
    let mut fleet = Fleet::of(20, FIFTH);
    fleet.restart();
    fleet.away(&(0..20).collect::<Vec<_>>());
    let mut granted = std::collections::BTreeSet::new();
    for _ in 0..240 {
        granted.extend(fleet.granted(Purpose::Repair));
        fleet.later(15);
    }
    assert!((4..=10).contains(&granted.len()), "{} in an hour", granted.len());
}

#[test]
fn a_few_broken_machines_are_made_anew_at_once() {
    for (size, broken) in [(1, 1), (2, 2), (3, 2), (50, 10)] {
        let mut fleet = Fleet::of(size, FIFTH);
        let numbers: Vec<usize> = (0..broken).collect();
        fleet.away(&numbers);
        for number in numbers {
            assert_eq!(fleet.ask(number, Purpose::Repair), Admission::Granted, "{number} of {size}");
        }
    }
}

#[test]
fn deletions_have_a_cap_of_their_own() {
    let mut fleet = Fleet::of(1, FIFTH);
    fleet.machines.clear();
    let started = fleet.now();
    let mut left: Vec<usize> = (0..1000).collect();
    while !left.is_empty() {
        for number in left.clone() {
            fleet.machines.insert(number, 1);
            let question = fleet.question(number, Purpose::Deletion);
            let now = fleet.now();
            if fleet.ledger.ask(&question, &Arc::default(), now) == Admission::Granted {
                left.retain(|known| *known != number);
            }
        }
        fleet.later(1);
    }
    let took = fleet.now().since(started);
    assert!(took <= Duration::from_mins(2), "{took:?}");
}

#[test]
fn a_deletion_does_not_wait_for_the_place_of_a_replacement() {
    let mut fleet = Fleet::of(1000, MaxUnavailable::Percent(100));
    fleet.away(&(0..1000).collect::<Vec<_>>());
    fleet.granted(Purpose::Removal);
    assert_eq!(fleet.why(999, Purpose::Removal), Some(Refusal::Capped));
    let last = fleet.ask(999, Purpose::Deletion);
    assert_eq!(last, Admission::Granted);
}

/// Each asks when its place comes, and looks at its machine for so long before it does.
fn granted_within(size: usize, purpose: Purpose, look: u64, seconds: u64) -> Vec<Moment> {
    let mut fleet = Fleet::of(size, MaxUnavailable::Percent(100));
    let begin = fleet.clock;
    let mut due: Vec<(u64, usize)> = (0..size).map(|number| (look, number)).collect();
    let mut grants = Vec::new();
    for second in 0..seconds {
        fleet.clock = begin + Duration::from_secs(second);
        let (census, now) = (fleet.census(), fleet.now());
        let mut next = Vec::new();
        for (at, number) in std::mem::take(&mut due) {
            if at > second {
                next.push((at, number));
                continue;
            }
            match fleet.ledger.ask(&fleet.question(number, purpose), &census, now) {
                Admission::Granted => grants.push(now),
                Admission::Refused { retry, .. } => next.push((second + retry.as_secs() + 1 + look, number)),
            }
        }
        due = next;
    }
    grants
}

#[test]
fn whoever_looks_for_long_before_it_asks_gets_through_all_the_same_and_under_the_cap() {
    for (purpose, size, cap) in [(Purpose::Deletion, 1000, 900), (Purpose::Surplus, 100, 60)] {
        let grants = granted_within(size, purpose, 14, 300);
        assert_eq!(grants.len(), size, "{purpose:?}");
        let minute = |from: &Moment| {
            grants.iter().filter(|at| *at >= from && at.since(*from) < Duration::from_mins(1)).count()
        };
        assert!(grants.iter().map(minute).max() <= Some(cap), "{purpose:?}");
    }
}

#[test]
fn no_machine_that_clients_know_goes_while_the_fleet_is_suspect() {
    let mut fleet = Fleet::of(50, FIFTH);
    assert_eq!(fleet.ask(49, Purpose::Exchange), Admission::Granted);
    let taken = fleet.granted(Purpose::Repair);
    assert!(taken.len() <= 10, "{taken:?}");
    assert_eq!(fleet.why(49, Purpose::Removal), Some(Refusal::Suspect), "its drain may be over");
    fleet.away(&[48]);
    assert_eq!(fleet.why(48, Purpose::Removal), None, "this one is shown to nobody");
}

#[test]
fn those_that_wait_for_a_place_count_like_those_that_are_made_anew() {
    let mut fleet = Fleet::of(1000, FIFTH);
    let mut making: Vec<(Duration, usize)> = Vec::new();
    let mut most = 0;
    for _ in 0..40 {
        let back: Vec<usize> = making.iter().filter(|(at, _)| *at <= fleet.clock).map(|(_, n)| *n).collect();
        making.retain(|(at, _)| *at > fleet.clock);
        fleet.back(&back);
        let (mut granted, mut waits) = (Vec::new(), 0);
        let (census, now) = (fleet.census(), fleet.now());
        let shown = |number: &usize| fleet.machines[number] == 1 && fleet.serves[number];
        for number in (0..1000).filter(shown).collect::<Vec<_>>() {
            match fleet.ledger.ask(&fleet.question(number, Purpose::Repair), &census, now) {
                Admission::Granted => granted.push(number),
                Admission::Refused { why: Refusal::Capped, .. } => waits += 1,
                Admission::Refused { .. } => {}
            }
        }
        fleet.away(&granted);
        making.extend(granted.iter().map(|number| (fleet.clock + Duration::from_mins(1), *number)));
        most = most.max(making.len() + waits);
        fleet.later(15);
    }
    assert!(most <= 200, "{most}");
}
