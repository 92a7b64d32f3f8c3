//! Rows about a machine that status names.

use super::case::Case;
use super::replacing::draining;
use super::rows;
use crate::facts::Auth;
use crate::lifecycle::{Action, CloudInitView, Observed, ProvisionedReason, Refusal, Stage};
use crate::provider::{InstanceState, Reason};

use super::case::failure;

/// The machine is in this state, known from the pass before, and goes.
fn known(case: Case, state: InstanceState) -> [Case; 5] {
    let instance = case.instance("m1", state);
    let known = case.found(instance.clone()).next_pass();
    let asks = matches!(known.decide().action, Action::AskLeave(_));
    (if asks { known.granted() } else { known }).goes(&instance)
}

fn lacks_credentials(observed: &mut Observed) {
    observed.surroundings.auth = Auth::Missing("no such Secret".to_owned());
}

/// Now it lacks our tags.
fn disowned(case: Case) -> Case {
    let foreign = case.foreign("m1");
    case.next_pass().found(foreign)
}

/// The old machine runs, the spec asks for another one.
fn outdated() -> Case {
    Case::published().in_state(InstanceState::Running).edited()
}

rows! {
    the_machine_is_looked_at: Case::published(),
    the_machine_is_not_ours: {
        let case = Case::published();
        let foreign = case.foreign("m1");
        let mut another = foreign.clone();
        another.incarnation = Some(crate::ids::Incarnation::parse("i2").unwrap());
        let hidden = Case::recorded().found(foreign.clone());
        [case.clone().found(foreign).granted(), case.found(another), hidden]
    },
    a_machine_without_our_tags_asks_to_leave: disowned(Case::published()),
    a_machine_without_our_tags_stays: [
        disowned(Case::published()).refused(Refusal::Suspect),
        disowned(Case::published()).refused(Refusal::Capped),
        disowned(draining()).refused(Refusal::Suspect),
    ],
    a_machine_is_adopted: {
        let case = Case::published().edit(|observed| {
            observed.object.spec_hash = None;
            observed.object.finalizers.clear();
        });
        let mut instance = case.instance("m1", InstanceState::Running);
        instance.tags.remove("proxy-operator-spec");
        case.found(instance)
    },
    the_machine_is_being_made: {
        let young = Case::recorded().in_state(InstanceState::Provisioning);
        [young.clone(), young.later(100).next_pass().in_state(InstanceState::Provisioning)]
    },
    the_machine_is_too_slow: {
        let late = Case::recorded().in_state(InstanceState::Provisioning).later(900).next_pass();
        known(late, InstanceState::Provisioning)
    },
    a_running_machine_awaits_its_first_verdict: Case::recorded().in_state(InstanceState::Running),
    the_machine_runs: Case::recorded().in_state(InstanceState::Running).healthy("i1"),
    the_machine_runs_beside_a_problem: {
        let runs = || Case::published().in_state(InstanceState::Running);
        [
            runs().edit(|observed| observed.surroundings.cloud_init = CloudInitView::Problem("no Secret".to_owned())),
            runs().edit(lacks_credentials),
            runs().edited().delete_only(),
        ]
    },
    the_machine_is_stopping: {
        let begins = Case::published().in_state(InstanceState::Stopping).granted();
        [begins.clone(), begins.written().later(100).next_pass().in_state(InstanceState::Stopping)]
    },
    the_machine_stops_for_too_long: {
        let stopping = Case::published().in_state(InstanceState::Stopping).granted().written();
        known(stopping.later(900).next_pass(), InstanceState::Stopping)
    },
    the_machine_is_being_deleted: {
        let seen = Case::published().in_state(InstanceState::Deleting);
        let later = seen.clone().granted().written().later(120).next_pass();
        let again = later.in_state(InstanceState::Deleting).granted();
        [seen.clone().next_pass().granted(), seen.granted(), again.clone(), again.fresh()]
    },
    the_machine_is_stopped: known(Case::published(), InstanceState::Stopped),
    the_machine_has_failed: known(Case::published(), InstanceState::Failed),
    the_delete_of_the_machine_is_under_way: {
        let sent = Case::published().in_state(InstanceState::Running).delete_sent();
        let ignored = |case: Case| {
            let later = case.written().later(6).next_pass();
            later.found(Case::published().instance("m1", InstanceState::Running)).granted()
        };
        let [again, other] = [ignored(sent.clone()), ignored(sent.clone().edited())];
        [sent.clone().next_pass(), sent, again.clone(), again.fresh(), other.fresh()]
    },
    the_new_spec_is_checked: outdated(),
    the_new_spec_can_not_work_the_machine_stays: outdated().validated(Err(failure(Reason::Permanent))),
    the_new_spec_is_latched_the_machine_stays: {
        outdated().validated(Err(failure(Reason::Permanent))).written().next_pass()
    },
    the_spec_needs_another_machine: {
        let instance = Case::published().instance("m1", InstanceState::Running);
        let [known, seen, hidden, looked, _] = outdated().next_pass().validated(Ok(())).goes(&instance);
        [known, seen, hidden, looked]
    },
}

