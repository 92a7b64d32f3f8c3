//! Rows that come before any machine: the API server, the object, the provider, a back-off.

use super::case::{Case, SEEN_APART, failure};
use super::rows;
use crate::crd::FINALIZER;
use crate::facts::Auth;
use crate::lifecycle::pass::ApiState;
use crate::lifecycle::{
    Action, Outcome, ProviderView, ProvisionedReason, Refusal, Requeue, Stage, Written, sending,
};
use crate::provider::{HostFault, InstanceState, Reason};

fn failed() -> ProviderView {
    ProviderView::Failed { stage: "compile", reason: "not a component".to_owned() }
}

/// The metadata were written for another scope than the provider reaches now.
fn elsewhere(case: Case) -> Case {
    case.edit(|observed| observed.object.planned_scope = Some("projects/other".to_owned()))
}

/// The object went while its create was under way, and the answer of that was lost.
fn unanswered() -> Case {
    Case::claimed().created(Err(failure(Reason::Host(HostFault::Deadline)))).later(400).next_pass().gone()
}

rows! {
    the_finalizer_is_removed: Case::claimed().deleted().api(ApiState::FinalizerRemoved),
    the_api_server_fails: Case::claimed().api(ApiState::Trouble).edit(|observed| observed.memory.api_failures = 1),
    the_pass_is_long_enough: Case::managed().edit(|observed| observed.pass.steps = 64),
    the_object_changed_meanwhile: Case::managed().api(ApiState::Conflict),
    the_object_is_gone: Case::published().gone(),
    the_object_is_gone_but_not_its_machine: Case::claimed().gone().unrecorded(),
    a_machine_without_an_object_asks_to_leave: {
        let case = Case::claimed().unrecorded();
        case.in_state(InstanceState::Provisioning).gone()
    },
    a_machine_without_an_object_waits_to_leave: {
        let case = Case::claimed().unrecorded();
        case.in_state(InstanceState::Provisioning).gone().refused(Refusal::Capped)
    },
    the_object_went_during_its_create: {
        let case = Case::claimed().unrecorded();
        case.in_state(InstanceState::Provisioning).gone().granted()
    },
    the_object_is_gone_its_machine_going: {
        let case = Case::claimed().unrecorded();
        case.in_state(InstanceState::Provisioning).gone().delete_sent()
    },
    the_object_is_gone_its_machines_are_listed: unanswered().absent("m1"),
    the_object_is_gone_a_create_may_land: unanswered().absent("m1").listed(Vec::new()),
    the_object_is_gone_and_the_provider_fails: {
        let gone = || Case::claimed().unrecorded().gone();
        let unknown = ProviderView::Unknown(Vec::new());
        let views = [failed(), unknown, ProviderView::Loading].map(|view| gone().provider(view));
        let fails = Case::claimed().unrecorded().get_fails(Reason::Transient);
        [&views[..], &[fails.clone().gone(), fails.edited().gone()]].concat()
    },
    an_external_proxy_has_our_finalizer: {
        Case::external().edit(|observed| observed.object.finalizers = vec!["x/y".to_owned(), FINALIZER.to_owned()])
    },
    an_external_proxy_is_deleted: Case::external().deleted(),
    an_external_proxy_is_probed: Case::external(),
    an_external_proxy_lacks_its_credentials: {
        Case::external().edit(|observed| observed.surroundings.auth = Auth::Missing("no such Secret".to_owned()))
    },
    the_provider_is_loading: {
        let loading = |case: Case| case.provider(ProviderView::Loading);
        [loading(Case::published()), loading(Case::published().deleted())]
    },
    the_provider_is_unavailable: {
        [ProviderView::Unknown(Vec::new()), failed()].map(|view| Case::managed().provider(view))
    },
    the_provider_is_unavailable_the_machine_goes_on: {
        [ProviderView::Unknown(Vec::new()), failed()].map(|view| Case::published().provider(view))
    },
    the_scope_changed: Case::published().edit(|observed| {
        observed.object.status.provider_scope = Some("projects/other".to_owned());
    }),
    a_machine_may_be_in_another_scope: elsewhere(Case::claimed()),
    a_back_off_holds: {
        let fails = |reason| Case::claimed().get_fails(reason);
        [&SEEN_APART.map(fails)[..], &[fails(Reason::Transient).edited()]].concat()
    },
    a_provider_call_waits_for_its_turn: {
        let waits = Case::claimed().get_fails(Reason::Host(HostFault::NoPermit));
        [waits.clone(), waits.edited()]
    },
    a_back_off_holds_the_machine_goes_on: {
        let fails = |reason| Case::published().get_fails(reason);
        [&SEEN_APART.map(fails)[..], &[fails(Reason::Transient).edited()]].concat()
    },
}

