//! Random schedules, then calm: nothing leaked, nothing doubled, nothing stuck.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::provider::InstanceState;
use futures::StreamExt;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::gate::Fates;
use crate::operator::{Access, World};
use crate::provider::Component;
use crate::schedule::{Event, NAMES, Schedule};
use crate::settings::{Settings, log_if_asked, say};
use crate::wiring::is_ready;

const AT_ONCE: usize = 24;
/// Calm takes 2 to 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);
const THEIRS: &str = "example.com/theirs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_schedule_calm_ends_with_one_machine_per_living_proxy_and_no_other() {
    let Some(access) = Access::open().await else { return };
    let settings = Settings::read();
    log_if_asked();
    say(&format!("random schedules: {} from seed {}", settings.schedules, settings.seed));
    let seeds = (0..settings.schedules).map(|number| settings.seed.wrapping_add(number));
    let runs = futures::stream::iter(seeds).map(|seed| run(&access, Schedule::of_seed(seed)));
    let mut runs = std::pin::pin!(runs.buffer_unordered(AT_ONCE));
    let (mut failures, mut totals, mut done) = (Vec::new(), BTreeMap::<&'static str, u64>::new(), 0_u64);
    while let Some(run) = runs.next().await {
        done += 1;
        for (name, count) in &run.counts {
            *totals.entry(name).or_default() += count;
        }
        if let Err(error) = run.result {
            let again = format!("CHAOS_SEED={} CHAOS_SCHEDULES=1 make chaos", run.seed);
            say(&format!("FAILED seed {}: {error}\nagain: {again}", run.seed));
            failures.push(run.seed);
        }
        if done.is_multiple_of(50) {
            say(&format!("{done} schedules, {} failed", failures.len()));
        }
    }
    say(&format!("{done} schedules from seed {}, {} failed: {totals:#?}", settings.seed, failures.len()));
    assert!(failures.is_empty(), "seeds that failed: {failures:?}");
}

struct Run {
    seed: u64,
    counts: BTreeMap<&'static str, u64>,
    result: Result<(), String>,
}

async fn run(access: &Access, schedule: Schedule) -> Run {
    let world = World::new(access, "random", Fates::of_seed(schedule.seed)).await;
    let (kill, killed) = mpsc::channel(1);
    let result = tokio::select! {
        result = story(&world, &schedule, kill) => result,
        () = operators(&world, killed) => unreachable!(),
    };
    let mut counts = world.fates.struck();
    counts.insert("effects", u64::try_from(world.fates.seen().len()).unwrap());
    counts.insert("machines made", world.cloud.born());
    counts.insert("events", u64::try_from(schedule.events.len()).unwrap());
    let kills = schedule.events.iter().filter(|(_, event)| *event == Event::Kill).count();
    counts.insert("operators killed", u64::try_from(kills).unwrap());
    let result = result.map_err(|error| format!("{error}\n{schedule}\n  {}", world.cloud.story()));
    Run { seed: schedule.seed, counts, result }
}

/// An operator runs, and a new one after each that ended or was killed.
async fn operators(world: &World, mut killed: mpsc::Receiver<Duration>) {
    loop {
        let operator = world.start();
        let down = tokio::select! {
            () = operator.ended() => Duration::from_millis(50),
            down = killed.recv() => down.unwrap_or_default(),
        };
        tokio::time::sleep(down).await;
    }
}

