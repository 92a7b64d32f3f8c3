//! What holds in any history of passes, whatever the lists show.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::case::{CLUSTER, Case, at, id, made, provider, proxy};
use crate::gc::{Finding, LivingProxy, MachineKey, Machines, Proxies};
use crate::ids::{Incarnation, ProxyUid};
use crate::provider::{Instance, InstanceState, Listing};

/// What one pass shows.
#[derive(Debug, Clone)]
struct Shown {
    /// Minutes since the pass before.
    after: u64,
    machines: Vec<Instance>,
    listing: ListingKind,
    proxies: Option<BTreeMap<ProxyUid, LivingProxy>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ListingKind {
    Whole,
    Partial,
    Failed,
    NotReady,
}

fn machines() -> impl Strategy<Value = Vec<Instance>> {
    let one = (0..6u8, 0..2u8, 0..10u8, prop::option::of(0..60u64), prop::option::of(0..2u8)).prop_map(
        |(name, of, kind, born, incarnation)| {
            let (cluster, by) = match kind {
                0 => ("another-cluster", "gcp"),
                1 => (CLUSTER, "gcp-us"),
                _ => (CLUSTER, "gcp"),
            };
            let mut machine = made(&format!("m{name}"), &format!("u{of}"), cluster, by);
            match kind {
                2 => drop(machine.tags.remove("proxy-operator-uid")),
                3 => machine.state = InstanceState::Deleting,
                _ => {}
            }
            machine.created_at = born.map(|minutes| at(Duration::from_mins(minutes)).wall);
            machine.incarnation =
                incarnation.and_then(|number| Incarnation::parse(format!("i{number}")).ok());
            machine
        },
    );
    prop::collection::vec(one, 0..14).prop_map(|mut all| {
        let mut seen = BTreeSet::new();
        all.retain(|machine| seen.insert(machine.id.clone()));
        all
    })
}

fn proxies() -> impl Strategy<Value = BTreeMap<ProxyUid, LivingProxy>> {
    let name = || prop::option::weighted(0.85, (0..6u8).prop_map(|name| format!("m{name}")));
    let one =
        (0..5u8, name(), name(), prop::bool::weighted(0.1)).prop_map(|(of, recorded, planned, deleting)| {
            let (uid, facts) = proxy(&format!("u{of}"), recorded.as_deref(), planned.as_deref());
            (uid, LivingProxy { deleting, ..facts })
        });
    prop::collection::vec(one, 0..4).prop_map(|all| all.into_iter().collect())
}

fn history() -> impl Strategy<Value = Vec<Shown>> {
    let listing = prop_oneof![
        6 => Just(ListingKind::Whole),
        2 => Just(ListingKind::Partial),
        1 => Just(ListingKind::Failed),
        1 => Just(ListingKind::NotReady),
    ];
    let shown = (1..20u64, machines(), listing, prop::option::weighted(0.85, proxies()))
        .prop_map(|(after, machines, listing, proxies)| Shown { after, machines, listing, proxies });
    // Most passes show nearly the same: otherwise nothing would ever be seen twice.
    (prop::collection::vec(shown, 1..10), prop::collection::vec(prop::bool::weighted(0.3), 10)).prop_map(
        |(mut all, anew)| {
            for at in 1..all.len() {
                if !anew[at] {
                    all[at].machines = all[at - 1].machines.clone();
                }
                if all[at].proxies.is_some() && !anew[at - 1] && all[at - 1].proxies.is_some() {
                    all[at].proxies = all[at - 1].proxies.clone();
                }
            }
            all
        },
    )
}

fn show(case: &mut Case, shown: &Shown) {
    case.observed.machines.clear();
    let unreachable = if shown.listing == ListingKind::Partial { vec!["z".to_owned()] } else { Vec::new() };
    let listing = Listing { items: shown.machines.clone(), unreachable };
    match shown.listing {
        ListingKind::Whole | ListingKind::Partial => {
            case.observed.machines.insert(provider("gcp"), Machines::Listed(listing));
        }
        ListingKind::Failed => {
            case.observed.machines.insert(provider("gcp"), Machines::Unlisted);
        }
        ListingKind::NotReady => {}
    }
    case.observed.proxies = shown.proxies.clone().map_or(Proxies::Unknown, Proxies::All);
}

/// By its uid tag alone.
fn looks(machine: &Instance, finding: Finding, proxies: &BTreeMap<ProxyUid, LivingProxy>) -> bool {
    let uid = machine.tags.get("proxy-operator-uid");
    let living = proxies.iter().find(|(living, _)| uid.is_some_and(|uid| uid == living.as_str()));
    match finding {
        Finding::Orphan => living.is_none(),
        Finding::Surplus => living.is_some_and(|(_, proxy)| {
            let named = [&proxy.recorded, &proxy.planned];
            !proxy.deleting && named.iter().all(|id| id.as_ref().is_some_and(|id| *id != machine.id))
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_history_makes_a_pass_delete_what_it_must_not(history in history(), limit in 0..5usize) {
        let mut case = Case::new(vec![], vec![]);
        case.policy.max_deletes = limit;
        let mut listed_first = BTreeMap::<MachineKey, Duration>::new();
        let mut sightings = BTreeMap::<(MachineKey, Finding), u32>::new();
        let mut going = BTreeMap::<MachineKey, u32>::new();
        let mut clock = Duration::ZERO;
        for shown in &history {
            clock += Duration::from_mins(shown.after);
            show(&mut case, shown);
            let plan = case.pass(clock);
            prop_assert!(plan.removals.len() <= limit);
            let listed = matches!(shown.listing, ListingKind::Whole | ListingKind::Partial);
            let Some(proxies) = shown.proxies.as_ref().filter(|_| listed) else {
                prop_assert!(plan.removals.is_empty(), "deleted without whole lists: {plan:#?}");
                continue;
            };
            for machine in &shown.machines {
                let key = MachineKey::of(&provider("gcp"), machine);
                listed_first.entry(key.clone()).or_insert(clock);
                let times = going.entry(key.clone()).or_default();
                *times = if machine.state == InstanceState::Deleting { *times + 1 } else { 0 };
                for finding in [Finding::Orphan, Finding::Surplus] {
                    let times = sightings.entry((key.clone(), finding)).or_default();
                    *times = if looks(machine, finding, proxies) { *times + 1 } else { 0 };
                }
            }
            for removal in &plan.removals {
                let machine = shown.machines.iter().find(|it| it.id == removal.machine.id).unwrap();
                let tag = |key: &str| machine.tags.get(key).map(String::as_str);
                prop_assert_eq!(tag("proxy-operator-cluster"), Some(CLUSTER));
                prop_assert_eq!(tag("proxy-operator-provider"), Some("gcp"));
                prop_assert_eq!(tag("proxy-operator-uid"), Some(removal.uid.as_str()));
                let times = going[&removal.machine];
                prop_assert_eq!(removal.again, times > 0);
                prop_assert!(times != 1, "deleted again although it was seen going once");
                match (removal.finding, proxies.get(&removal.uid)) {
                    (Finding::Orphan, living) => prop_assert!(living.is_none(), "its uid lives"),
                    (Finding::Surplus, None) => prop_assert!(false, "surplus of nobody"),
                    (Finding::Surplus, Some(proxy)) => {
                        let named = [&proxy.recorded, &proxy.planned];
                        prop_assert!(!proxy.deleting && named.iter().all(|it| it.is_some()));
                        prop_assert!(!named.contains(&&Some(id(machine.id.as_str()))));
                        let recorded = shown.machines.iter().find(|it| Some(&it.id) == proxy.recorded.as_ref());
                        prop_assert!(recorded.is_some_and(|it| it.state != InstanceState::Deleting));
                    }
                }
                let times = sightings[&(removal.machine.clone(), removal.finding)];
                prop_assert!(times >= 2, "deleted at the first sighting");
                let known_for = clock.saturating_sub(listed_first[&removal.machine]);
                let age = machine.created_at.map_or(known_for, |born| {
                    Duration::try_from(at(clock).wall.duration_since(born)).unwrap_or_default()
                });
                prop_assert!(age >= case.policy.min_age, "deleted at the age of {age:?}");
            }
        }
    }

    #[test]
    fn the_order_of_a_list_changes_nothing(history in history()) {
        let (mut one, mut other) = (Case::new(vec![], vec![]), Case::new(vec![], vec![]));
        let mut clock = Duration::ZERO;
        for shown in &history {
            clock += Duration::from_mins(shown.after);
            show(&mut one, shown);
            let mut reversed = shown.clone();
            reversed.machines.reverse();
            show(&mut other, &reversed);
            prop_assert_eq!(one.pass(clock), other.pass(clock));
        }
    }
}

#[test]
fn histories_do_delete() {
    // Otherwise the properties above would hold of nothing.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut deleted = BTreeMap::<Finding, usize>::new();
    for _ in 0..300 {
        let history = history().new_tree(&mut runner).unwrap().current();
        let mut case = Case::new(vec![], vec![]);
        let mut clock = Duration::ZERO;
        for shown in &history {
            clock += Duration::from_mins(shown.after);
            show(&mut case, shown);
            for removal in case.pass(clock).removals {
                *deleted.entry(removal.finding).or_default() += 1;
            }
        }
    }
    assert!(deleted.len() == 2 && deleted.values().all(|count| *count >= 3), "{deleted:?}");
}