#[test]
fn the_finalizers_of_others_survive_the_removal_of_ours() {
    let case = Case::external().edit(|observed| {
        observed.object.finalizers = vec!["x/y".to_owned(), FINALIZER.to_owned()];
    });
    let Action::RemoveFinalizer(patch) = case.decide().action else { panic!() };
    assert_eq!(patch.finalizers, ["x/y"]);
}

#[test]
fn a_create_that_follows_a_machine_that_went_may_land_too() {
    let follows = Case::published().absent("m1").next_pass();
    let case = follows.created(Err(failure(Reason::Host(HostFault::Deadline)))).later(400).next_pass().gone();
    assert!(case.observed.object.recorded_id().is_some(), "the status still names the one before");
    let case = case.absent("m1");
    assert_eq!(case.decide().row, "the_object_is_gone_its_machines_are_listed");
    assert_eq!(case.listed(Vec::new()).decide().row, "the_object_is_gone_a_create_may_land");
}

#[test]
fn only_an_edit_or_a_deletion_ends_a_back_off() {
    let held = Case::claimed().get_fails(Reason::Transient).next_pass();
    assert_eq!(held.decide().row, "a_back_off_holds");
    assert_eq!(held.clone().edited().decide().row, "the_planned_machine_is_looked_at");
    assert_eq!(held.clone().deleted().decide().row, "a_deletion_looks_at_the_machine");
    assert_eq!(held.later(3).decide().row, "the_planned_machine_is_looked_at");
}

#[test]
fn what_only_an_administrator_can_mend_shows_on_a_machine_that_goes_on() {
    let decision = Case::published().get_fails(Reason::Denied).decide();
    assert!(
        matches!(decision.status.stage, Stage::Kept(Some((ProvisionedReason::Denied, _)))),
        "{decision:#?}"
    );
}

#[test]
fn each_class_of_failure_has_its_reason() {
    for (reason, shown) in [
        (Reason::Transient, ProvisionedReason::Retrying),
        (Reason::Throttled, ProvisionedReason::Retrying),
        (Reason::Quota, ProvisionedReason::QuotaExceeded),
        (Reason::Capacity, ProvisionedReason::QuotaExceeded),
        (Reason::Denied, ProvisionedReason::Denied),
        (Reason::Missing, ProvisionedReason::Missing),
        (Reason::NameTaken, ProvisionedReason::NameConflict),
        (Reason::Busy, ProvisionedReason::Retrying),
        (Reason::OutOfScope, ProvisionedReason::OutOfScope),
        (Reason::Permanent, ProvisionedReason::Retrying),
        (Reason::Other("x".to_owned()), ProvisionedReason::Retrying),
        (Reason::Host(HostFault::Trap), ProvisionedReason::Retrying),
    ] {
        let decision = Case::claimed().get_fails(reason.clone()).decide();
        let Stage::Blocked(got, _) = decision.status.stage else { panic!("{reason:?}: {decision:#?}") };
        assert_eq!(got, shown, "{reason:?}");
    }
}

#[test]
fn a_write_that_is_refused_although_nothing_changed_is_not_repeated_at_once() {
    let case = Case::external();
    let Action::WriteStatus(asked) = case.decide().action else { panic!() };
    let refused = case.absorb(Outcome::StatusWritten { asked, result: Written::Conflict });
    assert!(matches!(refused.decide().action, Action::LookAgain));
    let same = Written::Done(Box::new(refused.observed.object.clone()));
    assert_eq!(refused.clone().absorb(Outcome::Looked(same)).decide().row, "the_api_server_fails");
    let mut newer = refused.observed.object.clone();
    newer.resource_version = "2".to_owned();
    let looked = refused.absorb(Outcome::Looked(Written::Done(Box::new(newer))));
    assert!(matches!(looked.decide().action, Action::WriteStatus(_)));
}

#[test]
fn a_missing_permit_does_not_hide_the_trouble_that_there_is() {
    let quota = Case::claimed().created(Err(failure(Reason::Quota))).later(400).next_pass();
    let waiting = quota.get_fails(Reason::Host(HostFault::NoPermit)).decide();
    let Stage::Blocked(reason, _) = waiting.status.stage else { panic!("{waiting:#?}") };
    assert_eq!(reason, ProvisionedReason::QuotaExceeded);
}

