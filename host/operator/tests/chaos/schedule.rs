//! A schedule: what users, the cloud, the administrator and bad luck do, and when. It follows from a seed
//! alone.

use std::fmt;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::gate::Way;
use crate::provider::Component;

/// Names that users give.
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A user creates it, if the name is free; some of them refer to a Secret.
    Create(&'static str),
    Delete(&'static str),
    /// Deletes it and creates it again under the same name as soon as that is free, with another spec.
    Recreate(&'static str),
    /// Another spec: one of three ports.
    Port(&'static str, u16),
    /// A spec that the provider refuses for good, or one that it accepts again.
    Size(&'static str, u8),
    /// An edit that needs no other machine.
    Suspend(&'static str, bool),
    /// Another writer adds a label.
    Label(&'static str, u8),
    /// Another writer adds a finalizer of its own, or takes it away.
    Finalizer(&'static str, bool),
    /// The Secret has another text.
    Rotate(u8),
    /// The Secret can, or cannot, be read.
    Secret(bool),
    Provider(Component),
    /// A machine vanishes.
    Vanish(usize),
    /// A machine is stopped from outside.
    Stop(usize),
    /// So many effects of a hundred go wrong from now on.
    Weather(u32),
    /// The operator is killed, whatever it does.
    Kill,
    /// It ends at an effect that is so many from now.
    EndIn(usize, Way),
}

/// A schedule.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    /// Milliseconds to wait, then what happens.
    pub(crate) events: Vec<(u64, Event)>,
}

impl Schedule {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut events = vec![(0, Event::Create("a")), (0, Event::Create("b"))];
        if rng.random_bool(0.7) {
            events.insert(0, (0, Event::Weather(rng.random_range(5..40))));
        }
        for _ in 0..rng.random_range(10..30) {
            let wait = if rng.random_bool(0.4) { rng.random_range(0..20) } else { rng.random_range(20..400) };
            events.push((wait, event(&mut rng)));
        }
        Self { seed, events }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (wait, event) in &self.events {
            writeln!(f, "  after {wait} ms {event:?}")?;
        }
        Ok(())
    }
}

fn event(rng: &mut StdRng) -> Event {
    let name = NAMES[rng.random_range(0..NAMES.len())];
    match rng.random_range(0..33) {
        0..5 => Event::Create(name),
        5..8 => Event::Delete(name),
        8..11 => Event::Recreate(name),
        11..15 => Event::Port(name, 3128 + rng.random_range(0..3)),
        15 => Event::Size(name, rng.random_range(0..3)),
        16 => Event::Suspend(name, rng.random()),
        17 => Event::Label(name, rng.random()),
        18 => Event::Finalizer(name, rng.random_bool(0.6)),
        19 => Event::Rotate(rng.random_range(0..3)),
        20 => Event::Secret(rng.random()),
        21 => Event::Provider(component(rng)),
        22 => Event::Provider(Component::Ready),
        23 => Event::Vanish(rng.random_range(0..8)),
        24 => Event::Stop(rng.random_range(0..8)),
        25..28 => Event::Weather(if rng.random_bool(0.3) { 0 } else { rng.random_range(5..50) }),
        28..30 => Event::Kill,
        _ => Event::EndIn(rng.random_range(1..12), way(rng)),
    }
}

fn component(rng: &mut StdRng) -> Component {
    match rng.random_range(0..3) {
        0 => Component::Loading,
        1 => Component::Failed,
        _ => Component::Removed,
    }
}

fn way(rng: &mut StdRng) -> Way {
    match rng.random_range(0..3) {
        0 => Way::Before,
        1 => Way::After,
        _ => Way::Lost,
    }
}

#[test]
fn a_seed_gives_the_same_schedule_again() {
    assert_eq!(Schedule::of_seed(7).events, Schedule::of_seed(7).events);
    assert_ne!(Schedule::of_seed(7).events, Schedule::of_seed(8).events);
}
