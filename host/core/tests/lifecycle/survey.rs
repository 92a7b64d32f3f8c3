//! Lists of the fleet that stand for looks at each machine of it.

use std::time::Duration;

use egress_proxies_core::crd::Phase;
use egress_proxies_core::ids::{Incarnation, InstanceId};
use egress_proxies_core::lifecycle::{Policy, cluster_tags, seen_in_list};
use egress_proxies_core::provider::{Failure, Instance, InstanceState, Reason};

use super::cloud::Fate;
use super::operator::{Script, pass, surroundings};
use super::world::{Sick, World};

impl World {
    /// A list is begun. Whatever happens next, it shows what is there now.
    pub(crate) fn survey(&mut self, fate: Fate) {
        let (tags, began) = (cluster_tags(&surroundings(self).cluster), self.now().mono);
        let listing = self.cloud.list(&tags, fate, began.since_start());
        self.survey = listing.ok().map(|listing| (began, listing.items));
    }

    /// Its answer comes.
    pub(crate) fn survey_answers(&mut self) -> bool {
        let Some((began, machines)) = self.survey.take() else { return false };
        let (Some(object), Some(memory)) = (self.cluster.cached(0), self.memory.as_mut()) else {
            return false;
        };
        let policy = Policy::default();
        // Whoever calls looks for the machine by its id; here all are tried.
        machines.iter().any(|machine| seen_in_list(&object, memory, machine, began, &policy))
    }

    /// Calm, with lists as often as there are, each answered after so long.
    fn listed(&mut self, times: usize, late: Duration) {
        for _ in 0..times {
            self.survey(Fate::Fine);
            self.calm(late);
            self.survey_answers();
            self.calm(Policy::default().survey_poll().saturating_sub(late));
        }
    }
}

fn at_rest() -> World {
    let mut world = World::new(true);
    world.calm(Duration::from_mins(2));
    world
}

fn phase(world: &World) -> Option<Phase> {
    world.cluster.live()?.status.as_ref().map(|status| status.phase)
}

#[test]
fn machines_that_lists_show_as_they_were_are_asked_for_by_themselves_twice_in_an_hour() {
    let mut world = at_rest();
    let calls = world.cloud.calls;
    world.listed(90, Duration::from_secs(5));
    let asked = world.cloud.calls - calls - 90;
    assert!((2..=3).contains(&asked), "{asked} calls beside 90 lists\n{}", world.story());
    assert_eq!(phase(&world), Some(Phase::Ready));
}

#[test]
fn a_list_that_takes_longer_than_the_poll_saves_nothing_and_harms_nobody() {
    let mut world = at_rest();
    let (calls, began) = (world.cloud.calls, world.now().mono);
    for _ in 0..10 {
        world.survey(Fate::Fine);
        world.calm(Duration::from_secs(61));
        assert!(!world.survey_answers(), "it is older than the last look");
    }
    let minutes = u32::try_from(world.now().mono.since(began).as_secs() / 60).unwrap();
    let asked = world.cloud.calls - calls - 10;
    assert!((minutes..=minutes * 5 / 4 + 1).contains(&asked), "{asked} in {minutes} min");
}

#[test]
fn a_machine_that_vanishes_after_a_list_is_back_as_soon_as_without_lists() {
    for late in [0, 5, 30].map(Duration::from_secs) {
        let mut world = at_rest();
        world.listed(5, Duration::ZERO);
        world.survey(Fate::Fine);
        world.cloud.vanish();
        world.calm(late);
        world.survey_answers();
        world.calm(Duration::from_secs(75).saturating_sub(late));
        assert_eq!((phase(&world), world.cloud.creates), (Some(Phase::Ready), 2), "{}", world.story());
    }
}

