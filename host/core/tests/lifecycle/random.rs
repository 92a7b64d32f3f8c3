//! Random schedules of faults, edits, deaths and stale caches; then calm. `PROPTEST_CASES=12000` for a long run.

use std::time::Duration;

use egress_proxies_core::crd::{ABANDON_ANNOTATION, REPLACE_ANNOTATION};
use proptest::prelude::*;

use super::cloud::Fate;
use super::operator::{Death, End, Registry, Script, pass};
use super::world::World;

#[derive(Debug, Clone)]
enum Event {
    Pass(Script),
    Wait(u64),
    Zone(u8),
    Size(u8),
    Suspend(bool),
    Delete,
    Vanish,
    Stop,
    Restart,
    Provider(Registry),
    Scope,
    Unreadable(bool),
    Probe,
    Survey(Fate),
    SurveyAnswers,
    Lease(u32),
    Replace(Option<u8>),
    Abandon(bool),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Fine),
        1 => Just(Fate::FailsBefore),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Late),
        1 => Just(Fate::LandsThenDenied),
        1 => Just(Fate::Quota),
        1 => Just(Fate::Denied),
        1 => Just(Fate::NoPermit),
        1 => Just(Fate::Partial),
    ]
}

fn api_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![8 => Just(Fate::Fine), 1 => Just(Fate::FailsBefore), 1 => Just(Fate::AnswerLost)]
}

fn script() -> impl Strategy<Value = Script> {
    let death = prop_oneof![
        4 => Just(None),
        1 => (0..10_usize).prop_map(|at| Some((at, Death::Before))),
        1 => (0..10_usize).prop_map(|at| Some((at, Death::After))),
        1 => (0..10_usize).prop_map(|at| Some((at, Death::Pass))),
    ];
    let behind = prop_oneof![4 => Just(0_usize), 1 => 1..4_usize];
    let edited = prop_oneof![6 => Just(None), 1 => (0..8_usize).prop_map(Some)];
    (prop::collection::vec(fate(), 0..8), prop::collection::vec(api_fate(), 0..6), death, edited, behind)
        .prop_map(|(fates, api, death, edited, behind)| Script {
            fates,
            api,
            death,
            forced_away: None,
            edited,
            behind,
        })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => script().prop_map(Event::Pass),
        6 => prop_oneof![0..4_u64, 5..20_u64, 30..90_u64, 100..700_u64].prop_map(Event::Wait),
        2 => (0..3_u8).prop_map(Event::Zone),
        2 => (0..4_u8).prop_map(Event::Size),
        1 => any::<bool>().prop_map(Event::Suspend),
        1 => Just(Event::Delete),
        1 => Just(Event::Vanish),
        1 => Just(Event::Stop),
        1 => Just(Event::Restart),
        1 => prop_oneof![
            Just(Registry::Ready), Just(Registry::Loading), Just(Registry::Failed), Just(Registry::Unknown)
        ]
        .prop_map(Event::Provider),
        1 => Just(Event::Scope),
        1 => any::<bool>().prop_map(Event::Unreadable),
        2 => Just(Event::Probe),
        2 => fate().prop_map(Event::Survey),
        2 => Just(Event::SurveyAnswers),
        2 => (0..3_u32).prop_map(Event::Lease),
        2 => prop::option::of(0..3_u8).prop_map(Event::Replace),
        1 => any::<bool>().prop_map(Event::Abandon),
    ]
}

fn happen(world: &mut World, event: &Event) {
    match event {
        Event::Pass(script) => {
            if pass(world, script) == End::Died {
                world.verdict = None;
                world.survey = None;
            }
        }
        Event::Wait(seconds) => world.advance(Duration::from_secs(*seconds)),
        Event::Zone(zone) => {
            let zone = format!("z{zone}");
            world.cluster.edit(|spec| spec.placement.get_or_insert_default().zone = Some(zone));
        }
        Event::Size(size) => world.cluster.edit(|spec| {
            spec.parameters.get_or_insert_default().insert("size".to_owned(), (*size).into());
        }),
        Event::Suspend(suspend) => world.cluster.edit(|spec| spec.suspend = *suspend),
        Event::Delete => world.cluster.delete(world.now().wall),
        Event::Vanish => world.cloud.vanish(),
        Event::Stop => world.cloud.stop(),
        Event::Restart => {
            world.memory = None;
            world.lose_ledger();
            world.verdict = None;
            world.survey = None;
        }
        Event::Provider(registry) => world.registry = *registry,
        Event::Scope => world.switch_scope(),
        Event::Unreadable(unreadable) => world.unreadable = *unreadable,
        Event::Probe => world.probe(),
        Event::Survey(fate) => world.survey(*fate),
        Event::SurveyAnswers => {
            world.survey_answers();
        }
        Event::Lease(leases) => world.leases = *leases,
        Event::Replace(nonce) => {
            let nonce = nonce.map(|nonce| nonce.to_string());
            world.cluster.annotate(REPLACE_ANNOTATION, nonce.as_deref());
        }
        Event::Abandon(yes) => {
            world.cluster.annotate(ABANDON_ANNOTATION, yes.then_some("true"));
            // Taken back while there is an object to take it back from.
            world.abandoned &= *yes || world.cluster.live().is_none();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_ends_with_one_machine_or_none(
        plans_ids in any::<bool>(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut world = World::new(plans_ids);
        for event in &events {
            happen(&mut world, event);
        }
        // A size of 0 can't work: no machine is forgotten for it. The user puts it right in the end.
        world.return_to_scope();
        world.assert_accounted();
        world.cluster.edit(|spec| {
            let size = spec.parameters.as_mut().and_then(|parameters| parameters.get_mut("size"));
            if let Some(size) = size.filter(|size| size.as_u64() == Some(0)) {
                *size = 1.into();
            }
        });
        world.return_to_scope();
        world.assert_settled();
    }
}