async fn story(world: &World, schedule: &Schedule, kill: mpsc::Sender<Duration>) -> Result<(), String> {
    world.put_secret("0", true).await;
    for (wait, event) in &schedule.events {
        tokio::time::sleep(Duration::from_millis(*wait)).await;
        happen(world, *event, &kill).await;
        world.check_doubles()?;
    }
    calm(world).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let missing = settles(world).await;
        world.check_doubles()?;
        match missing {
            Ok(()) => return Ok(()),
            Err(missing) if Instant::now() > deadline => return Err(format!("stuck: {missing}")),
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
}

/// As it should be, and it stays so without another machine being made: a Secret that was rotated just now may
/// still be news to the operator.
async fn settles(world: &World) -> Result<(), String> {
    settled(world).await?;
    let born = world.cloud.born();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    settled(world).await?;
    if world.cloud.born() == born { Ok(()) } else { Err("machines are made at rest".to_owned()) }
}

async fn happen(world: &World, event: Event, kill: &mpsc::Sender<Duration>) {
    match event {
        Event::Create(name) => drop(world.create(name, spec(name, 3128)).await),
        Event::Delete(name) => world.delete(name).await,
        Event::Recreate(name) => {
            world.delete(name).await;
            let free = world.until(name, |object| object.is_none());
            drop(tokio::time::timeout(Duration::from_millis(800), free).await);
            drop(world.create(name, spec(name, 3129)).await);
        }
        Event::Port(name, port) => world.patch(name, json!({"spec": {"port": port}})).await,
        Event::Size(name, size) => {
            world.patch(name, json!({"spec": {"parameters": {"size": size}}})).await;
        }
        Event::Suspend(name, suspend) => world.patch(name, json!({"spec": {"suspend": suspend}})).await,
        Event::Label(name, value) => {
            world.patch(name, json!({"metadata": {"labels": {"team": value.to_string()}}})).await;
        }
        Event::Finalizer(name, there) => world.finalizer(name, THEIRS, there).await,
        Event::Rotate(text) => world.put_secret(&text.to_string(), true).await,
        Event::Secret(visible) => world.put_secret("0", visible).await,
        Event::Provider(component) => world.shelf.put(component),
        Event::Vanish(which) => world.cloud.harm(which, false),
        Event::Stop(which) => world.cloud.harm(which, true),
        Event::Weather(percent) => world.fates.weather(percent),
        Event::Kill => drop(kill.send(Duration::from_millis(100)).await),
        Event::EndIn(effects, way) => world.fates.ends_in(effects, way),
    }
}

/// Half of them are made from a Secret too.
fn spec(name: &str, port: u16) -> Value {
    if name == NAMES[1] || name == NAMES[2] {
        let cloud_init = json!({"secretRef": {"name": "boot", "key": "text"}});
        return json!({"mode": "Managed", "provider": "fake", "port": port, "cloudInit": cloud_init});
    }
    json!({"mode": "Managed", "provider": "fake", "port": port})
}

/// Everything outside is well again, and users put right what they got wrong.
async fn calm(world: &World) {
    world.fates.weather(0);
    world.shelf.put(Component::Ready);
    world.put_secret("0", true).await;
    for name in NAMES {
        world.finalizer(name, THEIRS, false).await;
        world.patch(name, json!({"spec": {"parameters": {"size": 1}}})).await;
    }
}

/// One machine per living Proxy, named by its status; no other. Says what is missing.
async fn settled(world: &World) -> Result<(), String> {
    let proxies = world.list().await;
    let machines = world.cloud.machines();
    let mut named = BTreeSet::new();
    for proxy in &proxies {
        named.insert(machine_of(proxy)?);
    }
    let there: BTreeSet<_> = machines.iter().map(|machine| machine.id.as_str().to_owned()).collect();
    if there != named {
        return Err(format!("the cloud has {there:?}, the Proxies name {named:?}"));
    }
    let running = machines.iter().all(|machine| machine.state == InstanceState::Running);
    if !running || world.cloud.landing() != 0 {
        return Err(format!("not at rest: {machines:?}"));
    }
    Ok(())
}

fn machine_of(proxy: &Proxy) -> Result<String, String> {
    let status = proxy.status.clone().unwrap_or_default();
    let current = status.observed_generation == proxy.metadata.generation;
    if proxy.metadata.deletion_timestamp.is_some() || !is_ready(proxy) || !current {
        return Err(format!("{}: {:#?} {status:#?}", proxy.name_any(), proxy.metadata));
    }
    let id = status.provider_id.unwrap_or_default();
    let uid = proxy.uid().unwrap_or_default();
    if id.contains(&uid) { Ok(id) } else { Err(format!("{} of uid {uid} names {id}", proxy.name_any())) }
}