type Change = (&'static str, fn(&mut Instance));

/// Each field, as it might come to look.
const CHANGES: [Change; 11] = [
    ("id", |it| it.id = InstanceId::parse("zones/z0/other").unwrap()),
    ("name", |it| it.name.push('x')),
    ("incarnation", |it| it.incarnation = Incarnation::parse("99").ok()),
    ("no incarnation", |it| it.incarnation = None),
    ("state", |it| it.state = InstanceState::Stopped),
    ("address", |it| it.endpoints[0].address.push('0')),
    ("no address", |it| it.endpoints.clear()),
    ("age", |it| it.created_at = Some("2030-01-01T00:00:00Z".parse().unwrap())),
    ("location", |it| it.location = Some("elsewhere".to_owned())),
    ("problem", |it| it.problem = Some(Failure::new(Reason::Quota, "slow disk"))),
    ("tags", |it| it.tags.clear()),
];

#[test]
fn what_a_list_shows_otherwise_counts_for_nothing() {
    for (what, change) in CHANGES {
        let mut world = at_rest();
        world.advance(Duration::from_secs(1));
        world.survey(Fate::Fine);
        let mut changed = world.survey.clone();
        for machine in &mut changed.as_mut().unwrap().1 {
            change(machine);
        }
        let right = std::mem::replace(&mut world.survey, changed);
        assert!(!world.survey_answers(), "{what}");
        world.survey = right;
        assert!(world.survey_answers(), "{what}: the same list as it was is right");
        world.survey(Fate::Fine);
        assert!(!world.survey_answers(), "{what}: as old as the last look");
    }
}

#[test]
fn nothing_is_believed_of_a_list_that_is_older_than_an_answer_about_the_machine_or_follows_a_failure() {
    for fate in [Fate::AnswerLost, Fate::Fine] {
        let mut world = at_rest();
        world.advance(Duration::from_secs(50));
        world.survey(Fate::Fine);
        world.advance(Duration::from_secs(20));
        pass(&mut world, &Script { fates: vec![fate], ..Script::default() });
        assert!(!world.survey_answers(), "{fate:?}");
        world.advance(Duration::from_secs(1));
        world.survey(Fate::Fine);
        assert_eq!(
            world.survey_answers(),
            fate == Fate::Fine,
            "{fate:?}: a newer one counts after an answer alone"
        );
    }
}

/// The spec is edited to one that is refused, and back: no call of that kind comes again to be answered.
#[test]
fn a_mistake_that_was_undone_costs_no_lists() {
    let mut world = at_rest();
    let size = |world: &mut World, size: u8| {
        world.cluster.edit(|spec| {
            spec.parameters.get_or_insert_default().insert("size".to_owned(), size.into());
        });
    };
    size(&mut world, 1);
    world.calm(Duration::from_mins(2));
    size(&mut world, 0);
    world.calm(Duration::from_mins(2));
    assert!(world.memory.as_ref().unwrap().trouble.is_some(), "{}", world.story());
    size(&mut world, 1);
    world.calm(Duration::from_mins(2));
    world.survey(Fate::Fine);
    assert!(world.survey_answers(), "{}", world.story());
}

#[test]
fn without_a_permit_nobody_was_asked_and_the_half_hour_goes_on() {
    let mut world = at_rest();
    world.advance(Duration::from_secs(70));
    world.survey(Fate::Fine);
    world.advance(Duration::from_secs(1));
    pass(&mut world, &Script { fates: vec![Fate::NoPermit], ..Script::default() });
    assert!(world.survey_answers(), "nothing newer is known than the list");
    let asked = world.memory.as_ref().unwrap().last_seen.as_ref().unwrap().asked;
    assert!(world.now().mono.since(asked) > Duration::from_mins(1));
}

#[test]
fn a_list_is_no_look_at_a_machine_whose_proxy_is_not_ready() {
    let mut world = at_rest();
    world.sick = Sick::All;
    world.calm(Duration::from_secs(5));
    assert_eq!(phase(&world), Some(Phase::Unhealthy));
    world.survey(Fate::Fine);
    assert!(!world.survey_answers());
}
