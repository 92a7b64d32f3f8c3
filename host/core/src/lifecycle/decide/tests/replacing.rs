//! Rows about machines that wait for room, drain, or are asked to go by a person; and what holds of them.

use super::case::{Case, failure};
use super::rows;
use crate::crd::Phase;
use crate::facts::Auth;
use crate::lifecycle::{Action, ProviderView, ProvisionedReason, Purpose, Refusal, Requeue, Stage};
use crate::provider::{InstanceState, Reason};

/// It serves, and the spec asks for another one; nobody has leases.
fn outdated() -> Case {
    let runs = Case::published().healthy("i1").in_state(InstanceState::Running).written();
    runs.edited().validated(Ok(()))
}

/// The machine of the spec before still runs.
fn runs(case: Case) -> Case {
    case.found(Case::published().instance("m1", InstanceState::Running))
}

/// It drains, with a lease.
pub(super) fn draining() -> Case {
    outdated().leased(1).granted().written()
}

/// It was found to have stopped.
fn stopped(case: Case) -> Case {
    case.found(Case::published().instance("m1", InstanceState::Stopped))
}

/// It was never shown to anybody, and did not run in time.
fn too_slow() -> Case {
    let case = Case::recorded().in_state(InstanceState::Provisioning).later(900);
    case.next_pass().in_state(InstanceState::Provisioning)
}

/// A person asked for another machine than the one that serves.
fn asked_for(nonce: &str) -> Case {
    let runs = Case::published().healthy("i1").in_state(InstanceState::Running).written();
    nonced(runs, nonce).validated(Ok(()))
}

fn nonced(case: Case, nonce: &str) -> Case {
    case.edit(|observed| observed.object.replace_nonce = Some(nonce.to_owned()))
}

rows! {
    a_machine_asks_for_room: outdated(),
    a_machine_waits_for_room: {
        [Refusal::Pending, Refusal::Capped, Refusal::Paused, Refusal::Suspect].map(|why| outdated().refused(why))
    },
    the_machine_drains: {
        [outdated().leased(1).granted(), runs(draining().later(295).next_pass()), outdated().granted()]
    },
    the_new_spec_lacks_credentials_the_machine_stays: {
        let ended = draining().leased(0).later(4).next_pass();
        [runs(ended.clone()), outdated(), stopped(ended)].map(|case| {
            case.edit(|observed| observed.surroundings.auth = Auth::Missing("no such Secret".to_owned()))
        })
    },
    a_machine_asks_to_leave: [runs(draining().leased(0).later(4).next_pass()), too_slow()],
    a_machine_waits_to_leave: {
        let unserving = || Case::published().in_state(InstanceState::Running).edited().validated(Ok(()));
        vec![
            runs(draining().leased(0).later(4).next_pass()).refused(Refusal::Capped),
            unserving().refused(Refusal::Pending),
            unserving().refused(Refusal::Paused),
            stopped(Case::published()).refused(Refusal::Capped),
            stopped(draining()).refused(Refusal::Capped),
            too_slow().refused(Refusal::Capped),
        ]
    },
    a_person_asked_for_another_machine: {
        let over = asked_for("1").leased(1).granted().written().leased(0).later(4).next_pass();
        let instance = over.instance("m1", InstanceState::Running);
        let [known, seen, hidden, looked, _] = over.goes(&instance);
        [known, seen, hidden, looked]
    },
    a_broken_machine_asks_to_leave: stopped(Case::published()),
    a_suspect_fleet_is_left_alone: {
        let absent = Case::published().absent("m1");
        [absent, stopped(Case::published()), stopped(draining())].map(|case| case.refused(Refusal::Suspect))
    },
}

/// The status that the decision writes.
fn written_status(case: &Case) -> crate::crd::ProxyStatus {
    let decision = case.decide();
    let Action::WriteStatus(status) = decision.action else { panic!("{decision:#?}") };
    *status
}

#[test]
fn a_machine_that_waits_for_room_stays_ready_and_says_why() {
    for (why, reason) in [
        (Refusal::Pending, "ReplacementPending"),
        (Refusal::Paused, "ReplacementPaused"),
        (Refusal::Standstill, "ReplacementPaused"),
        (Refusal::Suspect, "FleetSuspect"),
    ] {
        let status = written_status(&outdated().refused(why));
        assert_eq!(status.phase, Phase::Ready);
        assert!(status.ip.is_some());
        let said: Vec<String> =
            status.conditions.iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect();
        assert_eq!(said[0], format!("Provisioned=True/{reason}"));
        assert_eq!(said[2], "Ready=True/ProbeSucceeded");
    }
}

