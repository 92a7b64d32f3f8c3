//! Fifty Proxies of one provider with one ledger: what one bad edit, one blind observer, or one restart can do
//! to all of them together.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use egress_proxies_core::crd::Phase;
use egress_proxies_core::lifecycle::{Caps, Ledger};
use egress_proxies_core::provider::{Failure, InstanceState, Reason};

use super::world::{Shared, Sick, Sight, World};

const SIZE: usize = 50;

/// Worlds that share a clock and a ledger.
struct Fleet {
    worlds: Vec<World>,
    shared: Rc<RefCell<Shared>>,
    due: Vec<Duration>,
}

impl Fleet {
    /// All Ready.
    fn new() -> Self {
        let shared = Rc::new(RefCell::new(Shared::default()));
        let worlds: Vec<World> = (0..SIZE).map(|number| World::of_fleet(number, &shared)).collect();
        let due = worlds.iter().map(World::clock).collect();
        let mut fleet = Self { worlds, shared, due };
        fleet.run(Duration::from_mins(3));
        assert_eq!(fleet.serving(), SIZE);
        fleet
    }

    /// Lets time pass in steps of a second; each Proxy has its passes when they are due.
    fn run(&mut self, span: Duration) {
        for _ in 0..span.as_secs() {
            self.second();
        }
    }

    fn second(&mut self) {
        for (world, due) in self.worlds.iter_mut().zip(&mut self.due) {
            world.step(due);
        }
        for world in &mut self.worlds {
            world.advance(Duration::from_secs(1));
        }
    }

    /// Every Secret, spec or annotation changes at once: all are looked at.
    fn all(&mut self, change: impl Fn(&mut World)) {
        for (world, due) in self.worlds.iter_mut().zip(&mut self.due) {
            change(world);
            *due = world.clock();
        }
    }

    fn serving(&self) -> usize {
        self.worlds.iter().filter(|world| world.facts().is_some_and(|facts| facts.serves())).count()
    }

    fn with_reason(&self, reason: &str) -> usize {
        let says = |world: &&World| {
            let status = world.cluster.live().and_then(|proxy| proxy.status.clone()).unwrap_or_default();
            status.conditions.iter().any(|it| it.type_ == "Provisioned" && it.reason == reason)
        };
        self.worlds.iter().filter(says).count()
    }

    fn creates(&self) -> u32 {
        self.worlds.iter().map(World::creates).sum()
    }

    fn restart(&mut self) {
        self.shared.borrow_mut().ledger = None;
        self.all(|world| (world.memory, world.verdict) = (None, None));
    }
}

fn edit(size: u64) -> impl Fn(&mut World) {
    move |world| {
        world.cluster.edit(|spec| {
            spec.parameters.get_or_insert_default().insert("size".to_owned(), size.into());
        });
    }
}

/// The smallest number that served while this time passed.
fn fewest_serving(fleet: &mut Fleet, span: Duration) -> usize {
    let mut fewest = fleet.serving();
    for _ in 0..span.as_secs() {
        fleet.second();
        fewest = fewest.min(fleet.serving());
    }
    fewest
}

#[test]
fn one_bad_edit_leaves_four_fifths_serving_and_undoing_it_brings_all_back() {
    let mut fleet = Fleet::new();
    fleet.all(|world| world.sick = Sick::OfSize(2)); // machines of this size run, and no probe succeeds
    fleet.all(edit(2));
    let fewest = fewest_serving(&mut fleet, Duration::from_mins(20));
    assert_eq!(fewest, 40);
    assert_eq!(fleet.creates(), 60, "no further one is tried");
    assert_eq!(fleet.with_reason("ReplacementPaused"), 40);
    fleet.restart();
    let fewest = fewest_serving(&mut fleet, Duration::from_mins(20));
    assert_eq!((fewest, fleet.creates()), (40, 60), "nor after a restart");
    // Undone: the old machines are what is wanted again, and only the sick ones are made anew.
    fleet.all(|world| world.cluster.edit(|spec| spec.parameters = None));
    let fewest = fewest_serving(&mut fleet, Duration::from_mins(10));
    assert_eq!((fewest, fleet.serving(), fleet.creates()), (40, SIZE, 70));
}

#[test]
fn a_good_edit_reaches_all_and_never_takes_more_than_a_fifth_away() {
    let mut fleet = Fleet::new();
    for world in fleet.worlds.iter_mut().step_by(3) {
        world.leases = 1; // never given back: the drain takes its full time
    }
    fleet.all(edit(2));
    let fewest = fewest_serving(&mut fleet, Duration::from_mins(45));
    assert!(fewest >= 40, "{fewest}");
    assert_eq!((fleet.serving(), fleet.creates()), (SIZE, 100));
    assert_eq!(fleet.with_reason("Created"), SIZE);
}

