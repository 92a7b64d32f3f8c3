//! Each account finds what it is there for, and excuses what is in order.

use std::time::Duration;

use egress_proxies_core::ids::{Incarnation, InstanceId, ProxyUid};
use egress_proxies_core::provider::{InstanceState, MaxUnavailable, Replacement};
use tokio::time::Instant;

use super::*;
use crate::books::{Asked, Edit, Span};
use crate::provider::Component;

const UID: &str = "uid-1";

/// A world in which two machines of one Proxy were made, and the first was taken away, all from one spec.
struct Case {
    evidence: Evidence,
    start: Instant,
    wall: Timestamp,
}

fn incarnation(name: &str) -> Incarnation {
    Incarnation::parse(name).unwrap()
}

impl Case {
    fn new() -> Self {
        let start = Instant::now();
        let wall: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let replacement =
            Replacement { max_unavailable: MaxUnavailable::Count(1), drain: Duration::from_secs(2) };
        let later = Duration::from_secs(100);
        let mut case = Self {
            start,
            wall,
            evidence: Evidence {
                record: Record::default(),
                done: Done::default(),
                held: Vec::new(),
                seen: Seen::default(),
                terms: Terms { replacement, fair: false, leases_last: false },
                torn: 0,
                now: (start + later, wall + later),
            },
        };
        case.evidence.seen.beginnings = 1;
        case.life().machine = Some("m2".to_owned());
        case.birth(0, "m1", "v1-a");
        case.birth(20, "m2", "v1-a");
        let taken = Taken { at: case.at(10), machine: incarnation("m1"), uid: UID.to_owned(), ran: true };
        case.evidence.record.taken.push(taken);
        case
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn span(&self, seconds: u64) -> Span {
        Span { began: self.at(seconds), ended: self.at(seconds) }
    }

    fn life(&mut self) -> &mut Life {
        self.evidence.seen.lives.entry(UID.to_owned()).or_default()
    }

    fn birth(&mut self, second: u64, machine: &str, spec: &str) {
        let (at, machine) = (self.at(second), incarnation(machine));
        let (uid, name, spec) = (UID.to_owned(), "b".to_owned(), spec.to_owned());
        self.evidence.record.births.push(Birth { at, machine, uid, name, spec });
    }

    /// The first machine went for this value.
    fn for_value(mut self, value: &str) -> Self {
        let machines = [("m1".to_owned())].into();
        self.life().went_for.insert(value.to_owned(), machines);
        self
    }

    fn edited(mut self, second: u64, uid: Option<&str>) -> Self {
        let span = self.span(second);
        self.evidence.done.edits.push(Edit { uid: uid.map(str::to_owned), span });
        self
    }

    /// A lease on the first machine.
    fn leased(mut self, ended: Option<u64>) -> Self {
        let ended = ended.map(|second| self.at(second));
        self.evidence.held.push(Held::of(ProxyUid::parse(UID).unwrap(), "m1", ended));
        self
    }

    fn drained_since(mut self, second: u64) -> Self {
        let since = self.wall + Duration::from_secs(second);
        self.life().drains.insert("m1".to_owned(), since);
        self
    }

    /// Deleted and gone with the word that it may be abandoned.
    fn gone(mut self, deleted: u64, gone: u64) -> Self {
        let (deleted, gone) = (self.at(deleted), self.at(gone));
        self.evidence.done.deleted.insert(UID.to_owned(), deleted);
        (self.life().abandon, self.life().gone) = (true, Some(gone));
        self
    }

    fn lost(mut self, second: u64, component: Component) -> Self {
        let span = self.span(second);
        self.evidence.done.provider.push((span, component));
        self
    }

    fn is_fine(&self) -> bool {
        self.evidence.accounts().is_ok()
    }
}

#[tokio::test]
async fn a_machine_that_nobody_asked_for_is_found() {
    assert!(!Case::new().is_fine());
    assert!(Case::new().for_value("n").is_fine());
    assert!(Case::new().edited(15, Some(UID)).is_fine());
    assert!(Case::new().edited(15, None).is_fine(), "it uses the Secret");
    assert!(!Case::new().edited(15, Some("another")).is_fine());
    assert!(!Case::new().edited(30, Some(UID)).is_fine(), "that came later");
    let mut harmed = Case::new();
    harmed.evidence.record.harmed.insert(incarnation("m1"));
    assert!(harmed.is_fine());
    let mut other_spec = Case::new();
    other_spec.evidence.record.births[1].spec = "v1-b".to_owned();
    assert!(other_spec.is_fine());
}

#[tokio::test]
async fn a_value_for_which_two_machines_went_is_found() {
    let mut case = Case::new().for_value("n");
    assert!(case.is_fine());
    case.life().went_for.get_mut("n").unwrap().insert("m2".to_owned());
    assert!(!case.is_fine());
}

#[tokio::test]
async fn a_value_that_brought_no_machine_or_is_not_settled_is_found() {
    let asked = |machine: &str| {
        let mut case = Case::new().for_value("n");
        let machine = Some(machine.to_owned());
        case.evidence.done.asked.push(Asked { uid: UID.to_owned(), value: "n".to_owned(), machine });
        (case.life().asks, case.life().took_up) = (Some("n".to_owned()), Some("n".to_owned()));
        case
    };
    assert!(asked("m1").evidence.values_are_settled().is_ok());
    assert!(asked("m2").evidence.values_are_settled().is_err());
    let mut open = asked("m1");
    open.life().took_up = None;
    assert!(open.evidence.values_are_settled().is_err());
    let mut under_way = asked("m1");
    under_way.life().replacing = Some("m1".to_owned());
    assert!(under_way.evidence.values_are_settled().is_err());
    let mut gone = asked("m2");
    gone.life().gone = Some(gone.start);
    assert!(gone.evidence.values_are_settled().is_ok());
}

#[tokio::test]
async fn a_machine_that_goes_under_a_lease_before_its_drain_is_over_is_found() {
    let case = || Case::new().for_value("n");
    assert!(!case().leased(None).is_fine(), "it did not drain at all");
    assert!(!case().leased(None).drained_since(9).is_fine(), "for one second of two");
    assert!(case().leased(None).drained_since(8).is_fine());
    assert!(!case().leased(Some(11)).drained_since(9).is_fine());
    assert!(case().leased(Some(9)).drained_since(9).is_fine(), "it was given back");
    let mut stopped = case().leased(None);
    stopped.evidence.record.taken[0].ran = false;
    assert!(stopped.is_fine());
    let mut at_once = case().leased(None);
    at_once.evidence.terms.replacement.drain = Duration::ZERO;
    assert!(at_once.is_fine());
    let mut deleted = case().leased(None);
    deleted.evidence.done.deleted.insert(UID.to_owned(), deleted.start);
    assert!(deleted.is_fine());
}

#[tokio::test]
async fn only_what_a_person_let_go_while_nobody_could_be_asked_may_be_left_behind() {
    let machine = Instance {
        tags: [("proxy-operator-uid".to_owned(), UID.to_owned())].into(),
        ..Instance::bare(InstanceId::parse("fake/x").unwrap(), "x", InstanceState::Running)
    };
    let left = |case: Case| case.evidence.may_be_left(&machine);
    assert!(left(Case::new().gone(30, 40).lost(35, Component::Failed)));
    assert!(!left(Case::new().gone(30, 40)));
    assert!(!left(Case::new().gone(30, 40).lost(41, Component::Failed)));
    let mut unsaid = Case::new().gone(30, 40).lost(35, Component::Failed);
    unsaid.life().abandon = false;
    assert!(!left(unsaid));
    assert!(!left(Case::new().lost(0, Component::Failed)), "it lives");
}

#[tokio::test]
async fn a_machine_that_was_left_behind_and_goes_all_the_same_is_found() {
    let case = || Case::new().for_value("n").lost(0, Component::Removed).gone(6, 8);
    assert!(!case().is_fine());
    assert!(case().lost(7, Component::Ready).is_fine(), "it could be asked about");
    assert!(!case().lost(9, Component::Ready).is_fine(), "its Proxy was gone by then");
    let mut under_way = case();
    under_way.evidence.record.taken[0].at = under_way.at(7);
    assert!(under_way.is_fine(), "that call was under way");
}

#[tokio::test]
async fn more_away_than_may_be_are_found() {
    let judged = |fair: bool, goes: &[bool]| {
        let mut evidence = Case::new().for_value("n").evidence;
        evidence.terms.fair = fair;
        for (number, goes) in goes.iter().enumerate() {
            evidence.seen.lives.insert(number.to_string(), Life::away(*goes));
        }
        evidence.seen.judge(&evidence.terms);
        (evidence.accounts().is_ok(), evidence.seen.most_away)
    };
    assert_eq!(judged(false, &[true]), (true, 1));
    assert_eq!(judged(false, &[true, true]), (false, 2));
    assert_eq!(judged(false, &[true, false]), (true, 1), "that one may have failed");
    assert_eq!(judged(true, &[true, false]), (false, 2), "not where nothing fails");
}