#[test]
fn nothing_is_said_to_have_been_replaced_where_nothing_was() {
    for case in [outdated(), runs(draining().leased(0).later(4).next_pass())] {
        let says = |why| written_status(&case.clone().refused(why)).conditions[0].message.clone();
        let (paused, standstill) = (says(Refusal::Paused), says(Refusal::Standstill));
        assert!(paused.contains("that were replaced before do not become ready"), "{paused}");
        assert!(!standstill.contains("replaced before"), "{standstill}");
        assert!(
            standstill.contains("maxUnavailable") && standstill.contains("kubectl get px"),
            "{standstill}"
        );
    }
}

#[test]
fn a_draining_machine_keeps_its_address_and_its_verdict_and_is_ready_for_nobody() {
    let status = written_status(&outdated().leased(1).granted());
    assert_eq!(status.phase, Phase::Replacing);
    assert_eq!(status.ip.as_deref(), Some("10.0.0.1"));
    let said: Vec<String> =
        status.conditions.iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect();
    assert_eq!(said, ["Provisioned=False/Draining", "Healthy=True/ProbeSucceeded", "Ready=False/Draining"]);
}

#[test]
fn a_drain_ends_with_the_last_lease_or_with_its_time() {
    let row = |case: Case| runs(case.next_pass()).decide().row;
    assert_eq!(row(draining().later(299)), "the_machine_drains");
    assert_eq!(row(draining().later(300)), "a_machine_asks_to_leave");
    assert_eq!(row(draining().later(4).leased(0)), "a_machine_asks_to_leave");
    assert_eq!(
        row(draining().later(2).leased(0)),
        "the_machine_drains",
        "the pool may not have heard of it yet"
    );
}

#[test]
fn a_drain_whose_last_lease_ended_unheard_does_not_last_to_its_end() {
    let wait = |case: Case| {
        let Requeue::After(wait) = case.decide().requeue else { panic!("it rests") };
        wait.as_secs()
    };
    assert_eq!([4, 200, 295].map(|since| wait(runs(draining().later(since).next_pass()))), [10, 10, 5]);
}

#[test]
fn a_drain_goes_on_where_it_was_after_a_restart() {
    let restarted = |seconds| {
        let case =
            draining().later(seconds).edit(|observed| observed.memory = crate::lifecycle::Memory::new(8));
        runs(runs(case.next_pass()).later(150).next_pass()).decide().row
    };
    assert_eq!(restarted(149), "the_machine_drains");
    // Already checked before, or checked now: both lead on.
    assert_eq!(restarted(151), "the_new_spec_is_checked");
}

#[test]
fn without_a_drain_the_machine_goes_at_once_when_there_is_room() {
    let case = outdated().leased(5).edit(|observed| {
        if let ProviderView::Ready(provider) = &mut observed.surroundings.provider {
            provider.info.settings.replacement.drain = std::time::Duration::ZERO;
        }
    });
    assert_eq!(case.granted().decide().row, "a_machine_asks_to_leave");
}

#[test]
fn a_machine_that_serves_nobody_needs_no_room() {
    let case = Case::published().in_state(InstanceState::Running).edited().validated(Ok(()));
    let Action::AskLeave(ask) = case.decide().action else { panic!() };
    assert_eq!(ask.purpose, Purpose::Removal);
}

#[test]
fn an_edit_that_is_undone_during_the_drain_brings_the_machine_back() {
    let undone = draining().later(4).next_pass().edit(|observed| observed.object.spec.port = None);
    let status = written_status(&undone.in_state(InstanceState::Running));
    assert_eq!((status.phase, status.replacing), (Phase::Ready, None));
}

#[test]
fn a_mistake_during_the_drain_brings_the_machine_back() {
    let refused = runs(draining().later(301).next_pass());
    let status = written_status(&refused.clone().validated(Err(failure(Reason::Permanent))));
    assert_eq!((status.phase, status.ip.as_deref()), (Phase::Failed, Some("10.0.0.1")));
    let missing = |observed: &mut crate::lifecycle::Observed| {
        observed.surroundings.auth = Auth::Missing("no such Secret".to_owned());
    };
    assert_eq!(written_status(&refused.edit(missing)).phase, Phase::Ready);
    let only_deletes = runs(draining().later(4).next_pass().delete_only());
    assert_eq!(written_status(&only_deletes).phase, Phase::Ready);
    let unreadable = draining().later(4).next_pass().edit(|observed| {
        observed.surroundings.cloud_init =
            crate::lifecycle::CloudInitView::Problem("no such Secret".to_owned());
    });
    assert_eq!(written_status(&runs(unreadable)).phase, Phase::Ready);
}