#[test]
fn a_machine_is_hidden_then_looked_at_then_deleted_then_waited_for() {
    let case = outdated().validated(Ok(())).granted();
    assert!(matches!(case.decide().action, Action::WriteStatus(_)));
    let case = case.written();
    assert_eq!(case.observed.object.status.ip, None, "out of reach for clients");
    assert_eq!(case.observed.object.status.provider_id.as_deref(), Some("m1"));
    assert!(matches!(case.decide().action, Action::LookAgain));
    let case = case.fresh();
    assert!(matches!(case.decide().action, Action::Delete { .. }));
    let case = case.delete_sent();
    assert!(matches!(case.decide().action, Action::Wait));
    let polled = case.clone().later(10).next_pass();
    assert!(matches!(polled.decide().action, Action::Get(_) | Action::ValidateCreate { .. }));
}

#[test]
fn a_delete_without_effect_is_repeated_and_one_under_way_is_not() {
    let sent = || Case::published().in_state(InstanceState::Stopped).granted().written().delete_sent();
    let polled =
        |case: Case, seconds, state| case.later(seconds).next_pass().in_state(state).fresh().decide();
    let waits = |case, seconds, state| {
        matches!(polled(case, seconds, state).action, Action::Wait | Action::WriteStatus(_))
    };
    assert!(waits(sent(), 6, InstanceState::Deleting));
    assert!(waits(sent(), 119, InstanceState::Deleting));
    let again = sent().later(6).next_pass().in_state(InstanceState::Stopped).granted().fresh();
    assert!(matches!(again.decide().action, Action::Delete { .. }));
}

#[test]
fn the_tag_decides_then_the_annotation_and_what_nobody_knows_is_adopted() {
    let with = |tag: Option<&str>, annotation: Option<&str>| {
        let case = Case::published().edit(|observed| {
            observed.object.spec_hash = annotation.map(str::to_owned);
        });
        let mut instance = case.instance("m1", InstanceState::Running);
        match tag {
            Some(tag) => instance.tags.insert("proxy-operator-spec".to_owned(), tag.to_owned()),
            None => instance.tags.remove("proxy-operator-spec"),
        };
        case.found(instance).decide().row
    };
    let current = Case::managed().hash();
    let (tag, annotation) = (current.tag(), current.annotation());
    let other = "v1-00000000000000000000000000000000";
    let other_annotation = format!("v1:{}", "0".repeat(64));
    assert_eq!(with(Some(&tag), None), "the_machine_runs");
    assert_eq!(with(Some(&tag), Some(&other_annotation)), "the_machine_runs");
    assert_eq!(with(Some(other), Some(&annotation)), "the_new_spec_is_checked");
    assert_eq!(with(None, Some(&annotation)), "the_machine_runs");
    assert_eq!(with(None, Some(&other_annotation)), "the_new_spec_is_checked");
    assert_eq!(with(None, Some("5d41402abc4b2a76")), "a_machine_is_adopted");
    assert_eq!(with(None, None), "a_machine_is_adopted");
    assert_eq!(with(Some("v9-abc"), Some(&annotation)), "the_machine_runs");
}

