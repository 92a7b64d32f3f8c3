//! Rows about the deletion of a Proxy.

use super::case::Case;
use super::rows;
use crate::lifecycle::{Action, Ask, ProviderView, ProvisionedReason, Purpose, Refusal, Requeue, Stage};
use crate::provider::{InstanceState, Reason};

/// Nothing is found of the machine.
fn empty() -> Case {
    Case::published().deleted().absent("m1").listed(Vec::new())
}

rows! {
    a_deleted_proxy_without_finalizer_is_left: Case::managed().deleted()
        => Action::Wait, Requeue::OnChange, Stage::Untouched,
    a_deletion_waits_for_its_provider: Case::published().deleted().provider(ProviderView::Unknown(Vec::new()))
        => Action::WriteStatus(_), Requeue::After(_), Stage::Deleting(Some((ProvisionedReason::ProviderUnavailable, _))),
    a_deletion_waits_for_its_scope: Case::published().deleted().edit(|observed| {
        observed.object.status.provider_scope = Some("projects/other".to_owned());
    }) => Action::WriteStatus(_), Requeue::After(_), Stage::Deleting(Some((ProvisionedReason::OutOfScope, _))),
    a_back_off_holds_the_deletion: Case::published().deleted().get_fails(Reason::Denied)
        => Action::WriteStatus(_), Requeue::After(_), Stage::Deleting(Some((ProvisionedReason::Denied, _))),
    a_deletion_looks_at_the_machine: Case::published().deleted()
        => Action::Get(_), _, Stage::Untouched,
    a_deletion_looks_at_a_listed_machine: {
        let case = Case::published().deleted().absent("m1");
        let other = case.instance("m2", InstanceState::Running);
        case.listed(vec![other])
    } => Action::Get(_), _, Stage::Untouched,
    a_deleted_machine_asks_to_leave: Case::published().deleted().in_state(InstanceState::Running)
        => Action::AskLeave(Ask { purpose: Purpose::Deletion, .. }), _, Stage::Untouched,
    a_deletion_waits_for_its_turn: Case::published().deleted().in_state(InstanceState::Running).refused(Refusal::Capped)
        => Action::WriteStatus(_), Requeue::After(_), Stage::Deleting(None),
    an_abandoned_proxy_leaves_its_machine_behind: {
        let case = Case::published().deleted().edit(|observed| observed.object.abandon = true);
        case.provider(ProviderView::Unknown(Vec::new()))
    } => Action::Abandon { machine: Some(_), .. }, _, Stage::Untouched,
    a_deletion_deletes_the_machine: Case::published().deleted().in_state(InstanceState::Running).granted()
        => Action::Delete { why: "deleted", .. }, _, Stage::Untouched,
    a_deletion_waits_for_the_machine: Case::published().deleted().in_state(InstanceState::Running).delete_sent()
        => Action::WriteStatus(_), Requeue::After(_), Stage::Deleting(None),
    a_deletion_lists_the_machines: Case::published().deleted().absent("m1")
        => Action::ListOwned(_), _, Stage::Untouched,
    a_deletion_waits_for_the_second_absence: empty()
        => Action::WriteStatus(_), Requeue::After(_), Stage::Deleting(None),
    nothing_is_left_the_finalizer_goes: empty().later(72).next_pass().absent("m1").listed(Vec::new())
        => Action::RemoveFinalizer(_), _, Stage::Untouched,
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