#[test]
fn a_value_of_the_replace_annotation_is_taken_up_once_with_the_machine_it_is_for() {
    let draining = asked_for("1").leased(1).granted();
    let status = written_status(&draining);
    assert_eq!((status.replace_nonce.as_deref(), status.replacing.as_deref()), (Some("1"), Some("i1")));
    // The process dies; the value was taken up and its machine is still there: it goes.
    let restarted = draining.written().edit(|observed| observed.memory = crate::lifecycle::Memory::new(8));
    let restarted = restarted.later(300).next_pass().in_state(InstanceState::Running);
    assert_eq!(restarted.decide().row, "the_new_spec_is_checked");
    // The next machine is another one: nothing asks for a further one.
    let another = |case: &Case| {
        let mut instance = case.instance("m1", InstanceState::Running);
        instance.incarnation = Some(crate::ids::Incarnation::parse("i2").unwrap());
        instance
    };
    let instance = another(&restarted);
    let renewed = restarted.next_pass().found(instance);
    assert_eq!(renewed.decide().row, "the_machine_runs");
    let status = written_status(&renewed.clone().healthy("i2"));
    assert_eq!((status.replace_nonce.as_deref(), status.replacing), (Some("1"), None));
    // Another value asks again.
    assert_eq!(nonced(renewed.written(), "2").decide().row, "the_new_spec_is_checked");
}

#[test]
fn the_first_machine_serves_a_value_that_was_there_before_it() {
    let case = nonced(Case::claimed(), "1");
    let made = case.instance("m1", InstanceState::Provisioning);
    let status = written_status(&case.created(Ok(made)));
    assert_eq!((status.replace_nonce.as_deref(), status.replacing), (Some("1"), None));
}

#[test]
fn a_value_that_is_taken_away_again_replaces_nothing() {
    let undone = asked_for("1").leased(1).granted().written().later(4).next_pass();
    let undone =
        undone.edit(|observed| observed.object.replace_nonce = None).in_state(InstanceState::Running);
    assert_eq!(undone.decide().row, "the_machine_runs");
}

#[test]
fn an_absent_machine_that_a_person_asked_to_go_is_settled_before_the_next_is_made() {
    let going = asked_for("1").leased(1).granted().written().leased(0).later(4).next_pass();
    let going = going.in_state(InstanceState::Running).granted().written().delete_sent();
    let absent = going.later(20).next_pass().absent("m1").granted();
    let status = written_status(&absent);
    assert_eq!((status.provider_id, status.replacing), (None, None));
    assert_eq!(status.replace_nonce.as_deref(), Some("1"));
}

#[test]
fn a_provider_that_only_deletes_makes_no_other_machine_for_a_person_and_says_so() {
    let decision = asked_for("1").delete_only().decide();
    assert_eq!(decision.row, "the_machine_runs_beside_a_problem");
    let Stage::Kept(Some((reason, message))) = decision.status.stage else { panic!("{decision:#?}") };
    assert_eq!(reason, ProvisionedReason::ProviderUnavailable);
    assert!(message.contains("deleteOnly"), "{message}");
}

#[test]
fn waiting_for_room_asks_the_provider_nothing() {
    let waiting = outdated().refused(Refusal::Pending).written().later(10).next_pass();
    assert_eq!(waiting.decide().row, "a_machine_asks_for_room");
    let admitted = waiting.granted().decide();
    assert!(matches!(admitted.action, Action::Get(_)), "a look, before it is taken from clients");
    let later = runs(outdated().later(601).next_pass());
    assert_eq!(later.decide().row, "the_new_spec_is_checked", "an old answer is not good for ever");
}

#[test]
fn a_drain_begins_when_it_begins_although_the_proxy_was_not_ready_long_before() {
    // A spec was refused an hour ago; the machine before it is leased, and the correction needs another one.
    let refused_before = outdated().edit(|observed| {
        for condition in &mut observed.object.status.conditions {
            if condition.type_ != "Healthy" {
                "False".clone_into(&mut condition.status);
                "PermanentError".clone_into(&mut condition.reason);
                condition.last_transition_time.0 -= jiff::SignedDuration::from_hours(1);
            }
        }
    });
    let drains = refused_before.leased(1).granted().written();
    let restarted = drains.clone().edit(|observed| observed.memory = crate::lifecycle::Memory::new(8));
    for case in [drains.later(20), runs(restarted.later(20).next_pass())] {
        assert_eq!(case.decide().row, "the_machine_drains");
    }
}