#[test]
fn a_call_that_gets_no_permit_again_and_again_asks_more_rarely_until_one_of_its_kind_gets_one() {
    let no_permit = || Reason::Host(HostFault::NoPermit);
    let wait = |case: &Case| {
        let Requeue::After(wait) = case.decide().requeue else { panic!("{:?}", case.decide()) };
        wait.as_secs_f64()
    };
    let about = |wait: f64, full: f64| (full * 0.8..=full).contains(&wait);
    let mut case = Case::claimed();
    for full in [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
        case = case.get_fails(no_permit());
        assert!(about(wait(&case), full), "{full}: {}", wait(&case));
        case = case.later(100).next_pass();
    }
    let got_one = case.clone().get_fails(Reason::Transient).later(100).next_pass();
    assert!(about(wait(&got_one.get_fails(no_permit())), 2.0), "a failure had its permit too");
    let other = case.clone().listed(Vec::new()).next_pass().get_fails(no_permit());
    assert!(about(wait(&other), 60.0), "a list says nothing of looks");
    let same = case.absent("m1").next_pass().get_fails(no_permit());
    assert!(about(wait(&same), 2.0), "{}", wait(&same));
}

#[test]
fn a_machine_without_an_object_is_not_forgotten_while_its_provider_can_not_be_asked() {
    for view in [ProviderView::Loading, failed(), ProviderView::Unknown(Vec::new())] {
        let decision = Case::claimed().unrecorded().gone().provider(view.clone()).decide();
        assert!(matches!(decision.requeue, Requeue::After(_)), "{view:?}: {decision:#?}");
    }
}

/// All creates so far were answered; now one is on its way.
fn sent() -> Case {
    let mut case = Case::claimed().edit(|observed| observed.memory.first_touch = true);
    assert!(case.observed.memory.saw_all_creates_answered());
    let request = case.clone().absent("m1").listed(Vec::new()).validated(Ok(())).fresh().decide().action;
    sending(&mut case.observed, &request);
    assert!(!case.observed.memory.saw_all_creates_answered());
    case
}

#[test]
fn only_a_refusal_that_leaves_no_machine_counts_as_an_answer_to_a_create() {
    for (reason, answered) in [
        (Reason::Host(HostFault::NoPermit), true),
        (Reason::NameTaken, true),
        (Reason::Invalid(String::new()), true),
        (Reason::Permanent, true),
        (Reason::Unsupported, true),
        (Reason::Denied, false),
        (Reason::Missing, false),
        (Reason::Quota, false),
        (Reason::Capacity, false),
        (Reason::Throttled, false),
        (Reason::Busy, false),
        (Reason::OutOfScope, false),
        (Reason::Transient, false),
        (Reason::Other("x".to_owned()), false),
        (Reason::Host(HostFault::Deadline), false),
    ] {
        let case = sent().created(Err(failure(reason.clone())));
        assert_eq!(case.observed.memory.saw_all_creates_answered(), answered, "{reason:?}");
    }
    let sent = sent();
    let made = sent.instance("m1", InstanceState::Provisioning);
    assert!(sent.created(Ok(made)).observed.memory.saw_all_creates_answered());
}

#[test]
fn the_answer_of_a_second_create_is_none_of_the_first_that_never_came_back() {
    let mut case = sent();
    let request = case.clone().absent("m1").listed(Vec::new()).validated(Ok(())).fresh().decide().action;
    sending(&mut case.observed, &request);
    for reason in [Reason::Host(HostFault::NoPermit), Reason::NameTaken] {
        let answered = case.clone().created(Err(failure(reason.clone())));
        assert!(!answered.observed.memory.saw_all_creates_answered(), "{reason:?}");
    }
}

#[test]
fn an_absence_from_before_a_create_does_not_count_after_it() {
    let mut case = Case::claimed().absent("m1").listed(Vec::new()).validated(Ok(())).fresh();
    assert!(case.observed.memory.absent_since.is_some());
    let request = case.decide().action;
    assert!(matches!(request, Action::Create { .. }));
    sending(&mut case.observed, &request);
    assert_eq!(case.observed.memory.absent_since, None);
    // The pass died with its create under way; the object is deleted later than the absences lie apart.
    let deleted = case.later(72).next_pass().deleted().absent("m1").listed(Vec::new());
    assert_eq!(deleted.decide().row, "a_deletion_waits_for_the_second_absence");
}

#[test]
fn a_create_that_may_have_gone_to_another_scope_holds_everything_until_it_is_known_to_be_answered() {
    let answered = |case: Case| case.edit(|observed| observed.memory.first_touch = true);
    let row = |case: Case| case.decide().row;
    assert_eq!(row(elsewhere(Case::claimed()).deleted()), "a_deletion_waits_for_its_scope");
    let unrecorded = elsewhere(Case::claimed()).unrecorded();
    assert_eq!(row(answered(unrecorded.clone())), "a_machine_may_be_in_another_scope");
    let gone = answered(unrecorded).gone().decide();
    assert_eq!((gone.row, gone.requeue), ("the_object_is_gone_and_the_provider_fails", late()));
    assert_eq!(row(answered(elsewhere(Case::claimed()))), "the_planned_machine_is_looked_at");
    assert_eq!(row(elsewhere(Case::published())), "the_machine_is_looked_at", "it is recorded, and here");
}

