//! What is promised of a machine whatever happens around it: nobody else's is touched, an outage harms none,
//! and none is lost from sight because the provider looks somewhere else.

use std::time::Duration;

use egress_proxies_core::crd::{Phase, ProxyStatus};

use super::cloud::{Fate, LIST_LAG, LONGEST_CALL};
use super::operator::{Death, Registry, Script, pass};
use super::world::World;

/// Where the machine of the Proxy would be.
const PLANNED: &str = "zones/z0/px-11111111-2222-3333-4444-555555555555";

fn status(world: &World) -> ProxyStatus {
    world.cluster.live().and_then(|proxy| proxy.status.clone()).unwrap_or_default()
}

#[test]
fn a_machine_of_somebody_else_under_our_name_is_neither_used_nor_deleted() {
    for plans_ids in [true, false] {
        let mut world = World::new(plans_ids);
        world.cloud.plant(PLANNED);
        world.calm(Duration::from_hours(2));
        assert_eq!((world.creates(), status(&world).ip), (0, None), "{}", world.story());
        assert_eq!(status(&world).reason.as_deref(), Some("NameConflict"));
        world.cloud.unplant(PLANNED);
        world.assert_settled();
        world.cloud.vanish();
        world.cloud.plant(PLANNED);
        world.calm(Duration::from_hours(2));
        world.cluster.delete(world.now().wall);
        world.assert_settled();
        world.cloud.unplant(PLANNED);
        assert!(world.cluster.live().is_none(), "{}", world.story());
        assert!(!plans_ids || world.told.len() == 1, "the name was planned, so it is told");
    }
}

/// A machine at rest loses its tags; the operator may see it before, or begin anew after, the Proxy is deleted.
fn without_tags(plans_ids: bool, noticed: bool, restarted: bool) -> World {
    let mut world = World::new(plans_ids);
    world.calm(Duration::from_mins(1));
    world.cloud.tag(false);
    if noticed {
        world.calm(Duration::from_mins(3));
        assert_eq!(status(&world).reason.as_deref(), Some("NameConflict"));
    }
    world.cluster.delete(world.now().wall);
    if restarted {
        (world.memory, world.verdict) = (None, None);
    }
    world
}

#[test]
fn a_machine_whose_tags_were_taken_is_told_before_its_proxy_goes_without_it() {
    for plans_ids in [true, false] {
        for (noticed, restarted) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut world = without_tags(plans_ids, noticed, restarted);
            world.calm(LONGEST_CALL + LIST_LAG);
            assert!(world.cluster.live().is_some(), "one look may be wrong\n{}", world.story());
            assert_eq!(status(&world).reason.as_deref(), Some("NameConflict"), "{}", world.story());
            world.assert_settled();
            assert!(world.cluster.live().is_none(), "it never goes\n{}", world.story());
            assert_eq!(world.told.len(), 1);
            world.cloud.tag(true);
            assert_eq!(world.cloud.live(), world.told, "it is neither deleted nor forgotten");
        }
    }
}

#[test]
fn a_machine_that_is_not_seen_to_be_ours_for_a_moment_goes_with_its_proxy() {
    for plans_ids in [true, false] {
        for (noticed, restarted) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut world = without_tags(plans_ids, noticed, restarted);
            world.calm(Duration::from_secs(30));
            world.cloud.tag(true);
            world.assert_settled();
            assert!(world.cluster.live().is_none(), "it never goes\n{}", world.story());
            world.check_nothing_left();
            assert_eq!(world.told, []);
        }
    }
}

/// An hour of passes in which the provider answers like this.
fn hour(world: &mut World, registry: Registry, fate: Fate) {
    for _ in 0..120 {
        world.registry = registry;
        pass(world, &Script { fates: vec![fate], ..Script::default() });
        world.probe();
        world.advance(Duration::from_secs(30));
    }
}

#[test]
fn an_outage_of_whatever_the_operator_needs_costs_no_machine_its_place() {
    let outages = [
        (Registry::Loading, Fate::Fine, false),
        (Registry::Failed, Fate::Fine, false),
        (Registry::Unknown, Fate::Fine, false),
        (Registry::Ready, Fate::FailsBefore, false),
        (Registry::Ready, Fate::AnswerLost, false),
        (Registry::Ready, Fate::Denied, false),
        (Registry::Ready, Fate::Quota, false),
        (Registry::Ready, Fate::NoPermit, false),
        (Registry::Ready, Fate::Partial, false),
        (Registry::Ready, Fate::Fine, true),
    ];
    for (registry, fate, unreadable) in outages {
        for edited in [false, true] {
            for restarted in [false, true] {
                let mut world = World::new(true);
                world.calm(Duration::from_mins(1));
                let before = status(&world);
                assert_eq!(before.phase, Phase::Ready);
                world.unreadable = unreadable;
                if restarted {
                    (world.memory, world.verdict) = (None, None);
                }
                if edited {
                    let zone = Some("z1".to_owned());
                    world.cluster.edit(|spec| spec.placement.get_or_insert_default().zone = zone);
                }
                hour(&mut world, registry, fate);
                let after = status(&world);
                let place =
                    |status: &ProxyStatus| (status.phase, status.ip.clone(), status.incarnation.clone());
                assert_eq!(
                    place(&after),
                    place(&before),
                    "{registry:?} {fate:?} {edited}\n{}",
                    world.story()
                );
                assert_eq!(after.observed_generation, Some(1), "{registry:?} {fate:?} {edited}");
                assert_eq!((world.cloud.live().len(), world.creates()), (1, 1));
                world.assert_settled();
            }
        }
    }
}

#[test]
fn a_create_that_may_have_landed_in_another_account_is_neither_repeated_here_nor_forgotten() {
    for plans_ids in [true, false] {
        for fate in [Fate::Fine, Fate::AnswerLost, Fate::Late, Fate::LandsThenDenied, Fate::FailsBefore] {
            for effect in 0..7 {
                for death in [Death::Before, Death::After, Death::Pass] {
                    for deleted in [false, true] {
                        let mut world = World::new(plans_ids);
                        let death = Some((effect, death));
                        pass(
                            &mut world,
                            &Script { fates: vec![Fate::Fine, fate], death, ..Script::default() },
                        );
                        world.switch_scope();
                        if deleted {
                            world.cluster.delete(world.now().wall);
                        }
                        world.calm(Duration::from_hours(1));
                        assert!(world.creates() <= 1, "{}", world.story());
                        world.return_to_scope();
                        world.assert_settled();
                    }
                }
            }
        }
    }
}

#[test]
fn an_old_copy_of_the_object_makes_no_second_machine_in_another_account() {
    for plans_ids in [true, false] {
        for behind in 0..4 {
            let mut world = World::new(plans_ids);
            // The status write that would name the machine fails.
            pass(&mut world, &Script { api: vec![Fate::Fine, Fate::FailsBefore], ..Script::default() });
            assert_eq!(world.creates(), 1);
            world.switch_scope();
            for _ in 0..3 {
                pass(&mut world, &Script { behind, ..Script::default() });
            }
            world.calm(Duration::from_hours(1));
            assert_eq!(world.creates(), 1, "{}", world.story());
            world.return_to_scope();
            world.assert_settled();
        }
    }
}
