//! Machines that a status names and that show no tags of its Proxy: what they cost, and what is said of them.

use std::time::Duration;

use super::case::Case;
use crate::crd::{Phase, ProxyStatus};
use crate::ids::Incarnation;
use crate::lifecycle::{Action, Refusal, Requeue};
use crate::provider::{Instance, InstanceState};

/// It serves.
fn serves() -> Case {
    Case::published().healthy("i1").in_state(InstanceState::Running).written()
}

/// In the next look the machine has lost its tags.
fn disowned(case: Case) -> Case {
    found(case, |_| {})
}

fn found(case: Case, change: impl Fn(&mut Instance)) -> Case {
    let mut foreign = case.foreign("m1");
    change(&mut foreign);
    case.later(80).next_pass().found(foreign)
}

fn written_status(case: &Case) -> ProxyStatus {
    let decision = case.decide();
    let Action::WriteStatus(status) = decision.action else { panic!("{decision:#?}") };
    *status
}

fn said(status: &ProxyStatus) -> Vec<String> {
    status.conditions.iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect()
}

/// Until the next pass: the drift poll, spread.
fn is_a_drift_poll(requeue: Requeue) -> bool {
    let Requeue::After(wait) = requeue else { return false };
    (Duration::from_secs(48)..=Duration::from_secs(72)).contains(&wait)
}

#[test]
fn one_that_lost_its_tags_serves_on_while_the_look_is_suspected_and_says_what_to_check() {
    let case = disowned(serves()).refused(Refusal::Suspect);
    let status = written_status(&case);
    assert_eq!((status.phase, status.ip.as_deref()), (Phase::Ready, Some("10.0.0.1")));
    assert_eq!(status.incarnation.as_deref(), Some("i1"));
    assert_eq!(said(&status)[0], "Provisioned=True/FleetSuspect");
    assert_eq!(said(&status)[2], "Ready=True/ProbeSucceeded");
    assert!(status.conditions[0].message.contains("--cluster-id"), "{}", status.conditions[0].message);
    let waits = case.written().decide();
    assert!(waits.action == Action::Wait && is_a_drift_poll(waits.requeue), "{waits:#?}");
}

#[test]
fn one_that_lost_its_tags_is_hidden_once_it_may_go_and_looked_at_as_often_as_one_of_ours() {
    let case = disowned(serves()).granted().written();
    let status = &case.observed.object.status;
    assert_eq!((status.phase, status.ip.as_deref()), (Phase::Failed, None));
    assert_eq!(status.provider_id.as_deref(), Some("m1"), "named, for a person to look at");
    let waits = case.decide();
    assert!(waits.action == Action::Wait && is_a_drift_poll(waits.requeue), "{waits:#?}");
    // With its tags it serves again.
    let back = case.later(60).next_pass().in_state(InstanceState::Running);
    assert_eq!(written_status(&back).phase, Phase::Ready);
}

#[test]
fn one_that_waits_for_its_place_says_that_it_is_not_ours() {
    let status = written_status(&disowned(serves()).refused(Refusal::Capped));
    assert_eq!((status.phase, status.ip.is_some()), (Phase::Ready, true));
    assert_eq!(said(&status)[0], "Provisioned=True/NameConflict");
}

#[test]
fn another_machine_under_the_name_is_hidden_at_once_and_one_without_any_identity_is_not() {
    let with = |incarnation: Option<&str>| {
        let incarnation = incarnation.map(|text| Incarnation::parse(text).unwrap());
        found(serves(), |foreign| foreign.incarnation.clone_from(&incarnation)).decide()
    };
    assert_eq!(with(Some("i1")).row, "a_machine_without_our_tags_asks_to_leave");
    assert_eq!(with(None).row, "a_machine_without_our_tags_asks_to_leave");
    assert_eq!(with(Some("i2")).row, "the_machine_is_not_ours");
}

#[test]
fn one_that_was_never_shown_asks_nobody() {
    assert_eq!(disowned(Case::recorded()).decide().row, "the_machine_is_not_ours");
}

#[test]
fn one_that_drains_drains_on() {
    let edited = serves().edited().validated(Ok(()));
    let drains = edited.leased(1).granted().written();
    let since = drains.observed.object.status.conditions[2].last_transition_time.clone();
    let status = written_status(&disowned(drains).refused(Refusal::Suspect));
    assert_eq!((status.phase, status.ip.as_deref()), (Phase::Replacing, Some("10.0.0.1")));
    assert_eq!(said(&status)[0], "Provisioned=False/Draining");
    assert_eq!(status.conditions[2].last_transition_time, since, "its time goes on");
}
