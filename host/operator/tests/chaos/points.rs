//! The operator is stopped at every effect in the life of a Proxy, in each way, and started again, or it pauses
//! there: the end is the same. One machine for a living Proxy, none for a dead one, never two.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use futures::StreamExt;
use serde_json::json;

use crate::gate::{Effect, Fates, Point, WAYS, Way};
use crate::operator::{Access, World};
use crate::settings::say;
use crate::wiring::is_ready;

const AT_ONCE: usize = 27;
/// A poll more or less is a matter of time: what is not met in one life is tried in the next, of as many.
const LIVES: usize = 10;
/// A life takes about 3 s on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_stopped_at_any_effect_in_any_way_ends_with_one_machine_and_then_with_none() {
    let Some(access) = Access::open().await else { return };
    // A live look is needed only where a write did not just show the object.
    let needed =
        [Effect::Metadata, Effect::Status, Effect::Create, Effect::Get, Effect::Delete, Effect::List];
    every_point(&access, "effect points", &needed, life).await;
}

/// Lives one life per effect of it and way until each was met, and says how many there were.
pub(crate) async fn every_point<L>(access: &Access, title: &str, needed: &[Effect], life: L)
where
    L: AsyncFn(&World) -> Result<(), String> + Copy,
{
    let counts = counts_of_lives(access, life).await;
    let points = points_of(&counts);
    for effect in needed {
        assert!(counts.contains_key(effect), "a life without {effect:?}: {counts:?}");
    }
    let cases: Vec<_> = points.iter().flat_map(|point| WAYS.map(|way| (*point, way))).collect();
    let (mut unmet, mut failures, mut lives) = (cases.clone(), Vec::new(), 0);
    for _ in 0..LIVES {
        let lived = futures::stream::iter(unmet).map(|case| one_case(access, case, life));
        let lived: Vec<_> = lived.buffer_unordered(AT_ONCE).collect().await;
        lives += lived.len();
        unmet = lived.iter().filter(|(_, lived)| *lived == Ok(false)).map(|(case, _)| *case).collect();
        failures.extend(lived.into_iter().filter_map(|(_, lived)| lived.err()));
        if unmet.is_empty() {
            break;
        }
        say(&format!("not met, tried again: {unmet:?}"));
    }
    say(&format!(
        "{title}: {} in one life {counts:?}, x {} ways = {} to meet; met {} in {lives} lives; failures {}",
        points.len(),
        WAYS.len(),
        cases.len(),
        cases.len() - unmet.len(),
        failures.len()
    ));
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(unmet.is_empty(), "not met in any of {LIVES} lives: {unmet:?}");
}

/// How often each effect comes in a life without a fault. On a busy machine a verdict may come late, and the
/// status is written once more: what does not come in each of three lives need not come in the next.
async fn counts_of_lives<L>(access: &Access, life: L) -> BTreeMap<Effect, usize>
where
    L: AsyncFn(&World) -> Result<(), String> + Copy,
{
    let mut least: Option<BTreeMap<Effect, usize>> = None;
    for _ in 0..3 {
        let calm = Fates::calm();
        whole_life(access, Arc::clone(&calm), life).await.unwrap();
        let mut counts = BTreeMap::<Effect, usize>::new();
        for effect in calm.seen() {
            *counts.entry(effect).or_default() += 1;
        }
        if let Some(before) = &least {
            counts.retain(|effect, _| before.contains_key(effect));
            for (effect, count) in &mut counts {
                *count = (*count).min(before[effect]);
            }
        }
        least = Some(counts);
    }
    least.unwrap()
}

fn points_of(counts: &BTreeMap<Effect, usize>) -> Vec<Point> {
    let numbered = |(effect, count): (&Effect, &usize)| {
        let effect = *effect;
        (1..=*count).map(move |nth| Point { effect, nth })
    };
    counts.iter().flat_map(numbered).collect()
}

/// Whether the operator met the point, or why its end is wrong.
async fn one_case<L>(access: &Access, case: (Point, Way), life: L) -> ((Point, Way), Result<bool, String>)
where
    L: AsyncFn(&World) -> Result<(), String>,
{
    let (point, way) = case;
    let fates = Fates::once(point, way);
    let lived = whole_life(access, Arc::clone(&fates), life).await;
    let met = lived.map(|()| !fates.struck().is_empty());
    (case, met.map_err(|error| format!("{point:?} {way:?}: {error}")))
}

/// One life, whatever happens to the operator.
async fn whole_life<L>(access: &Access, fates: Arc<Fates>, life: L) -> Result<(), String>
where
    L: AsyncFn(&World) -> Result<(), String>,
{
    let world = World::new(access, "point", fates).await;
    let life = tokio::time::timeout(PATIENCE, life(&world));
    let lived = tokio::select! {
        lived = life => lived,
        () = world.keep_running() => unreachable!(),
    };
    let result = match lived {
        Ok(result) => result,
        Err(tokio::time::error::Elapsed { .. }) => Err(format!("stuck: {:#?}", world.state().await)),
    };
    result.map_err(|error| format!("{error}\n  {}", world.cloud.story()))
}

/// Created, Ready, edited, Ready with another machine, deleted, gone.
async fn life(world: &World) -> Result<(), String> {
    world.create("a", json!({"mode": "Managed", "provider": "fake"})).await.unwrap();
    ready_with_one_machine(world, 1).await?;
    world.edit("a", json!({"spec": {"port": 8888}})).await;
    ready_with_one_machine(world, 2).await?;
    if world.cloud.born() != 2 {
        return Err(format!("{} machines were made for two specs", world.cloud.born()));
    }
    world.delete("a").await;
    world.until("a", |object| object.is_none()).await;
    let (left, landing) = (world.cloud.machines(), world.cloud.landing());
    if !left.is_empty() || landing != 0 {
        return Err(format!("left behind: {left:?}, {landing} under way"));
    }
    world.check()
}

async fn ready_with_one_machine(world: &World, generation: i64) -> Result<(), String> {
    let current = |proxy: &Proxy| {
        let status = proxy.status.as_ref();
        is_ready(proxy) && status.and_then(|status| status.observed_generation) == Some(generation)
    };
    let proxy = world.until("a", |object| object.is_some_and(current)).await.unwrap();
    let machines = world.cloud.machines();
    let names: Vec<_> = machines.iter().map(|machine| machine.id.as_str()).collect();
    let named = proxy.status.and_then(|status| status.provider_id).unwrap_or_default();
    if names != [named.as_str()] {
        return Err(format!("status names {named}, the cloud has {names:?}"));
    }
    world.check()
}
