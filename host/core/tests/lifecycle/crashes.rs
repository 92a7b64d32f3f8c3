//! The operator dies at every effect of every way through the lifecycle, before the effect and after it,
//! and each answer is lost or late. The end is always the same.

use std::time::Duration;

use egress_proxies_core::crd::ABANDON_ANNOTATION;

use super::cloud::Fate;
use super::operator::{Death, End, Registry, Script, pass};
use super::world::World;

/// A way through the lifecycle that starts from a world at rest.
type Way = (&'static str, fn(&mut World));

const WAYS: [Way; 8] = [
    ("first create", |_| {}),
    ("another zone", |world| {
        world.calm(Duration::from_mins(1));
        world.cluster.edit(|spec| spec.placement.get_or_insert_default().zone = Some("z1".to_owned()));
    }),
    ("another parameter", |world| {
        world.calm(Duration::from_mins(1));
        world.cluster.edit(|spec| {
            spec.parameters.get_or_insert_default().insert("size".to_owned(), 2.into());
        });
    }),
    ("another parameter, with a lease", |world| {
        world.calm(Duration::from_mins(1));
        world.leases = 1;
        world.cluster.edit(|spec| {
            spec.parameters.get_or_insert_default().insert("size".to_owned(), 2.into());
        });
    }),
    ("asked for by a person", |world| {
        world.calm(Duration::from_mins(1));
        world.cluster.annotate("crawl.example.com/replace", Some("1"));
    }),
    ("vanished", |world| {
        world.calm(Duration::from_mins(1));
        world.cloud.vanish();
        world.advance(Duration::from_mins(1));
    }),
    ("stopped", |world| {
        world.calm(Duration::from_mins(1));
        world.cloud.stop();
        world.advance(Duration::from_mins(1));
    }),
    ("deletion", |world| {
        world.calm(Duration::from_mins(1));
        world.cluster.delete(world.now().wall);
    }),
];

/// Passes in a row, each with the same script, some seconds apart.
fn run(world: &mut World, script: &Script, passes: u32) -> bool {
    let mut died = false;
    for _ in 0..passes {
        if pass(world, script) == End::Died {
            died = true;
        }
        world.probe();
        world.advance(Duration::from_secs(3));
    }
    died
}

#[test]
fn a_death_at_any_effect_changes_nothing_in_the_end() {
    let mut deaths = 0;
    for plans_ids in [true, false] {
        for (name, way) in WAYS {
            for death in [Death::Before, Death::After, Death::Pass] {
                for effect in 0..12 {
                    for repeats in [1, 2] {
                        let mut world = World::new(plans_ids);
                        way(&mut world);
                        world.rows.push(name);
                        let script = Script { death: Some((effect, death)), ..Script::default() };
                        deaths += u32::from(run(&mut world, &script, repeats));
                        world.assert_settled();
                    }
                }
            }
        }
    }
    assert!(deaths > 100, "only {deaths} deaths: the ways are shorter than thought");
}

#[test]
fn a_person_gets_exactly_one_new_machine_whenever_the_operator_dies() {
    let mut deaths = 0;
    for plans_ids in [true, false] {
        for death in [Death::Before, Death::After, Death::Pass] {
            for effect in 0..12 {
                for fate in [Fate::Fine, Fate::AnswerLost, Fate::Late] {
                    let mut world = World::new(plans_ids);
                    world.calm(Duration::from_mins(1));
                    world.cluster.annotate("crawl.example.com/replace", Some("1"));
                    let fates = vec![Fate::Fine, fate, Fate::Fine];
                    let script = Script { death: Some((effect, death)), fates, ..Script::default() };
                    deaths += u32::from(run(&mut world, &script, 12));
                    world.assert_settled();
                    assert_eq!(world.creates(), 2, "{death:?} {effect} {fate:?}\n{}", world.story());
                    // The same value asks for no further one, another value does.
                    world.cluster.annotate("crawl.example.com/replace", Some("2"));
                    world.assert_settled();
                    assert_eq!(world.creates(), 3, "{}", world.story());
                }
            }
        }
    }
    assert!(deaths > 50, "only {deaths} deaths");
}

#[test]
fn a_death_then_a_deletion_leaves_nothing_behind() {
    for (name, way) in WAYS {
        for effect in 0..12 {
            for death in [Death::Before, Death::After, Death::Pass] {
                let mut world = World::new(true);
                way(&mut world);
                world.rows.push(name);
                run(&mut world, &Script { death: Some((effect, death)), ..Script::default() }, 1);
                world.cluster.delete(world.now().wall);
                world.assert_settled();
                assert!(world.cluster.live().is_none());
            }
        }
    }
}

#[test]
fn a_zone_edited_after_a_death_does_not_make_a_second_machine() {
    for fate in [Fate::Fine, Fate::AnswerLost, Fate::Late] {
        for effect in 0..6 {
            for death in [None, Some((effect, Death::After))] {
                let mut world = World::new(true);
                run(&mut world, &Script { fates: vec![Fate::Fine, fate], death, ..Script::default() }, 1);
                world
                    .cluster
                    .edit(|spec| spec.placement.get_or_insert_default().zone = Some("z1".to_owned()));
                world.memory = None;
                world.assert_settled();
            }
        }
    }
}

#[test]
fn an_answer_lost_or_late_at_any_provider_call_changes_nothing_in_the_end() {
    let fates = [
        Fate::FailsBefore,
        Fate::AnswerLost,
        Fate::Late,
        Fate::LandsThenDenied,
        Fate::Quota,
        Fate::Denied,
        Fate::Partial,
    ];
    for plans_ids in [true, false] {
        for (name, way) in WAYS {
            for fate in fates {
                for call in 0..6 {
                    let mut world = World::new(plans_ids);
                    way(&mut world);
                    world.rows.push(name);
                    let mut script = Script { fates: vec![Fate::Fine; call], ..Script::default() };
                    script.fates.extend([fate, Fate::Fine]);
                    run(&mut world, &script, 2);
                    world.assert_settled();
                }
            }
        }
    }
}

#[test]
fn an_api_server_that_fails_or_loses_its_answer_changes_nothing_in_the_end() {
    for (name, way) in WAYS {
        for fate in [Fate::FailsBefore, Fate::AnswerLost] {
            for call in 0..6 {
                let mut world = World::new(true);
                way(&mut world);
                world.rows.push(name);
                let mut script = Script { api: vec![Fate::Fine; call], ..Script::default() };
                script.api.extend([fate, Fate::Fine]);
                run(&mut world, &script, 2);
                world.assert_settled();
            }
        }
    }
}

#[test]
fn a_machine_that_was_made_although_its_create_was_refused_is_not_forgotten() {
    for fate in [Fate::LandsThenDenied, Fate::AnswerLost, Fate::Late] {
        for plans_ids in [true, false] {
            let mut world = World::new(plans_ids);
            // validate-create, then create; the list lags behind.
            run(&mut world, &Script { fates: vec![Fate::Fine, fate], ..Script::default() }, 1);
            world.cluster.delete(world.now().wall);
            world.assert_settled();
            assert!(world.cluster.live().is_none());
        }
    }
}

#[test]
fn a_spec_that_is_edited_during_a_create_whose_answer_is_lost_makes_no_second_machine() {
    for plans_ids in [true, false] {
        for fate in [Fate::AnswerLost, Fate::Late, Fate::LandsThenDenied, Fate::FailsBefore, Fate::Fine] {
            for at in 0..10 {
                for first in [true, false] {
                    let mut world = World::new(plans_ids);
                    if !first {
                        // The finalizer is there already, and the search for machines is part of the pass.
                        pass(&mut world, &Script { death: Some((2, Death::Before)), ..Script::default() });
                    }
                    let calls = if first { 1 } else { 3 };
                    let mut fates = vec![Fate::Fine; calls];
                    fates.push(fate);
                    pass(&mut world, &Script { fates, edited: Some(at), ..Script::default() });
                    world.assert_settled();
                }
            }
        }
    }
}

/// Deleted while nobody can be asked about its machine, which may be left behind.
fn let_go() -> World {
    let mut world = World::new(true);
    world.calm(Duration::from_mins(1));
    world.registry = Registry::Failed;
    world.cluster.delete(world.now().wall);
    world.cluster.annotate(ABANDON_ANNOTATION, Some("true"));
    world
}

#[test]
fn a_proxy_whose_machine_is_where_nobody_looks_any_more_can_be_let_go() {
    for at in 0..4 {
        for death in [None, Some(Death::Before), Some(Death::After), Some(Death::Pass)] {
            let mut world = World::new(true);
            world.calm(Duration::from_mins(1));
            world.switch_scope();
            world.cluster.delete(world.now().wall);
            world.calm(Duration::from_hours(1));
            assert!(world.cluster.live().is_some(), "it could be deleted when the config points back");
            world.cluster.annotate(ABANDON_ANNOTATION, Some("true"));
            pass(&mut world, &Script { death: death.map(|death| (at, death)), ..Script::default() });
            world.calm(Duration::from_mins(1));
            assert!(world.cluster.live().is_none() && world.abandoned, "{}", world.story());
            world.switch_scope();
            assert_eq!(world.cloud.live().len(), 1, "told to stay, and deleted\n{}", world.story());
        }
    }
}

#[test]
fn a_proxy_whose_provider_is_denied_for_good_can_be_let_go_and_another_one_is_deleted() {
    for (minutes, let_go) in [(3, false), (20, true)] {
        let mut world = World::new(true);
        world.calm(Duration::from_mins(1));
        world.cluster.delete(world.now().wall);
        world.cluster.annotate(ABANDON_ANNOTATION, Some("true"));
        for _ in 0..minutes * 2 {
            pass(&mut world, &Script { fates: vec![Fate::Denied], ..Script::default() });
            world.advance(Duration::from_secs(30));
        }
        assert_eq!(world.cluster.live().is_none(), let_go, "{}", world.story());
        world.assert_settled();
        assert_eq!(world.cloud.live().len(), usize::from(let_go), "{}", world.story());
        assert!(world.cluster.live().is_none());
    }
}

/// A machine that is told to stay is there in the end.
fn assert_kept(mut world: World) -> bool {
    let told = world.abandoned;
    world.assert_settled();
    assert!(world.cluster.live().is_none());
    assert!(!told || world.cloud.live().len() == 1, "{}", world.story());
    told
}

#[test]
fn a_machine_that_is_said_to_stay_stays_although_its_provider_is_back_at_once() {
    let mut told = 0;
    for at in 0..4 {
        for fate in [Fate::FailsBefore, Fate::AnswerLost] {
            for behind in [0, 1] {
                let mut world = let_go();
                let mut script = Script { api: vec![Fate::Fine; at], ..Script::default() };
                script.api.extend([fate, Fate::Fine]);
                pass(&mut world, &script);
                world.registry = Registry::Ready;
                if world.abandoned {
                    // The cache has what this process wrote, and nothing newer yet.
                    pass(&mut world, &Script { behind, ..Script::default() });
                }
                told += u32::from(assert_kept(world));
            }
        }
        for death in [Death::Before, Death::After, Death::Pass] {
            let mut world = let_go();
            pass(&mut world, &Script { death: Some((at, death)), ..Script::default() });
            told += u32::from(assert_kept(world));
        }
    }
    assert!(told > 12, "only {told} were told to stay: the way is shorter than thought");
}
