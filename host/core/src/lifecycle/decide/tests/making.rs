//! Rows about the making of a machine.

use super::case::{Case, failure, id};
use super::replacing::draining;
use super::rows;
use crate::facts::Auth;
use crate::lifecycle::{Action, CloudInitView, ProvisionedReason, Refusal, Requeue, Stage};
use crate::provider::{HostFault, InstanceState, Reason, Secret};

/// Claimed by an earlier process; nothing is found of a machine.
fn searched() -> Case {
    Case::claimed().absent("m1").listed(Vec::new())
}

/// Two machines of this Proxy, of which `m1` is of another spec.
fn two() -> Case {
    let case = Case::claimed();
    let mut other = case.instance("m1", InstanceState::Running);
    other.tags.insert("proxy-operator-spec".to_owned(), "v1-00000000000000000000000000000000".to_owned());
    let current = case.instance("m2", InstanceState::Running);
    case.found(other.clone()).listed(vec![other, current])
}

/// `m1` is found, of another spec than the one that is wanted.
fn of_another_spec(case: Case) -> Case {
    let mut other = case.instance("m1", InstanceState::Running);
    other.tags.insert("proxy-operator-spec".to_owned(), "v1-00000000000000000000000000000000".to_owned());
    case.found(other).listed(Vec::new())
}

/// The spec is known not to work.
fn latched(case: Case) -> Case {
    case.validated(Err(failure(Reason::Permanent))).written().next_pass()
}

/// The cloud-init text can't be read.
fn unreadable(case: Case) -> Case {
    case.edit(|observed| {
        observed.surroundings.cloud_init = CloudInitView::Problem("no such Secret".to_owned());
    })
}

/// It was hidden and deleted, and is absent.
fn taken() -> Case {
    let hidden = Case::published().in_state(InstanceState::Stopped).granted().written();
    hidden.fresh().delete_sent().later(6).next_pass().absent("m1")
}

rows! {
    an_unrecorded_machine_is_looked_at: Case::claimed().unrecorded(),
    the_new_machine_is_recorded: [InstanceState::Provisioning, InstanceState::Running].map(|state| {
        let case = Case::claimed();
        let made = case.instance("m1", state);
        case.created(Ok(made))
    }),
    an_absent_machine_asks_for_another: [Case::published().absent("m1"), taken()],
    an_absent_machine_waits_for_another: {
        let absent = |case: Case| case.absent("m1").refused(Refusal::Capped);
        let again = Case::published().edit(|observed| observed.memory.vanished = 1);
        [absent(Case::published()), absent(draining()), taken().refused(Refusal::Capped), absent(again)]
    },
    a_vanished_machine_is_hidden: Case::published().absent("m1").granted(),
    the_cloud_init_is_unusable: [unreadable(Case::managed()), unreadable(searched())],
    a_permanent_failure_is_latched: [latched(Case::managed()), latched(searched()).absent("m1").listed(Vec::new())],
    the_planned_machine_is_looked_at: Case::claimed(),
    the_machines_of_the_proxy_are_listed: Case::claimed().absent("m1"),
    a_surplus_machine_is_looked_at: {
        let case = two();
        case.edit(|observed| { observed.pass.machines.remove(&id("m1")); observed.object.planned_id = None; })
    },
    a_surplus_machine_asks_to_leave: two(),
    a_surplus_machine_waits_to_leave: {
        [two().refused(Refusal::Capped), of_another_spec(latched(searched())).refused(Refusal::Capped)]
    },
    the_object_is_looked_at_before_a_surplus_delete: two().granted(),
    a_surplus_machine_is_deleted: two().granted().fresh(),
    surplus_machines_are_going: [two(), of_another_spec(latched(searched()))].map(|it| it.fresh().delete_sent()),
    a_found_machine_is_looked_at: {
        let case = Case::claimed().absent("m1");
        let current = case.instance("m2", InstanceState::Running);
        case.listed(vec![current])
    },
    a_found_machine_is_adopted: {
        [InstanceState::Provisioning, InstanceState::Running]
            .map(|state| Case::claimed().in_state(state).listed(Vec::new()))
    },
    the_provider_only_deletes: Case::managed().delete_only(),
    the_credentials_are_unusable: Case::managed().edit(|observed| {
        observed.surroundings.auth = Auth::Missing("no such Secret".to_owned());
    }),
    the_request_is_checked: Case::managed(),
    the_request_can_not_work: {
        let invalid = || failure(Reason::Invalid("/port".to_owned()));
        let sent = searched().validated(Ok(())).fresh();
        [Case::managed().validated(Err(invalid())), sent.created(Err(invalid()))]
    },
    an_earlier_create_may_still_land: {
        let elsewhere = Case::claimed().edit(|observed| observed.object.planned_id = Some(id("old")));
        elsewhere.absent("old").listed(Vec::new()).validated(Ok(()))
    },
    what_will_be_made_is_written_down: Case::managed().validated(Ok(())),
    the_object_is_looked_at_before_the_create: searched().validated(Ok(())),
    the_machine_is_made: searched().validated(Ok(())).fresh(),
}

