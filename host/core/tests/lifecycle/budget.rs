//! What the way to Ready costs, and how long it takes.

use std::time::Duration;

use egress_proxies_core::crd::Phase;
use egress_proxies_core::lifecycle::Requeue;
use egress_proxies_core::provider::InstanceState;

use super::operator::{End, Script, pass};
use super::world::World;

const GOING: &str = "the_object_is_gone_its_machine_going";

fn phase(world: &World) -> Phase {
    world
        .cluster
        .live()
        .and_then(|proxy| proxy.status.as_ref())
        .map(|status| status.phase)
        .unwrap_or_default()
}

#[test]
fn three_writes_lead_from_apply_to_ready() {
    for plans_ids in [true, false] {
        let mut world = World::new(plans_ids);
        world.calm(Duration::from_secs(15));
        assert_eq!(phase(&world), Phase::Ready, "{}", world.story());
        assert_eq!(world.cluster.writes, 3, "{}", world.story());
        assert_eq!(world.cloud.creates, 1);
    }
}

#[test]
fn at_rest_nothing_is_written_and_only_the_drift_poll_calls() {
    let mut world = World::new(true);
    world.assert_settled();
}

#[test]
fn a_restart_of_the_operator_writes_and_creates_nothing() {
    let mut world = World::new(true);
    world.calm(Duration::from_mins(1));
    let writes = world.cluster.writes;
    world.memory = None;
    world.verdict = None;
    world.calm(Duration::from_mins(10));
    assert_eq!(world.cluster.writes, writes, "{}", world.story());
    assert_eq!(world.cloud.creates, 1);
}

#[test]
fn a_machine_that_vanishes_comes_back_without_a_wait() {
    let mut world = World::new(true);
    world.calm(Duration::from_mins(1));
    world.cloud.vanish();
    world.calm(Duration::from_secs(75));
    assert_eq!(phase(&world), Phase::Ready, "{}", world.story());
    assert_eq!(world.cloud.creates, 2);
}

#[test]
fn machines_that_vanish_again_and_again_are_made_ever_more_slowly() {
    let mut world = World::new(true);
    for _ in 0..1200 {
        world.calm(Duration::from_secs(3));
        world.cloud.vanish();
    }
    assert!(world.cloud.creates < 30, "{} creates in an hour", world.cloud.creates);
    world.assert_settled();
}

#[test]
fn a_machine_that_fails_is_made_anew_ever_more_slowly() {
    let mut world = World::new(true);
    for _ in 0..1200 {
        world.calm(Duration::from_secs(3));
        world.cloud.set_state(&InstanceState::Failed);
    }
    assert!(world.cloud.creates < 30, "{} creates in an hour", world.cloud.creates);
    world.assert_settled();
}

#[test]
fn a_machine_that_never_runs_is_made_anew_after_the_deadline() {
    let mut world = World::new(true);
    world.calm(Duration::from_secs(3));
    world.cloud.set_state(&InstanceState::Other("repairing".to_owned()));
    world.calm(Duration::from_secs(890));
    assert_eq!(world.cloud.creates, 1);
    world.calm(Duration::from_mins(1));
    assert_eq!(world.cloud.creates, 2, "{}", world.story());
    world.assert_settled();
}

#[test]
fn a_deletion_ends_soon_when_every_create_was_answered() {
    let mut world = World::new(true);
    world.calm(Duration::from_mins(1));
    world.cluster.delete(world.now().wall);
    world.calm(Duration::from_secs(20));
    assert!(world.cluster.live().is_none(), "{}", world.story());
    world.check_nothing_left();
}

#[test]
fn a_proxy_that_is_deleted_before_its_first_pass_leaves_no_trace() {
    let mut world = World::new(true);
    world.cluster.edit(|_| {});
    world.cluster.delete(world.now().wall);
    world.calm(Duration::from_secs(20));
    assert_eq!(world.cloud.calls, 0);
    assert_eq!(world.cluster.writes, 0);
}

#[test]
fn a_mistake_in_the_spec_does_not_cost_the_machine_and_is_undone_by_undoing_it() {
    let mut world = World::new(true);
    world.calm(Duration::from_mins(1));
    let size = |size: u64| {
        move |spec: &mut egress_proxies_core::crd::ProxySpec| {
            spec.parameters.get_or_insert_default().insert("size".to_owned(), size.into());
        }
    };
    world.cluster.edit(size(0));
    world.calm(Duration::from_mins(10));
    assert_eq!(phase(&world), Phase::Failed, "{}", world.story());
    assert_eq!(world.cloud.live().len(), 1);
    let (writes, calls) = (world.cluster.writes, world.cloud.calls);
    world.calm(Duration::from_mins(10));
    assert_eq!(world.cluster.writes, writes);
    assert!(world.cloud.calls - calls <= 13);
    world.cluster.edit(|spec| spec.parameters = None);
    world.assert_settled();
    assert_eq!(world.cloud.creates, 1, "the machine of the old spec was good");
    world.cluster.edit(size(2));
    world.assert_settled();
    assert_eq!(world.cloud.creates, 2);
}

#[test]
fn a_stale_cache_makes_no_second_machine() {
    let mut world = World::new(true);
    world.calm(Duration::from_mins(1));
    for behind in 1..4 {
        pass(&mut world, &Script { behind, ..Script::default() });
        world.memory = None;
        pass(&mut world, &Script { behind, ..Script::default() });
    }
    assert_eq!(world.cloud.creates, 1);
    world.assert_settled();
}

#[test]
fn a_machine_whose_object_is_forced_away_during_the_create_is_deleted_in_the_same_pass() {
    let mut world = World::new(true);
    // validate, write down, create: the status write then meets no object.
    let forced = Script { forced_away: Some(3), ..Script::default() };
    assert_eq!(pass(&mut world, &forced), End::Waits(Requeue::After(Duration::from_secs(5)), GOING));
    assert!(world.cloud.live().is_empty(), "{}", world.story());
    world.advance(Duration::from_secs(20));
    world.check_nothing_left();
}

#[test]
fn another_machine_in_place_of_one_that_serves_takes_five_writes() {
    let spec: fn(&mut World) = |world| {
        world.cluster.edit(|spec| spec.port = Some(8080));
    };
    let person: fn(&mut World) = |world| world.cluster.annotate("crawl.example.com/replace", Some("1"));
    for change in [spec, person] {
        let mut world = World::new(true);
        world.calm(Duration::from_mins(2));
        let writes = world.cluster.writes;
        change(&mut world);
        world.calm(Duration::from_mins(2));
        assert_eq!(phase(&world), Phase::Ready, "{}", world.story());
        assert_eq!((world.cluster.writes - writes, world.cloud.creates), (5, 2), "{}", world.story());
        world.assert_settled();
    }
}

#[test]
fn a_lease_holds_a_replacement_back_until_it_ends_or_the_drain_is_over() {
    for given_back in [true, false] {
        let mut world = World::new(true);
        world.calm(Duration::from_mins(2));
        world.leases = 1;
        world.cluster.edit(|spec| spec.port = Some(8080));
        world.calm(Duration::from_mins(4));
        assert_eq!((phase(&world), world.cloud.creates), (Phase::Replacing, 1), "{}", world.story());
        assert_eq!(world.cloud.live().len(), 1, "it lives while it drains");
        if given_back {
            world.leases = 0;
            world.calm(Duration::from_secs(40));
        } else {
            world.calm(Duration::from_secs(100));
        }
        assert_eq!((phase(&world), world.cloud.creates), (Phase::Ready, 2), "{}", world.story());
    }
}