#[test]
fn whoever_waits_for_its_place_stays_as_it_is_and_is_looked_at_again_soon() {
    let far = |case: Case| {
        let Action::AskLeave(ask) = case.decide().action else { panic!("{:?}", case.decide()) };
        let retry = std::time::Duration::from_mins(20);
        let admission = crate::lifecycle::Admission::Refused { why: Refusal::Capped, retry };
        case.absorb(crate::lifecycle::Outcome::Asked { ask, admission })
    };
    let cases: [fn() -> Case; 6] = [
        || Case::published().in_state(InstanceState::Stopped),
        || Case::published().in_state(InstanceState::Provisioning),
        || Case::published().absent("m1"),
        || Case::published().absent("m1").next_pass().absent("m1"),
        || outdated().in_state(InstanceState::Failed),
        || Case::published().in_state(InstanceState::Running).edited().validated(Ok(())),
    ];
    for case in cases {
        let waits = far(case());
        assert_eq!(written_status(&waits).ip.as_deref(), Some("10.0.0.1"));
        let Requeue::After(wait) = waits.decide().requeue else { panic!() };
        assert!(wait <= std::time::Duration::from_secs(15), "{wait:?}");
    }
}

#[test]
fn an_absence_that_begins_a_back_off_asks_the_ledger_all_the_same() {
    let again = Case::published().edit(|observed| observed.memory.vanished = 1).absent("m1");
    assert_eq!(again.decide().row, "an_absent_machine_asks_for_another");
    let status = written_status(&again.clone().refused(Refusal::Suspect));
    assert_eq!((status.provider_id.as_deref(), status.ip.as_deref()), (Some("m1"), Some("10.0.0.1")));
    let granted = again.granted().written();
    assert_eq!(granted.decide().row, "a_back_off_holds");
}

/// Reason and message of the Provisioned condition.
fn provisioned(status: &crate::crd::ProxyStatus) -> (&str, &str) {
    let condition = status.conditions.first().unwrap();
    (&condition.reason, &condition.message)
}

#[test]
fn what_drains_says_why_its_turn_does_not_come_and_drains_on() {
    let ended = || runs(draining().leased(0).later(4).next_pass());
    for (why, says) in [
        (Refusal::Suspect, "look itself is suspected"),
        (Refusal::Capped, "--max-replacements-per-minute"),
        (Refusal::Paused, "kubectl get px"),
    ] {
        let status = written_status(&ended().refused(why));
        let (reason, message) = provisioned(&status);
        assert!(
            message.starts_with("the spec needs another machine; ") && message.contains(says),
            "{message}"
        );
        assert_eq!((reason, status.phase), ("Draining", Phase::Replacing));
    }
    let before = draining();
    let since = before.observed.object.status.conditions[2].last_transition_time.clone();
    let status = written_status(
        &before.later(60).next_pass().in_state(InstanceState::Failed).refused(Refusal::Suspect),
    );
    let (reason, message) = provisioned(&status);
    assert!(message.contains("look itself is suspected"), "{message}");
    assert_eq!((reason, status.phase, status.ip.is_some()), ("Draining", Phase::Replacing, true));
    assert_eq!(status.conditions[2].last_transition_time, since, "it drains since then");
}

#[test]
fn a_broken_machine_in_whose_place_none_can_be_made_asks_for_no_place() {
    let latched = stopped(outdated().validated(Err(failure(Reason::Permanent))).written().next_pass());
    assert_eq!(latched.decide().row, "the_new_spec_is_latched_the_machine_stays");
    let missing = |case: Case| {
        let auth = Auth::Missing("no such Secret".to_owned());
        stopped(case.edit(|observed| observed.surroundings.auth = auth))
    };
    let lacks = missing(outdated());
    assert_eq!(lacks.decide().row, "the_new_spec_lacks_credentials_the_machine_stays");
    assert_eq!(written_status(&lacks).ip.as_deref(), Some("10.0.0.1"));
    let drains = missing(draining()).decide();
    assert!(matches!(drains.status.stage, Stage::Kept(None)), "what drains drains on: {drains:#?}");
    // Without an edit it is mended as ever.
    let mended = missing(Case::published());
    assert_eq!(mended.decide().row, "a_broken_machine_asks_to_leave");
}
