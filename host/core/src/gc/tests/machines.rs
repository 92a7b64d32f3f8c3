//! What becomes of a machine: the second of two passes unless the row is about the first.

use std::time::Duration;

use super::case::{Case, TEN_MINUTES, at, key_of, machine, made, proxy};
use super::rows;
use crate::gc::{Finding, Plan, Verdict, untagged};
use crate::ids::{Incarnation, ProxyKey};
use crate::provider::{Instance, InstanceState, Listing};

fn stays(plan: &Plan, machine: &str, verdict: Verdict, row: &str) {
    assert_eq!(plan.verdict(machine), verdict);
    assert_eq!(verdict.row(), row);
    assert!(!plan.removed().contains(&machine), "{plan:#?}");
}

fn row_of_going() -> &'static str {
    Verdict::Going.row()
}

/// Abandoned ones among those of living Proxies, so that no suspicion arises.
fn fleet(living: usize, mut abandoned: Vec<Instance>) -> Case {
    let names: Vec<String> = (0..living).map(|number| format!("living-{number}")).collect();
    abandoned.extend(names.iter().map(|name| machine(name, name)));
    let proxies = names.iter().map(|name| proxy(name, Some(name), Some(name))).collect();
    Case::new(abandoned, proxies)
}

rows! {
    a_machine_of_another_cluster_or_provider_is_never_ours: {
        let theirs = made("theirs", "u1", "another-cluster", "gcp");
        let others = made("others", "u2", super::case::CLUSTER, "gcp-us");
        let plan = Case::new(vec![theirs, others], vec![]).second();
        for name in ["theirs", "others"] {
            stays(&plan, name, Verdict::NotOurs, "a_machine_of_another_cluster_or_provider_is_never_ours");
        }
        assert_eq!(plan.saw().owned, 0);
        assert!(plan.sightings.is_empty());
    }

    a_machine_without_a_uid_is_never_touched: {
        let mut half = machine("half", "u1");
        half.tags.remove("proxy-operator-uid");
        let mut odd = machine("odd", "u2");
        odd.tags.insert("proxy-operator-uid".to_owned(), "Not_A_Uid".to_owned());
        let plan = Case::new(vec![half.clone(), odd], vec![]).second();
        for name in ["half", "odd"] {
            stays(&plan, name, Verdict::NoUid, "a_machine_without_a_uid_is_never_touched");
        }
        // Counted are those that say of nobody that they are theirs, whatever cluster that would be.
        let mut bare = machine("bare", "u3");
        bare.tags.clear();
        let mut foreign = bare.clone();
        foreign.name = "web-1".to_owned();
        let theirs = made("theirs", "u4", "another-cluster", "gcp");
        let listing = Listing { items: vec![half, bare, foreign, theirs], unreachable: Vec::new() };
        assert_eq!(untagged(&listing), 2);
    }

    a_machine_outside_the_watched_namespaces_is_left_alone: {
        let case = Case::new(vec![machine("m", "u1")], vec![]);
        let plan = case.clone().namespaces(&["elsewhere", "other"]).second();
        stays(&plan, "m", Verdict::OutOfView, "a_machine_outside_the_watched_namespaces_is_left_alone");
        assert_eq!(case.namespaces(&["elsewhere", "crawl"]).second().removed(), ["m"]);
    }

    a_machine_that_is_being_deleted_is_left_to_it: {
        let mut going = machine("m", "u1");
        going.state = InstanceState::Deleting;
        let row = "a_machine_that_is_being_deleted_is_left_to_it";
        let mut case = Case::new(vec![machine("m", "u1")], vec![]);
        case.pass(Duration::ZERO);
        // Seen going once: whoever deletes it may be in the middle of it.
        let mut case = case.listing("gcp", vec![going.clone()]);
        let plan = case.pass(TEN_MINUTES);
        stays(&plan, "m", Verdict::Going, row);
        assert_eq!((plan.saw().owned, plan.saw().stuck), (0, 0));
        // Its Proxy exists: for however long it takes, that is the lifecycle's.
        for named in ["m", "other"] {
            let of = vec![proxy("u1", Some(named), Some(named))];
            let mut case = Case::new(vec![going.clone()], of);
            case.pass(Duration::ZERO);
            case.pass(TEN_MINUTES);
            stays(&case.pass(TEN_MINUTES * 2), "m", Verdict::Going, row);
        }
    }

    a_delete_that_hangs_is_asked_for_again: {
        let row = "a_delete_that_hangs_is_asked_for_again";
        let mut going = machine("m", "u1");
        going.state = InstanceState::Deleting;
        let mut case = Case::new(vec![going.clone()], vec![]);
        case.pass(Duration::ZERO);
        for pass in 1..4 {
            let plan = case.pass(TEN_MINUTES * pass);
            assert_eq!((plan.verdict("m"), Verdict::DeleteAgain.row()), (Verdict::DeleteAgain, row));
            assert!(plan.removals[0].again && plan.removals[0].target.incarnation == going.incarnation);
            assert_eq!((plan.saw().stuck, plan.saw().orphans, plan.saw().owned), (1, 0, 0));
        }
        // Surplus ones as well.
        let of = vec![proxy("u1", Some("other"), Some("other"))];
        let plan = Case::new(vec![going.clone(), machine("other", "u1")], of).second();
        assert_eq!(plan.verdict("m"), Verdict::DeleteAgain);
        // Going, and another one: twice seen is none of them.
        let mut case = Case::new(vec![going.clone()], vec![]);
        case.pass(Duration::ZERO);
        going.incarnation = Incarnation::parse("m-2").ok();
        stays(&case.listing("gcp", vec![going.clone()]).pass(TEN_MINUTES), "m", Verdict::Going, row_of_going());
        // Young or suspected ones wait like any other.
        going.created_at = Some(at(TEN_MINUTES).wall);
        let young = Case::new(vec![going.clone()], vec![]).second();
        stays(&young, "m", Verdict::Young, "a_young_machine_waits");
        going.created_at = machine("m", "u1").created_at;
        let mut all: Vec<Instance> = (0..5).map(|n| machine(&format!("m{n}"), &format!("u{n}"))).collect();
        all.push(going);
        assert_eq!(Case::new(all, vec![]).second().verdict("m"), Verdict::Suspected);
    }

    the_finalizer_owns_the_deletion: {
        for named in [Some("m"), Some("other"), None] {
            let mut deleting = proxy("u1", named, named);
            deleting.1.deleting = true;
            let plan = Case::new(vec![machine("m", "u1"), machine("other", "u1")], vec![deleting]).second();
            stays(&plan, "m", Verdict::ProxyDeleting, "the_finalizer_owns_the_deletion");
        }
    }

    a_machine_of_a_living_proxy_stays: {
        // The last four: what a list may show between the create and the status that names the machine.
        for (recorded, planned) in [
            (Some("m"), Some("m")),
            (Some("m"), Some("other")),
            (Some("m"), None),
            (Some("other"), Some("m")),
            (None, Some("m")),
            (None, Some("other")),
            (None, None),
            (Some("other"), None),
        ] {
            let machines = vec![machine("m", "u1"), machine("other", "u1")];
            let plan = Case::new(machines, vec![proxy("u1", recorded, planned)]).second();
            stays(&plan, "m", Verdict::Named, "a_machine_of_a_living_proxy_stays");
            assert_eq!(plan.saw().orphans, 0);
        }
        // A name is no identity: the Proxy was deleted and made anew.
        let plan = Case::new(vec![machine("m", "u1")], vec![proxy("u2", Some("m"), Some("m"))]).second();
        assert_eq!(plan.verdict("m"), Verdict::DeleteOrphan);
    }

    the_recorded_machine_is_unseen_so_nothing_is_surplus: {
        let case = Case::new(vec![machine("m", "u1")], vec![proxy("u1", Some("other"), Some("other"))]);
        let row = "the_recorded_machine_is_unseen_so_nothing_is_surplus";
        stays(&case.second(), "m", Verdict::RecordedUnseen, row);
        // It was listed, and serves nobody any more: the lifecycle may be about to adopt the other one.
        for state in [InstanceState::Deleting, InstanceState::Failed, InstanceState::Stopped, InstanceState::Stopping] {
            let mut recorded = machine("other", "u1");
            recorded.state = state;
            let machines = vec![machine("m", "u1"), recorded];
            let proxies = vec![proxy("u1", Some("other"), Some("other"))];
            stays(&Case::new(machines, proxies).second(), "m", Verdict::RecordedUnseen, row);
        }
        // A machine of somebody else under the recorded id is not the recorded machine.
        let machines = vec![machine("m", "u1"), machine("other", "u2")];
        let proxies = vec![proxy("u1", Some("other"), Some("other")), proxy("u2", Some("other"), None)];
        stays(&Case::new(machines, proxies).second(), "m", Verdict::RecordedUnseen, row);
    }

    the_first_sighting_is_only_remembered: {
        let mut case = Case::new(vec![machine("m", "u1")], vec![]);
        let row = "the_first_sighting_is_only_remembered";
        stays(&case.pass(Duration::ZERO), "m", Verdict::FirstSighting, row);
        assert_eq!(case.observed.sightings.get(&key_of("m")).unwrap().passes, 1);
        // Made anew under the same id it is another machine.
        let mut anew = machine("m", "u1");
        anew.incarnation = Incarnation::parse("m-2").ok();
        let mut case = case.listing("gcp", vec![anew]);
        stays(&case.pass(TEN_MINUTES), "m", Verdict::FirstSighting, row);
        assert_eq!(case.observed.sightings.len(), 1, "the one before is forgotten");
        // Seen as one thing and then as another, neither was seen twice.
        let both = vec![machine("m", "u1"), machine("other", "u1")];
        let mut case = Case::new(both.clone(), vec![proxy("u1", Some("other"), Some("other"))]);
        assert_eq!(case.pass(Duration::ZERO).saw().surplus, 1);
        let mut orphaned = case.proxies(crate::gc::Proxies::All(Default::default()));
        stays(&orphaned.pass(TEN_MINUTES), "m", Verdict::FirstSighting, row);
        // In between its Proxy was there.
        let mut case = Case::new(vec![machine("m", "u1")], vec![]);
        case.pass(Duration::ZERO);
        let mut named = case.proxies(crate::gc::Proxies::All([proxy("u1", None, None)].into()));
        named.pass(TEN_MINUTES);
        let mut case = named.proxies(crate::gc::Proxies::All(Default::default()));
        stays(&case.pass(TEN_MINUTES * 2), "m", Verdict::FirstSighting, row);
    }

    a_young_machine_waits: {
        let row = "a_young_machine_waits";
        let mut young = machine("m", "u1");
        young.created_at = Some(at(Duration::from_secs(1)).wall);
        let mut case = Case::new(vec![young], vec![]);
        case.pass(Duration::ZERO);
        stays(&case.pass(TEN_MINUTES), "m", Verdict::Young, row);
        assert_eq!(case.pass(TEN_MINUTES + Duration::from_secs(1)).removed(), ["m"]);
        // Of unknown age: it counts from the first sighting.
        let mut unknown = machine("m", "u1");
        unknown.created_at = None;
        let mut case = Case::new(vec![unknown], vec![]);
        case.pass(Duration::from_mins(1));
        stays(&case.pass(TEN_MINUTES), "m", Verdict::Young, row);
        assert_eq!(case.pass(Duration::from_mins(11)).removed(), ["m"]);
        // Born in the future: one of the clocks is wrong.
        let mut unborn = machine("m", "u1");
        unborn.created_at = Some(at(Duration::from_hours(9)).wall);
        stays(&Case::new(vec![unborn], vec![]).second(), "m", Verdict::Young, row);
    }

    nearly_all_look_abandoned_so_the_observer_is_suspected: {
        let row = "nearly_all_look_abandoned_so_the_observer_is_suspected";
        let orphans = |count: usize| -> Vec<Instance> {
            (0..count).map(|number| machine(&format!("m{number}"), &format!("u{number}"))).collect()
        };
        let plan = fleet(0, orphans(5)).second();
        stays(&plan, "m0", Verdict::Suspected, row);
        assert!(plan.saw().suspected && plan.removals.is_empty(), "{plan:#?}");
        assert!(fleet(1, orphans(5)).second().saw().suspected, "5 of 6 are more than 80 %");
        assert_eq!(fleet(2, orphans(8)).second().removed().len(), 8, "8 of 10 are not");
        assert_eq!(fleet(0, orphans(4)).second().removed().len(), 4, "few prove nothing");
        let told = fleet(0, orphans(5)).policy(|policy| policy.suspect_percent = 100);
        assert_eq!(told.second().removed().len(), 5);
        // Those of one provider say nothing of another.
        let other = made("other", "u9", super::case::CLUSTER, "gcp-us");
        assert_eq!(fleet(0, orphans(5)).listing("gcp-us", vec![other]).second().removed(), ["other"]);
    }

    beyond_the_limit_it_waits_for_the_next_pass: {
        let row = "beyond_the_limit_it_waits_for_the_next_pass";
        let aged = |name: &str, minutes: u64| {
            let mut machine = machine(name, name);
            machine.created_at = Some(at(Duration::from_mins(minutes)).wall);
            machine
        };
        let mut unknown = machine("of-unknown-age", "x");
        unknown.created_at = None;
        let orphans = vec![aged("youngest", 3), aged("oldest", 1), aged("middle", 2), unknown];
        let mut case = fleet(9, orphans).policy(|policy| policy.max_deletes = 2);
        case.pass(Duration::from_mins(4));
        let plan = case.pass(Duration::from_mins(30));
        assert_eq!(plan.removed(), ["oldest", "middle"]);
        stays(&plan, "youngest", Verdict::PutOff, row);
        stays(&plan, "of-unknown-age", Verdict::PutOff, row);
        // Those whose delete was begun and did not work come last, so that they keep nobody waiting.
        for name in ["oldest", "middle"] {
            case.observed.sightings.tried(&key_of(name));
        }
        assert_eq!(case.pass(Duration::from_mins(40)).removed(), ["youngest", "of-unknown-age"]);
        let none = case.policy(|policy| policy.max_deletes = 0).pass(Duration::from_mins(50));
        assert_eq!((none.removals.len(), none.saw().orphans), (0, 4));
    }

    an_orphan_is_deleted: {
        let plan = Case::new(vec![machine("m", "u1")], vec![proxy("u2", Some("n"), None)]).second();
        assert_eq!(plan.verdict("m"), Verdict::DeleteOrphan);
        assert_eq!(Verdict::DeleteOrphan.row(), "an_orphan_is_deleted");
        let removal = &plan.removals[0];
        assert_eq!(removal.finding, Finding::Orphan);
        assert_eq!(removal.proxy, Some(ProxyKey::new("crawl", "proxy-u1")));
        assert_eq!(removal.target.incarnation, machine("m", "u1").incarnation);
        let owner: Vec<&str> = removal.target.owner.keys().map(String::as_str).collect();
        assert_eq!(owner, ["proxy-operator-cluster", "proxy-operator-uid"]);
        // Where the tags hold a shortened name, or may, only a list can tell whether the Proxy is gone.
        let mut shortened = machine("m", "u1");
        shortened.tags.insert("proxy-operator-name".to_owned(), "a-b-0123456789ab".to_owned());
        assert_eq!(Case::new(vec![shortened], vec![]).second().removals[0].proxy, None);
    }

    a_surplus_machine_is_deleted: {
        let machines = vec![machine("m", "u1"), machine("other", "u1")];
        let case = Case::new(machines, vec![proxy("u1", Some("other"), Some("other"))]);
        let plan = case.clone().second();
        assert_eq!(plan.verdict("m"), Verdict::DeleteSurplus);
        assert_eq!(Verdict::DeleteSurplus.row(), "a_surplus_machine_is_deleted");
        assert_eq!(plan.verdict("other"), Verdict::Named);
        assert_eq!((plan.removals[0].finding, plan.saw().surplus), (Finding::Surplus, 1));
        // A Proxy of another provider says nothing about this one's machines.
        let (uid, mut moved) = proxy("u1", Some("other"), Some("other"));
        moved.provider = Some(super::case::provider("gcp-us"));
        let moved = case.proxies(crate::gc::Proxies::All([(uid, moved)].into())).second();
        assert_eq!(moved.verdict("m"), Verdict::Named);
    }
}
