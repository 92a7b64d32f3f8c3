//! Rows about the deletion of a Proxy.

use super::case::{Case, SEEN_APART, id, info};
use super::rows;
use crate::lifecycle::{Action, Memory, ProviderFacts, ProviderView, ProvisionedReason, Refusal, Stage};
use crate::provider::{HostFault, InstanceState, Reason};

/// Nothing is found of the machine.
fn empty() -> Case {
    Case::published().deleted().absent("m1").listed(Vec::new())
}

/// The machine that the status names is there, and bears no tags of ours.
fn not_ours() -> Case {
    Case::published().deleted().foreign_found()
}

/// Its provider is gone, and a person says that its machine may be left behind.
fn let_go() -> Case {
    let case = Case::published().deleted().edit(|observed| observed.object.abandon = true);
    case.provider(ProviderView::Unknown(Vec::new()))
}

fn ready() -> ProviderView {
    ProviderView::Ready(ProviderFacts { info: info() })
}

rows! {
    a_deleted_proxy_without_finalizer_is_left: Case::managed().deleted(),
    a_deletion_waits_for_its_provider: Case::published().deleted().provider(ProviderView::Unknown(Vec::new())),
    a_deletion_waits_for_its_scope: Case::published().deleted().edit(|observed| {
        observed.object.status.provider_scope = Some("projects/other".to_owned());
    }),
    a_back_off_holds_the_deletion: {
        let fails = |reason| Case::published().deleted().get_fails(reason);
        let no_permit = fails(Reason::Host(HostFault::NoPermit));
        let before = Case::published().get_fails(Reason::Transient).deleted();
        [&SEEN_APART.map(fails)[..], &[no_permit, before]].concat()
    },
    a_deletion_looks_at_the_machine: Case::published().deleted(),
    a_deletion_looks_at_a_listed_machine: {
        let case = Case::published().deleted().absent("m1");
        let other = case.instance("m2", InstanceState::Running);
        case.listed(vec![other])
    },
    a_deleted_machine_asks_to_leave: Case::published().deleted().in_state(InstanceState::Running),
    a_deletion_waits_for_its_turn: {
        Case::published().deleted().in_state(InstanceState::Running).refused(Refusal::Capped)
    },
    a_deletion_looks_whether_it_was_abandoned: let_go().provider(ready()),
    a_proxy_says_that_it_is_abandoned: [let_go(), said(elsewhere()), said(denied(5))],
    an_abandoned_proxy_leaves_its_machine_behind: let_go().written(),
    a_deletion_deletes_the_machine: Case::published().deleted().in_state(InstanceState::Running).granted(),
    a_deletion_waits_for_the_machine: {
        let sent = Case::published().deleted().in_state(InstanceState::Running).delete_sent();
        let asks = sent.clone().edit(|observed| {
            for sent in observed.memory.deletes.values_mut() {
                sent.ask_after = Some(std::time::Duration::from_secs(20));
            }
        });
        [sent, asks]
    },
    a_deletion_lists_the_machines: Case::published().deleted().absent("m1"),
    a_deletion_waits_for_the_second_absence: [empty(), not_ours()],
    a_deletion_says_which_machine_is_not_ours: not_ours().later(72).next_pass().foreign_found(),
    a_machine_that_is_not_ours_stays: not_ours().written().later(72).next_pass().foreign_found(),
    nothing_is_left_the_finalizer_goes: empty().later(72).next_pass().absent("m1").listed(Vec::new()),
}

#[test]
fn one_absence_is_enough_if_every_create_was_answered() {
    let case = Case::published().deleted().edit(|observed| observed.memory.first_touch = true);
    let row = |case: Case| case.absent("m1").listed(Vec::new()).decide().row;
    assert_eq!(row(case.clone()), "nothing_is_left_the_finalizer_goes");
    let unanswered = case.edit(|observed| observed.memory.unanswered_create = true);
    assert_eq!(row(unanswered), "a_deletion_waits_for_the_second_absence");
}