#[test]
fn a_person_gets_one_new_machine_for_each_proxy_that_asks_although_the_operator_restarts_all_the_time() {
    let mut fleet = Fleet::new();
    fleet.all(|world| world.cluster.annotate("crawl.example.com/replace", Some("1")));
    for _ in 0..40 {
        let fewest = fewest_serving(&mut fleet, Duration::from_secs(37));
        assert!(fewest >= 40, "{fewest}");
        fleet.restart();
    }
    fleet.run(Duration::from_mins(30));
    assert_eq!((fleet.serving(), fleet.creates()), (SIZE, 100));
}

#[test]
fn an_observer_that_sees_all_machines_stopped_takes_no_more_than_a_fifth_away() {
    for restarts in [false, true] {
        let mut fleet = Fleet::new();
        fleet.all(|world| world.sight = Sight::AllAre(InstanceState::Stopped));
        let mut fewest = SIZE;
        for _ in 0..5 {
            if restarts {
                fleet.restart();
            }
            fewest = fewest.min(fewest_serving(&mut fleet, Duration::from_mins(1)));
        }
        assert!(fewest >= 40, "{fewest}, restarts {restarts}");
        assert!(fleet.with_reason("FleetSuspect") >= 30, "{}", fleet.with_reason("FleetSuspect"));
        fleet.all(|world| world.sight = Sight::Right);
        fleet.run(Duration::from_mins(30));
        assert_eq!(fleet.serving(), SIZE, "restarts {restarts}");
    }
}

#[test]
fn an_observer_to_whom_all_machines_are_somebody_elses_takes_no_more_than_a_fifth_away_and_none_is_lost() {
    for restarts in [false, true] {
        let mut fleet = Fleet::new();
        fleet.all(|world| world.sight = Sight::AllAreForeign);
        let mut fewest = SIZE;
        for _ in 0..4 {
            if restarts {
                fleet.restart();
            }
            fewest = fewest.min(fewest_serving(&mut fleet, Duration::from_mins(1)));
        }
        // However long it lasts: nobody mends what is hidden.
        fewest = fewest.min(fewest_serving(&mut fleet, Duration::from_mins(30)));
        assert!((40..SIZE).contains(&fewest), "{fewest}, restarts {restarts}");
        let said = (fleet.with_reason("FleetSuspect"), fleet.with_reason("NameConflict"));
        assert_eq!(said, (fewest, SIZE - fewest), "restarts {restarts}");
        fleet.all(|world| world.sight = Sight::Right);
        fleet.run(Duration::from_mins(3));
        assert_eq!((fleet.serving(), fleet.creates()), (SIZE, 50), "restarts {restarts}");
        assert_eq!(fleet.with_reason("Created"), SIZE);
    }
}

#[test]
fn a_machine_that_alone_is_somebody_elses_is_taken_from_clients_and_is_back_with_its_tags() {
    let mut fleet = Fleet::new();
    fleet.worlds[7].sight = Sight::AllAreForeign;
    fleet.run(Duration::from_mins(2));
    assert_eq!((fleet.serving(), fleet.with_reason("NameConflict")), (SIZE - 1, 1));
    assert_eq!(fleet.worlds[7].facts().map(|facts| facts.phase), Some(Phase::Failed));
    fleet.run(Duration::from_mins(20));
    fleet.worlds[7].sight = Sight::Right;
    fleet.run(Duration::from_mins(2));
    assert_eq!((fleet.serving(), fleet.creates()), (SIZE, 50));
}

#[test]
fn a_fleet_that_is_really_gone_comes_back_by_itself() {
    let mut fleet = Fleet::new();
    fleet.all(|world| world.cloud.vanish());
    fleet.run(Duration::from_mins(45));
    assert_eq!((fleet.serving(), fleet.creates()), (SIZE, 100));
}

#[test]
fn deleting_all_takes_two_minutes_at_most_and_leaves_nothing() {
    let mut fleet = Fleet::new();
    fleet.all(|world| world.cluster.delete(world.now().wall));
    fleet.run(Duration::from_mins(2));
    for world in &fleet.worlds {
        assert!(world.cluster.live().is_none());
        world.check_nothing_left();
    }
}

#[test]
fn a_fleet_at_rest_after_a_replacement_writes_nothing() {
    let mut fleet = Fleet::new();
    fleet.all(edit(2));
    fleet.run(Duration::from_mins(20));
    let writes = |fleet: &Fleet| fleet.worlds.iter().map(|world| world.cluster.writes).sum::<u32>();
    let before = writes(&fleet);
    fleet.run(Duration::from_mins(5));
    assert_eq!(writes(&fleet), before);
    let ready = |world: &World| world.facts().map(|facts| facts.phase) == Some(Phase::Ready);
    assert!(fleet.worlds.iter().all(ready));
}