#[test]
fn a_fresh_answer_is_not_asked_for_again_when_a_verdict_comes() {
    let case = Case::published().in_state(InstanceState::Running).next_pass().later(20).healthy("i1");
    let decision = case.decide();
    assert!(matches!(decision.action, Action::WriteStatus(_)), "{decision:#?}");
    assert_eq!(case.later(60).decide().row, "the_machine_is_looked_at");
}

#[test]
fn after_three_seconds_a_machine_is_published_without_a_verdict() {
    let case = Case::recorded().in_state(InstanceState::Running).later(4);
    assert_eq!(case.decide().row, "the_machine_runs");
    let unprobed = Case::recorded().in_state(InstanceState::Running).edit(|observed| {
        observed.surroundings.probe_configured = false;
    });
    assert_eq!(unprobed.decide().row, "the_machine_runs");
}

#[test]
fn a_provider_that_only_deletes_replaces_nothing() {
    let decision = outdated().delete_only().decide();
    let Stage::Kept(Some((reason, message))) = decision.status.stage else { panic!("{decision:#?}") };
    assert_eq!(reason, ProvisionedReason::ProviderUnavailable);
    assert!(message.contains("deleteOnly"), "{message}");
}

#[test]
fn a_machine_whose_delete_is_under_way_is_never_shown_again() {
    let sent = || outdated().validated(Ok(())).granted().written().delete_sent();
    let undone = |case: Case| case.edit(|observed| observed.object.spec.port = None);
    let refused = |case: Case| case.validated(Err(failure(Reason::Permanent)));
    for case in [sent(), undone(sent()), refused(sent()), sent().delete_only()] {
        let case = case.later(3).next_pass().in_state(InstanceState::Running);
        let decision = case.decide();
        assert_eq!(decision.row, "the_delete_of_the_machine_is_under_way", "{decision:#?}");
        assert!(case.observed.object.status.ip.is_none());
        if let Action::WriteStatus(status) = decision.action {
            assert_eq!(status.ip, None);
        }
    }
    let other = undone(sent()).later(3).next_pass();
    let mut instance = other.instance("m1", InstanceState::Running);
    instance.incarnation = Some(crate::ids::Incarnation::parse("i2").unwrap());
    assert_ne!(other.found(instance).decide().row, "the_delete_of_the_machine_is_under_way");
}

/// What the decision would write of the generation that it is about; None if it writes nothing.
fn generation_written(case: &Case) -> Option<i64> {
    let action = case.decide().action;
    if let Action::WriteStatus(status) = action {
        return status.observed_generation;
    }
    assert_eq!(action, Action::Wait);
    None
}

#[test]
fn no_status_says_ready_of_a_generation_before_its_machine_is_known_to_fit() {
    let runs = || Case::published().healthy("i1").in_state(InstanceState::Running).written();
    assert_eq!(runs().observed.object.status.observed_generation, Some(1));
    let down = |case: Case| {
        let why =
            crate::lifecycle::ProviderView::Failed { stage: "compile", reason: "not a component".to_owned() };
        case.provider(why)
    };
    let unreadable = |case: Case| {
        case.edit(|observed| {
            observed.surroundings.cloud_init = CloudInitView::Problem("no such Secret".to_owned());
        })
    };
    assert_eq!(generation_written(&down(runs().edited())), Some(1), "the spec asks for another machine");
    assert_eq!(generation_written(&unreadable(runs().edited())), Some(1), "nobody knows what it asks for");
    assert_eq!(generation_written(&runs().edited().delete_only()), Some(1), "no other machine can be made");
    let forgotten = runs().edit(|observed| observed.memory.last_seen = None).next_pass();
    let untouched = |observed: &mut Observed| observed.object.generation = 2;
    assert_eq!(generation_written(&down(forgotten.edit(untouched))), Some(1), "nobody has looked at it");
    assert_eq!(generation_written(&down(runs().edit(untouched))), Some(2), "it still fits");
    let failed = runs().edited().later(60).next_pass().get_fails(Reason::Denied);
    assert_eq!(generation_written(&failed), Some(1));
}