#[test]
fn a_machine_that_was_ours_is_looked_at_twice_and_told_before_it_is_left() {
    let case = not_ours().edit(|observed| observed.memory.first_touch = true);
    let first = case.decide();
    assert_eq!(first.row, "a_deletion_waits_for_the_second_absence", "it may be a wrong sight");
    let Stage::Deleting(Some((ProvisionedReason::NameConflict, message))) = first.status.stage else {
        panic!()
    };
    assert!(message.contains("machine m1 does not carry"), "{message}");
    let again = case.written().later(72).next_pass();
    assert_eq!(again.clone().foreign_found().decide().row, "a_machine_that_is_not_ours_stays");
    let ours = again.in_state(InstanceState::Running).listed(Vec::new());
    assert_eq!(ours.decide().row, "a_deleted_machine_asks_to_leave", "it was a wrong sight");
}

#[test]
fn a_machine_that_never_was_ours_holds_no_deletion_up_and_is_told() {
    let planned = Case::claimed().deleted().edit(|observed| observed.memory.first_touch = true);
    let another = not_ours().edit(|observed| {
        observed.memory.first_touch = true;
        observed.object.status.incarnation = Some("i0".to_owned());
    });
    for case in [planned.foreign_found(), another] {
        assert_eq!(case.decide().row, "a_deletion_says_which_machine_is_not_ours");
        let Action::Abandon { machine, .. } = case.written().decide().action else { panic!() };
        assert_eq!(machine, Some(id("m1")));
    }
}

#[test]
fn a_machine_that_was_found_in_between_starts_the_count_of_absences_anew() {
    let late = empty().later(40).next_pass();
    let found = late.in_state(InstanceState::Provisioning).delete_sent().later(40).next_pass();
    let again = found.absent("m1").listed(Vec::new());
    assert_eq!(again.decide().row, "a_deletion_waits_for_the_second_absence");
}

#[test]
fn a_look_that_failed_before_the_object_was_seen_to_be_deleted_is_no_absence() {
    let unknown = Case::published().edit(|observed| observed.memory.first_touch = true);
    let deleted = unknown.get_fails(Reason::Transient).deleted().listed(Vec::new());
    assert_eq!(deleted.decide().row, "a_back_off_holds_the_deletion");
}

#[test]
fn abandoning_counts_only_while_the_provider_is_unknown_or_failed() {
    let row = |view| let_go().provider(view).decide().row;
    let failed = ProviderView::Failed { stage: "compile", reason: "no".to_owned() };
    assert_eq!(row(failed), "a_proxy_says_that_it_is_abandoned");
    assert_eq!(row(ProviderView::Unknown(Vec::new())), "a_proxy_says_that_it_is_abandoned");
    assert_eq!(row(ProviderView::Loading), "the_provider_is_loading");
    assert_eq!(let_go().provider(ready()).fresh().decide().row, "a_deletion_looks_at_the_machine");
    let lives = let_go().edit(|observed| observed.object.deleting = false);
    assert_eq!(lives.decide().row, "the_provider_is_unavailable_the_machine_goes_on");
}

#[test]
fn a_deletion_without_its_provider_names_both_ways_on() {
    let views = [
        (
            ProviderView::Unknown(Vec::new()),
            "Add it to the providers config again (mode: deleteOnly is enough)",
        ),
        (
            ProviderView::Failed { stage: "compile", reason: "no component".to_owned() },
            "What is wrong: provider \"fake\" could not be loaded (stage compile): no component",
        ),
    ];
    for (view, way) in views {
        let status = Case::published().deleted().provider(view).decide().status;
        let Stage::Deleting(Some((_, message))) = status.stage else { panic!("no message") };
        assert!(message.contains(way), "{message}");
        let leave = "kubectl annotate px -n crawl p crawl.example.com/abandon=true";
        assert!(message.contains(leave), "{message}");
        assert!(!message.contains("make the Proxy anew"), "{message}");
    }
}