#[test]
fn specs_that_can_not_work_hold_up_nobody_elses_replacement() {
    let mut fleet = Fleet::new();
    // Twenty more, whose size the provider refuses before anything is made.
    for number in SIZE..SIZE + 20 {
        let mut world = World::of_fleet(number, &fleet.shared);
        world.advance(fleet.worlds[0].clock().saturating_sub(world.clock()));
        edit(0)(&mut world);
        fleet.due.push(world.clock());
        fleet.worlds.push(world);
    }
    fleet.run(Duration::from_mins(1));
    assert_eq!(fleet.with_reason("PermanentError"), 20);
    for (world, due) in fleet.worlds.iter_mut().zip(&mut fleet.due).take(SIZE) {
        edit(2)(world);
        *due = world.clock();
    }
    fleet.run(Duration::from_mins(20));
    assert_eq!((fleet.serving(), fleet.creates()), (SIZE, 100));
}

#[test]
fn an_observer_that_sees_all_stopped_takes_no_more_than_a_fifth_away_although_all_wait_for_another_machine() {
    let mut fleet = Fleet::new();
    fleet.all(|world| {
        world.cluster.annotate("crawl.example.com/replace", Some("1"));
        world.sight = Sight::AllAre(InstanceState::Stopped);
    });
    let fewest = fewest_serving(&mut fleet, Duration::from_mins(5));
    assert!(fewest >= 40, "{fewest}");
    fleet.all(|world| world.sight = Sight::Right);
    fleet.run(Duration::from_hours(1));
    // Those that were made anew look stopped as well for a while.
    assert!(fleet.serving() == SIZE && (100..=110).contains(&fleet.creates()), "{}", fleet.creates());
}

#[test]
fn a_low_cap_hides_nobody_who_waits_for_a_place() {
    let mut fleet = Fleet::new();
    let caps = Caps { replacements_per_minute: 4, ..Caps::default() };
    fleet.shared.borrow_mut().ledger = Some(Ledger::new(caps, fleet.worlds[0].now().mono));
    fleet.run(Duration::from_mins(3));
    // Only the machines of now are seen wrongly: what is made anew comes back, and slow start goes on.
    let before = fleet.creates();
    fleet.all(|world| world.sight = Sight::AllAre(InstanceState::Stopped));
    let mut fewest = fleet.serving();
    for _ in 0..600 {
        for world in &mut fleet.worlds {
            if world.creates() > 1 {
                world.sight = Sight::Right;
            }
        }
        fleet.second();
        fewest = fewest.min(fleet.serving());
    }
    assert!(fewest >= 40, "{fewest}");
    assert!(fleet.creates() > before, "some are made anew");
}

#[test]
fn a_probe_that_fails_for_some_seconds_costs_none_of_those_that_wait_behind_a_bad_edit() {
    let mut fleet = Fleet::new();
    fleet.all(|world| world.sick = Sick::OfSize(2));
    fleet.all(edit(2));
    fleet.run(Duration::from_mins(20));
    assert_eq!((fleet.serving(), fleet.creates()), (40, 60));
    for number in 0..SIZE {
        fleet.worlds[number].sick = Sick::All;
        fleet.run(Duration::from_secs(5));
        fleet.worlds[number].sick = Sick::OfSize(2);
        fleet.run(Duration::from_secs(5));
    }
    assert_eq!((fleet.serving(), fleet.creates()), (40, 60), "none of them was touched");
    // Another correction reaches all, the sick ones first.
    fleet.all(edit(3));
    fleet.run(Duration::from_mins(40));
    assert_eq!(fleet.serving(), SIZE);
}

#[test]
fn an_observer_that_loses_all_machines_again_and_again_takes_no_more_than_a_fifth_away() {
    let quota = Failure::new(Reason::Quota, "the quota was lowered");
    for cause in [None, Some(quota)] {
        let mut fleet = Fleet::new();
        let mut fewest = SIZE;
        for _ in 0..3 {
            fleet.all(|world| world.sight = Sight::NoneIsThere(cause.clone()));
            fewest = fewest.min(fewest_serving(&mut fleet, Duration::from_mins(2)));
            fleet.all(|world| world.sight = Sight::Right);
            fewest = fewest.min(fewest_serving(&mut fleet, Duration::from_mins(1)));
        }
        assert!(fewest >= 40, "{fewest}, {cause:?}");
        fleet.run(Duration::from_mins(30));
        assert_eq!(fleet.serving(), SIZE, "{cause:?}");
    }
}

#[test]
fn a_wrong_sight_of_machines_being_deleted_ends_with_it() {
    let mut fleet = Fleet::new();
    fleet.all(|world| world.sight = Sight::AllAre(InstanceState::Deleting));
    let fewest = fewest_serving(&mut fleet, Duration::from_mins(3));
    assert!(fewest >= 40, "{fewest}");
    fleet.all(|world| world.sight = Sight::Right);
    fleet.run(Duration::from_mins(20));
    let (serving, creates) = (fleet.serving(), fleet.creates());
    fleet.run(Duration::from_mins(20));
    assert_eq!((serving, fleet.serving(), fleet.creates()), (SIZE, SIZE, creates));
    assert!(creates <= 60, "{creates}");
}
