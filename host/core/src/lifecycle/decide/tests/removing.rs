//! Rows about the deletion of a Proxy.

use super::case::{Case, SEEN_APART, info};
use super::rows;
use crate::lifecycle::{Memory, ProviderFacts, ProviderView, Refusal, Stage};
use crate::provider::{HostFault, InstanceState, Reason};

/// Nothing is found of the machine.
fn empty() -> Case {
    Case::published().deleted().absent("m1").listed(Vec::new())
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
    a_proxy_says_that_it_is_abandoned: let_go(),
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
    a_deletion_waits_for_the_second_absence: empty(),
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
fn a_foreign_machine_is_not_deleted_and_does_not_hold_the_deletion_up() {
    let case = Case::published().deleted().edit(|observed| observed.memory.first_touch = true);
    let foreign = case.foreign("m1");
    let decision = case.found(foreign).listed(Vec::new()).decide();
    assert_eq!(decision.row, "nothing_is_left_the_finalizer_goes");
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