#[test]
fn finalizer_hash_and_planned_id_are_one_patch() {
    let case = Case::managed().edit(|observed| observed.object.finalizers = vec!["x/y".to_owned()]);
    let Action::PatchMetadata(patch) = case.validated(Ok(())).decide().action else { panic!() };
    assert_eq!(patch.finalizers, ["x/y", crate::crd::FINALIZER]);
    assert_eq!(patch.spec_hash, Some(Case::managed().hash().annotation()));
    assert_eq!(patch.planned_id, Some(Some(id("m1"))));
    assert_eq!(patch.planned_scope.as_deref(), Some("projects/p"));
}

#[test]
fn the_second_absence_lets_a_create_elsewhere_go_on() {
    let elsewhere = Case::claimed().edit(|observed| observed.object.planned_id = Some(id("old")));
    let first = elsewhere.absent("old").listed(Vec::new());
    let second = first.later(72).next_pass().absent("old").listed(Vec::new()).validated(Ok(()));
    assert_eq!(second.decide().row, "what_will_be_made_is_written_down");
}

#[test]
fn the_request_carries_everything_and_the_same_attempt_key_until_it_is_answered() {
    let request = |case: &Case| {
        let Action::Create { request, .. } = case.decide().action else { panic!("{:?}", case.decide()) };
        request
    };
    let case = searched().validated(Ok(())).fresh();
    let first = request(&case);
    assert_eq!(first.name, "px-u1");
    assert_eq!(first.port, 3128);
    assert_eq!(first.tags.len(), 6);
    assert_eq!(first.attempt_key.len(), 36);
    let again = |reason: Reason| {
        let failed = case.clone().created(Err(failure(reason))).later(2000).next_pass();
        request(&failed.absent("m1").listed(Vec::new()).validated(Ok(())).fresh())
    };
    assert_eq!(again(Reason::Transient).attempt_key, first.attempt_key, "the first one may still land");
    assert_eq!(again(Reason::Host(HostFault::NoPermit)).attempt_key, first.attempt_key, "it was not sent");
    assert_ne!(again(Reason::Quota).attempt_key, first.attempt_key, "the first one has failed");
}

#[test]
fn a_cloud_init_that_is_too_long_is_refused_with_both_lengths_before_any_call() {
    let case = Case::managed().edit(|observed| {
        observed.surroundings.cloud_init = CloudInitView::Resolved(Secret::new("nine byte".to_owned()));
    });
    let Stage::Blocked(reason, message) = case.decide().status.stage else { panic!() };
    assert_eq!(reason, ProvisionedReason::CloudInitError);
    assert!(message.contains("9 bytes") && message.contains("at most 8"), "{message}");
    assert!(!message.contains("nine byte"), "the text may be secret");
}

#[test]
fn a_changed_provider_ends_the_latch() {
    let latched = Case::managed().validated(Err(failure(Reason::Permanent))).written().next_pass();
    let reloaded = latched.provider(crate::lifecycle::ProviderView::Ready(crate::lifecycle::ProviderFacts {
        info: crate::provider::ProviderInfo { config_hash: "c1".to_owned(), ..super::case::info() },
    }));
    assert_eq!(reloaded.decide().row, "the_request_is_checked");
}

