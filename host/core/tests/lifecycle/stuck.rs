//! A Proxy for which no machine can be made, after a create that may still land: what that one makes is named or
//! deleted, never forgotten, and then there is rest.

use std::time::Duration;

use super::cloud::Fate;
use super::operator::{Death, Script, pass};
use super::world::World;

/// What may become of the create.
const FATES: [Fate; 5] = [Fate::Late, Fate::AnswerLost, Fate::LandsThenDenied, Fate::FailsBefore, Fate::Fine];

/// The create was sent, and this became of it.
fn after_a_create(plans_ids: bool, fate: Fate, dies: bool) -> World {
    let mut world = World::new(plans_ids);
    // validate-create, the patch, create
    let death = dies.then_some((2, Death::After));
    pass(&mut world, &Script { fates: vec![Fate::Fine, fate], death, ..Script::default() });
    world
}

/// The spec asks for what can't be had.
fn refuse(world: &mut World, size: u64) {
    world.cluster.edit(|spec| {
        spec.parameters.get_or_insert_default().insert("size".to_owned(), size.into());
    });
}

#[test]
fn a_create_that_lands_after_its_spec_was_refused_is_not_forgotten() {
    let mut found = 0;
    for plans_ids in [true, false] {
        for fate in FATES {
            for dies in [false, true] {
                for later in [0, 5, 40, 65, 300] {
                    let mut world = after_a_create(plans_ids, fate, dies);
                    world.advance(Duration::from_secs(later));
                    refuse(&mut world, 0);
                    world.assert_accounted();
                    found += world.creates();
                    let calls = world.cloud.calls;
                    if world.cloud.live().is_empty() {
                        world.calm(Duration::from_mins(10));
                        assert_eq!(world.cloud.calls, calls, "nothing can come any more\n{}", world.story());
                    }
                    refuse(&mut world, 1);
                    world.assert_settled();
                }
            }
        }
    }
    assert!(found > 50, "only {found} machines came");
}

#[test]
fn a_create_that_lands_after_its_cloud_init_became_unreadable_is_named() {
    for plans_ids in [true, false] {
        for fate in FATES {
            for dies in [false, true] {
                let mut world = after_a_create(plans_ids, fate, dies);
                world.unreadable = true;
                world.run(Duration::from_mins(20));
                world.check_accounted();
                let made = fate != Fate::FailsBefore;
                assert_eq!(world.cloud.live().len(), usize::from(made), "{fate:?} {dies}\n{}", world.story());
                world.assert_settled();
                assert_eq!(world.creates(), 1, "the one that was named is used\n{}", world.story());
            }
        }
    }
}

#[test]
fn a_machine_is_accounted_for_although_the_operator_ends_again_and_again_under_a_latch() {
    for plans_ids in [true, false] {
        for every in [20, 50, 70] {
            let mut world = after_a_create(plans_ids, Fate::Late, false);
            refuse(&mut world, 0);
            for _ in 0..4 {
                world.calm(Duration::from_secs(every));
                (world.memory, world.verdict) = (None, None);
                world.lose_ledger();
            }
            world.assert_accounted();
        }
    }
}