#[test]
fn a_machine_that_ended_says_why_until_it_is_gone() {
    let seen = |case: Case, state, why: Option<&str>| {
        let reason = Reason::Other("Evicted".to_owned());
        let problem = why.map(|text| crate::provider::Failure::new(reason, text));
        let instance = case.instance("m1", state);
        case.found(crate::provider::Instance { problem, ..instance })
    };
    let says = |case: &Case| {
        let Action::WriteStatus(status) = case.decide().action else { panic!("{:#?}", case.decide()) };
        status.conditions[0].message.clone()
    };
    let ended = seen(Case::published(), InstanceState::Stopped, Some("evicted: memory")).granted();
    assert_eq!(says(&ended), "the machine stopped and is made anew; its last problem: evicted: memory");
    // On its way it does not say so any more.
    let going = ended.written().delete_sent().later(6).next_pass();
    let going = seen(going, InstanceState::Deleting, None);
    assert_eq!(
        says(&going),
        "the machine is being deleted and is made anew; its last problem: evicted: memory"
    );
    let other_words =
        seen(going.written().later(6).next_pass(), InstanceState::Deleting, Some("evicted: disk"));
    assert!(matches!(other_words.decide().action, Action::Wait), "{:#?}", other_words.decide());
    // The next one has none of it.
    let next = seen(Case::published(), InstanceState::Stopped, None).granted();
    assert_eq!(says(&next), "the machine stopped and is made anew");
    let stopping = seen(Case::published(), InstanceState::Stopping, Some("preempted")).granted();
    assert_eq!(says(&stopping), "the machine is stopping; its last problem: preempted");
}

#[test]
fn a_failure_that_comes_and_goes_in_other_words_is_written_once() {
    let with = |case: Case, problem: Option<crate::provider::Failure>| {
        let instance = case.instance("m1", InstanceState::Provisioning);
        case.later(5).next_pass().found(crate::provider::Instance { problem, ..instance })
    };
    let says = |reason, text: &str| Some(crate::provider::Failure::new(reason, text));
    let case = with(Case::recorded(), says(Reason::Missing, "rpc error: no such image"));
    let Action::WriteStatus(first) = case.decide().action else { panic!() };
    assert!(first.conditions[0].message.contains("no such image"));
    let mut case = case.written();
    for problem in [says(Reason::Missing, "Back-off pulling the image"), None, says(Reason::Missing, "x")] {
        case = with(case, problem);
        assert!(matches!(case.decide().action, Action::Wait), "{:#?}", case.decide());
    }
    let other = with(case, says(Reason::Capacity, "no node takes it"));
    let Action::WriteStatus(second) = other.decide().action else { panic!() };
    assert_eq!(second.conditions[0].message, "no node takes it");
}

#[test]
fn a_machine_with_a_new_address_is_published_there_even_beside_a_problem() {
    let case = Case::published().edit(|observed| {
        observed.surroundings.cloud_init = CloudInitView::Problem("no such Secret".to_owned());
    });
    let mut instance = case.instance("m1", InstanceState::Running);
    instance.endpoints[0].address = "10.0.0.2".to_owned();
    let Action::WriteStatus(status) = case.found(instance).decide().action else { panic!() };
    assert_eq!(status.ip.as_deref(), Some("10.0.0.2"));
}

#[test]
fn credentials_that_can_not_be_read_are_said_of_a_machine_that_goes_on() {
    let decision = Case::published().in_state(InstanceState::Running).edit(lacks_credentials).decide();
    assert_eq!(decision.row, "the_machine_runs_beside_a_problem");
    assert!(
        matches!(decision.status.stage, Stage::Kept(Some((ProvisionedReason::AuthError, _)))),
        "{:?}",
        decision.status
    );
}