#[test]
fn an_incomplete_search_makes_nothing() {
    for reason in [Reason::Transient, Reason::Denied, Reason::Permanent, Reason::OutOfScope] {
        let row = Case::claimed().get_fails(reason.clone()).later(0).decide().row;
        assert_eq!(row, "a_back_off_holds", "{reason:?}");
    }
}

#[test]
fn a_foreign_machine_under_the_planned_name_is_neither_adopted_nor_deleted() {
    let case = Case::claimed();
    let foreign = case.foreign("m1");
    let case = case.found(foreign).listed(Vec::new()).validated(Ok(())).fresh();
    assert_eq!(case.decide().row, "the_machine_is_made", "create says that the name is taken");
    let conflict = case.created(Err(failure(Reason::NameTaken))).decide();
    assert!(
        matches!(conflict.status.stage, Stage::Blocked(ProvisionedReason::NameConflict, _)),
        "{conflict:#?}"
    );
}

#[test]
fn a_look_that_failed_before_an_edit_is_no_absence() {
    let edited = Case::claimed().get_fails(Reason::Transient).edited().listed(Vec::new());
    assert_eq!(edited.decide().row, "a_back_off_holds");
    let unrecorded = Case::claimed().unrecorded().get_fails(Reason::Transient).edited().listed(Vec::new());
    assert_eq!(unrecorded.decide().row, "a_back_off_holds");
}

#[test]
fn a_found_machine_whose_delete_is_under_way_is_waited_for_and_not_adopted() {
    let case = Case::claimed().in_state(InstanceState::Running).delete_sent().listed(Vec::new());
    assert_eq!(case.decide().row, "surplus_machines_are_going");
}

/// Claimed by an earlier process, and no machine can be made.
fn stuck() -> [(&'static str, Case); 2] {
    let (latched, unreadable) = (latched(searched()), unreadable(Case::claimed()));
    [("a_permanent_failure_is_latched", latched), ("the_cloud_init_is_unusable", unreadable)]
}

#[test]
fn what_an_earlier_create_made_is_looked_for_although_no_machine_can_be_made() {
    let policy = crate::lifecycle::Policy::default();
    let settles = Requeue::After(std::time::Duration::from_secs(71));
    for (row, case) in stuck() {
        assert_eq!(case.decide().row, "the_planned_machine_is_looked_at");
        assert_eq!(case.clone().absent("m1").decide().row, "the_machines_of_the_proxy_are_listed");
        let first = case.clone().absent("m1").listed(Vec::new());
        assert_eq!((first.decide().row, first.decide().requeue), (row, settles), "it may come until then");
        let second = first.later(72).next_pass();
        assert_eq!(second.decide().row, "the_planned_machine_is_looked_at");
        let proved = second.absent("m1").listed(Vec::new());
        let rest = if row == "the_cloud_init_is_unusable" {
            Requeue::After(policy.slow_poll)
        } else {
            Requeue::OnChange
        };
        assert_eq!((proved.decide().row, proved.decide().requeue), (row, rest));
        assert_eq!(proved.next_pass().decide().row, row, "and then nobody is asked any more");
        let found = case.in_state(InstanceState::Running).listed(Vec::new());
        assert_eq!(found.decide().row, "a_found_machine_is_adopted");
    }
}

#[test]
fn a_machine_of_another_spec_goes_and_the_latch_stays() {
    let [(_, latched), (_, unreadable)] = stuck();
    let going = of_another_spec(latched.clone()).granted().fresh().delete_sent().decide();
    assert_eq!(going.row, "surplus_machines_are_going");
    assert_eq!(
        (going.status.stage, going.status.latch),
        (Stage::Kept(None), latched.observed.object.status.latch)
    );
    // Where nobody knows what is wanted, one is as good as another.
    assert_eq!(of_another_spec(unreadable).decide().row, "a_found_machine_is_adopted");
}

#[test]
fn a_create_that_is_refused_after_one_without_an_answer_rests_until_that_one_can_not_land() {
    let unanswered = searched().edit(|observed| observed.memory.unanswered_create = true);
    let refused = unanswered.validated(Ok(())).fresh().created(Err(failure(Reason::Permanent)));
    let settles = Requeue::After(std::time::Duration::from_secs(71));
    let decision = refused.decide();
    assert_eq!((decision.row, decision.requeue), ("the_request_can_not_work", settles));
}