#[test]
fn the_word_that_a_machine_stays_is_kept_until_it_is_taken_back() {
    let restarted = |case: Case| case.edit(|observed| observed.memory = Memory::new(8)).next_pass();
    let said = || restarted(let_go().written());
    for view in [ready(), ProviderView::Loading, ProviderView::Unknown(Vec::new())] {
        let decision = said().provider(view).decide();
        assert_eq!(decision.row, "an_abandoned_proxy_leaves_its_machine_behind");
    }
    let taken_back = said().edit(|observed| observed.object.abandon = false);
    assert_eq!(taken_back.clone().decide().row, "a_deletion_waits_for_its_provider");
    assert_eq!(taken_back.provider(ready()).decide().row, "a_deletion_looks_at_the_machine");
    // One that could not be written down stays as well.
    let unrecorded = Case::claimed().unrecorded().deleted().edit(|observed| observed.object.abandon = true);
    let said = unrecorded.provider(ProviderView::Unknown(Vec::new())).written();
    assert_eq!(said.provider(ready()).next_pass().gone().decide().row, "the_object_is_gone");
}

#[test]
fn a_delete_is_not_repeated_for_a_look_from_before_it() {
    let sent = Case::published().deleted().in_state(InstanceState::Running).delete_sent();
    // The write of the status took its time.
    let slow = sent.later(30);
    assert_eq!(slow.decide().row, "a_deletion_waits_for_the_machine");
    let ignored = slow.clone().next_pass().in_state(InstanceState::Running);
    assert_eq!(ignored.decide().row, "a_deleted_machine_asks_to_leave", "it had no effect");
    let under_way = slow.next_pass().in_state(InstanceState::Deleting);
    assert_eq!(under_way.decide().row, "a_deletion_waits_for_the_machine");
}

/// Its machine is where the provider does not look.
fn elsewhere() -> Case {
    Case::published().deleted().edit(|observed| {
        observed.object.status.provider_scope = Some("projects/closed".to_owned());
    })
}

/// The provider is denied the look at the machine, so many times in a row; the next look is still held back.
fn denied(times: u32) -> Case {
    (1..=times).fold(Case::published().deleted(), |case, time| {
        let case = if time == 1 { case } else { case.later(600).next_pass() };
        case.get_fails(Reason::Denied)
    })
}

/// A person says so, and the object is read live.
fn said(case: Case) -> Case {
    case.edit(|observed| observed.object.abandon = true).fresh()
}

#[test]
fn abandoning_counts_where_the_provider_never_gets_to_the_machine() {
    let words = |case: Case| {
        let Stage::Deleting(Some((_, message))) = case.decide().status.stage else { panic!("no message") };
        message
    };
    let command = "kubectl annotate px -n crawl p crawl.example.com/abandon=true";
    for (waits, row, wrong) in [
        (elsewhere(), "a_deletion_waits_for_its_scope", "provider fake reaches another scope"),
        (denied(5), "a_back_off_holds_the_deletion", "provider fake is denied what it asks for"),
    ] {
        assert_eq!(waits.decide().row, row);
        assert!(words(waits.clone()).contains(command), "{}", words(waits));
        let cached = waits.clone().edit(|observed| observed.object.abandon = true);
        assert_eq!(cached.decide().row, "a_deletion_looks_whether_it_was_abandoned");
        let said = said(waits);
        assert_eq!(said.decide().row, "a_proxy_says_that_it_is_abandoned");
        assert!(
            words(said.clone()).contains(wrong) && words(said.clone()).contains("machine m1"),
            "{said:?}"
        );
        assert_eq!(said.written().decide().row, "an_abandoned_proxy_leaves_its_machine_behind");
    }
}

#[test]
fn abandoning_skips_no_delete_that_may_work() {
    let row = |case: Case| said(case).decide().row;
    assert_eq!(row(denied(4)), "a_back_off_holds_the_deletion", "it may be let in again");
    assert_eq!(row(denied(5).later(600).next_pass()), "a_deletion_looks_at_the_machine");
    let foreign_id = Case::published().deleted().get_fails(Reason::OutOfScope);
    assert_eq!(row(foreign_id), "a_proxy_says_that_it_is_abandoned", "with this config it can't be reached");
    let throttled = (0..9).fold(Case::published().deleted(), |case, _| case.get_fails(Reason::Throttled));
    assert_eq!(row(throttled), "a_back_off_holds_the_deletion");
    let back = denied(5).later(600).next_pass().in_state(InstanceState::Running);
    assert_eq!(row(back), "a_deleted_machine_asks_to_leave");
}
