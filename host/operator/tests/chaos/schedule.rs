//! A schedule: what users, clients, the cloud, the administrator and bad luck do, and when. It follows from a seed
//! alone.

use std::fmt;
use std::time::Duration;

use egress_proxies_core::provider::{MaxUnavailable, Replacement};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::gate::{WAYS, Way};
use crate::provider::Component;

/// Names that users give.
pub(crate) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

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
    /// The same edit of all of them at once.
    PortOfAll(u16),
    /// A spec that the provider refuses for good, or one that it accepts again.
    Size(&'static str, u8),
    /// An edit that needs no other machine.
    Suspend(&'static str, bool),
    /// Another writer adds a label.
    Label(&'static str, u8),
    /// Another writer adds a finalizer of its own, or takes it away.
    Finalizer(&'static str, bool),
    /// A person asks for another machine, by a value that was never there before.
    Replace(&'static str, usize),
    /// The provider is lost, the Proxy is deleted, and a person says that its machine may be left behind.
    Abandon(&'static str, Component),
    /// A person says so of a Proxy that nobody deletes yet.
    SaysAbandon(&'static str),
    /// A client takes a lease.
    Lease(&'static str),
    /// The clients of a Proxy give their leases back.
    GiveBack(&'static str),
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
    /// Its lead pauses for so many milliseconds, whatever it does.
    Pause(u64),
    /// It ends, or pauses, at an effect that is so many from now.
    AtEffect(usize, Way),
}

impl Event {
    /// Something goes wrong outside of the operator, or answers of it get lost.
    fn is_fault(self) -> bool {
        match self {
            Self::Abandon(..)
            | Self::Provider(_)
            | Self::Vanish(_)
            | Self::Stop(_)
            | Self::Weather(_)
            | Self::Pause(_)
            | Self::AtEffect(..) => true,
            Self::Create(_)
            | Self::Delete(_)
            | Self::Recreate(_)
            | Self::Port(..)
            | Self::PortOfAll(_)
            | Self::Size(..)
            | Self::Suspend(..)
            | Self::Label(..)
            | Self::Finalizer(..)
            | Self::Replace(..)
            | Self::SaysAbandon(_)
            | Self::Lease(_)
            | Self::GiveBack(_)
            | Self::Rotate(_)
            | Self::Secret(_)
            | Self::Kill => false,
        }
    }
}

/// What holds all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) replacement: Replacement,
    /// Nothing goes wrong but that operators are killed: whoever served and does not serve is away because the
    /// operator decided so.
    pub(crate) fair: bool,
    /// Clients that did not give their leases back in the schedule never do.
    pub(crate) leases_last: bool,
}

impl Terms {
    fn draw(rng: &mut StdRng) -> Self {
        let drain = Duration::from_millis([0, 2000, 2000, 2500, 3500][rng.random_range(0..5)]);
        let max_unavailable = MaxUnavailable::Count(rng.random_range(1..3));
        let (fair, leases_last) = (rng.random_bool(0.25), rng.random_bool(0.5));
        Self { replacement: Replacement { max_unavailable, drain }, fair, leases_last }
    }
}

/// A schedule.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) terms: Terms,
    /// Milliseconds to wait, then what happens.
    pub(crate) events: Vec<(u64, Event)>,
}

impl Schedule {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let terms = Terms::draw(&mut rng);
        let first = if rng.random_bool(0.5) { 2 } else { NAMES.len() };
        let mut events: Vec<_> = NAMES[..first].iter().map(|name| (0, Event::Create(name))).collect();
        if !terms.fair && rng.random_bool(0.7) {
            events.insert(0, (0, Event::Weather(rng.random_range(5..40))));
        }
        for _ in 0..rng.random_range(12..36) {
            let wait = if rng.random_bool(0.4) { rng.random_range(0..20) } else { rng.random_range(20..400) };
            let event = event(&mut rng, events.len());
            if !(terms.fair && event.is_fault()) {
                events.push((wait, event));
            }
        }
        Self { seed, terms, events }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?}", self.terms)?;
        for (wait, event) in &self.events {
            writeln!(f, "  after {wait} ms {event:?}")?;
        }
        Ok(())
    }
}

/// `number` is that of no other event.
fn event(rng: &mut StdRng, number: usize) -> Event {
    let name = NAMES[rng.random_range(0..NAMES.len())];
    match rng.random_range(0..50) {
        0..5 => Event::Create(name),
        5..8 => Event::Delete(name),
        8..11 => Event::Recreate(name),
        11..14 => Event::Port(name, 3128 + rng.random_range(0..3)),
        14 => Event::Size(name, rng.random_range(0..3)),
        15 => Event::Suspend(name, rng.random()),
        16 => Event::Label(name, rng.random()),
        17 => Event::Finalizer(name, rng.random_bool(0.6)),
        18 => Event::Rotate(rng.random_range(0..3)),
        19 => Event::Secret(rng.random()),
        20 => Event::Provider(component(rng)),
        21 => Event::Provider(Component::Ready),
        22 => Event::Vanish(rng.random_range(0..8)),
        23 => Event::Stop(rng.random_range(0..8)),
        24..27 => Event::Weather(if rng.random_bool(0.3) { 0 } else { rng.random_range(5..50) }),
        27..29 => Event::Kill,
        29..34 => Event::AtEffect(rng.random_range(1..12), way(rng)),
        34..38 => Event::Replace(name, number),
        38..40 => Event::Abandon(name, if rng.random() { Component::Failed } else { Component::Removed }),
        40 => Event::SaysAbandon(name),
        41..45 => Event::Lease(name),
        45 => Event::GiveBack(name),
        46..48 => Event::Pause(rng.random_range(100..1500)),
        _ => Event::PortOfAll(3128 + rng.random_range(0..3)),
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
    WAYS[rng.random_range(0..WAYS.len())]
}

#[test]
fn a_seed_gives_the_same_schedule_again() {
    let both = |seed| (Schedule::of_seed(seed).terms, Schedule::of_seed(seed).events);
    assert_eq!(both(7), both(7));
    assert_ne!(both(7), both(8));
}

#[test]
fn in_a_fair_schedule_nothing_goes_wrong_but_that_operators_are_killed() {
    let fair: Vec<Schedule> =
        (0..200).map(Schedule::of_seed).filter(|schedule| schedule.terms.fair).collect();
    let events = || fair.iter().flat_map(|schedule| &schedule.events);
    assert!((30..70).contains(&fair.len()), "{} of 200", fair.len());
    assert!(events().all(|(_, event)| !event.is_fault()));
    assert!(events().any(|(_, event)| *event == Event::Kill));
}