#[test]
fn the_two_annotations_of_the_plan_removed_by_hand_end_the_waiting_for_another_scope() {
    let stuck = elsewhere(Case::claimed()).decide();
    let Action::WriteStatus(status) = stuck.action else { panic!("{stuck:#?}") };
    let message = &status.conditions.first().unwrap().message;
    for part in ["kubectl annotate px", "crawl.example.com/planned-scope-", "crawl.example.com/planned-id-"] {
        assert!(message.contains(part), "{message}");
    }
    let freed = elsewhere(Case::claimed()).edit(|observed| {
        observed.object.planned_scope = None;
        observed.object.planned_id = None;
    });
    assert_eq!(freed.clone().decide().row, "the_machines_of_the_proxy_are_listed");
    let empty = freed.clone().listed(Vec::new());
    assert_eq!(empty.decide().row, "the_request_is_checked", "it is made as if nothing had been planned");
    let deleted = freed.deleted().listed(Vec::new());
    assert_eq!(deleted.decide().row, "a_deletion_waits_for_the_second_absence");
    let later = deleted.later(72).next_pass().listed(Vec::new());
    assert_eq!(later.decide().row, "nothing_is_left_the_finalizer_goes");
}

fn late() -> Requeue {
    Requeue::After(std::time::Duration::from_mins(10))
}

#[test]
fn an_absence_in_another_scope_does_not_cost_a_recorded_machine_its_name() {
    let case = Case::published().absent("m1").edit(|observed| {
        observed.object.status.provider_scope = Some("projects/other".to_owned());
    });
    let Action::WriteStatus(status) = case.decide().action else { panic!("{:#?}", case.decide()) };
    assert_eq!(status.provider_id.as_deref(), Some("m1"));
}

#[test]
fn an_old_copy_of_the_object_does_not_hide_in_which_scope_this_process_made_a_machine() {
    let case = Case::managed().unrecorded().edit(|observed| {
        if let Some(made) = &mut observed.memory.unrecorded {
            made.scope = Some("projects/other".to_owned());
        }
    });
    assert_eq!(case.decide().row, "a_machine_may_be_in_another_scope");
    assert_eq!(case.gone().decide().row, "the_object_is_gone_and_the_provider_fails");
}

#[test]
fn a_create_without_an_answer_is_waited_for_although_the_object_is_gone() {
    let row = |case: &Case| case.decide().row;
    let first = unanswered();
    assert_eq!(row(&first), "the_object_is_gone_but_not_its_machine", "its planned id is asked");
    let absent = |case: Case| case.absent("m1").listed(Vec::new());
    let settled = absent(absent(first.clone()).later(72).next_pass().gone());
    assert_eq!(row(&settled), "the_object_is_gone");
    // It lands meanwhile, under an id that nobody planned.
    let listed = first.instance("m2", InstanceState::Provisioning);
    let landed = absent(first.clone()).later(40).next_pass().gone().absent("m1").listed(vec![listed.clone()]);
    assert_eq!(row(&landed), "the_object_is_gone_but_not_its_machine");
    let goes = landed.found(listed).granted();
    assert_eq!(row(&goes), "the_object_went_during_its_create");
    // A foreign one is nobody's of ours, and a look that failed no absence.
    let foreign = first.foreign("m1");
    assert_eq!(row(&first.clone().found(foreign)), "the_object_is_gone_its_machines_are_listed");
    assert_eq!(row(&first.get_fails(Reason::Transient)), "the_object_is_gone_and_the_provider_fails");
}

#[test]
fn a_machine_that_stands_in_a_status_is_left_to_garbage_collection_when_its_object_is_gone() {
    let recorded = Case::published().edit(|observed| observed.memory.unanswered_create = true).gone();
    assert_eq!(recorded.decide().row, "the_object_is_gone");
}

#[test]
fn nothing_is_made_for_an_object_whose_finalizer_nobody_confirmed() {
    let asked = Case::managed().validated(Ok(())).fresh();
    assert_eq!(asked.decide().row, "what_will_be_made_is_written_down");
    let lost = asked.absorb(Outcome::MetadataPatched(Written::Failed("timeout".to_owned())));
    assert_eq!(lost.decide().row, "the_api_server_fails");
    // It did not land: it is sent again. It landed: what may have been made is looked for first.
    let again = lost.clone().next_pass().validated(Ok(())).fresh();
    assert_eq!(again.decide().row, "what_will_be_made_is_written_down");
    let landed = lost.next_pass().edit(|observed| observed.object = Case::claimed().observed.object);
    assert_eq!(landed.fresh().decide().row, "the_planned_machine_is_looked_at");
}
