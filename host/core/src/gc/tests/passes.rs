//! What a pass is made of: lists that fail, are partial, or are missing.

use std::time::Duration;

use super::case::{Case, TEN_MINUTES, key_of, machine, made, proxy};
use super::rows;
use crate::gc::{Proxies, Verdict};

rows! {
    without_all_proxies_nothing_is_deleted_or_remembered: {
        let mut case = Case::new(vec![machine("m", "u1")], vec![]);
        case.pass(Duration::ZERO);
        let before = case.observed.sightings.clone();
        let mut blind = case.proxies(Proxies::Unknown);
        for pass in 1..4 {
            let plan = blind.pass(TEN_MINUTES * pass);
            assert!(plan.removals.is_empty() && plan.verdicts.is_empty() && plan.seen.is_empty(), "{plan:#?}");
            assert_eq!(plan.sightings, before);
        }
    }

    a_provider_that_cannot_be_listed_stops_nobody: {
        let other = made("other", "u2", super::case::CLUSTER, "gcp-us");
        let mut case = Case::new(vec![machine("m", "u1")], vec![]).listing("gcp-us", vec![other]);
        case.pass(Duration::ZERO);
        let mut failing = case.unlisted("gcp");
        let plan = failing.pass(TEN_MINUTES);
        assert_eq!(plan.removed(), ["other"]);
        assert!(!plan.seen.contains_key(&super::case::provider("gcp")));
        // What was seen of it before counts when it answers again.
        let mut again = failing.listing("gcp", vec![machine("m", "u1")]);
        assert!(again.pass(TEN_MINUTES * 2).removed().contains(&"m"));
    }

    an_unreachable_place_hides_only_its_own_machines: {
        let there = machine("there", "u1");
        let hidden = machine("hidden", "u2");
        let mut case = Case::new(vec![there.clone(), hidden.clone()], vec![]);
        case.pass(Duration::ZERO);
        let mut partial = case.partial(vec![there]);
        let plan = partial.pass(TEN_MINUTES);
        assert_eq!(plan.removed(), ["there"]);
        assert!(plan.saw().partial);
        assert!(plan.sightings.get(&key_of("hidden")).is_some(), "unseen is not gone");
        let mut whole = partial.listing("gcp", vec![hidden]);
        let plan = whole.pass(TEN_MINUTES * 2);
        assert_eq!(plan.removed(), ["hidden"]);
        assert!(plan.sightings.get(&key_of("there")).is_none(), "a whole list without it ends the memory");
        // A recorded machine in the hidden place makes no other one surplus.
        let surplus = Case::new(vec![], vec![proxy("u1", Some("hidden"), Some("hidden"))]);
        let plan = surplus.partial(vec![machine("m", "u1")]).second();
        assert_eq!(plan.verdict("m"), Verdict::RecordedUnseen);
    }

    a_provider_that_is_not_ready_is_left_out: {
        let mut case = Case::new(vec![machine("m", "u1")], vec![]);
        case.pass(Duration::ZERO);
        case.observed.machines.clear();
        let plan = case.pass(TEN_MINUTES);
        assert!(plan.removals.is_empty() && plan.seen.is_empty(), "{plan:#?}");
        let mut back = case.listing("gcp", vec![machine("m", "u1")]);
        assert_eq!(back.pass(TEN_MINUTES * 2).verdict("m"), Verdict::FirstSighting);
    }
}
