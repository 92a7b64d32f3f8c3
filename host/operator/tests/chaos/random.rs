//! Random schedules, then calm: nothing leaked, nothing doubled, nothing stuck.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::provider::{Instance, InstanceState};
use egress_proxies_operator::clock::{Clock, SystemClock};
use futures::StreamExt;
use kube::ResourceExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::accounts::Evidence;
use crate::gate::Fates;
use crate::happen::{calm, happen};
use crate::operator::{Access, World};
use crate::schedule::{Event, Schedule};
use crate::settings::{Settings, log_if_asked, say};
use crate::wiring::is_ready;
use crate::witness::Witness;

const AT_ONCE: usize = 24;
/// Calm takes 5 to 10 s on an idle machine: it is an edit of all Proxies, and one or two may be away at once. Room
/// that was given and not used is free again after 90 s.
const PATIENCE: Duration = Duration::from_mins(4);
/// So many schedules meet everything that schedules have.
const MANY: u64 = 100;
/// What that is.
const MET: [&str; 10] = [
    "broken off by a pause when they had happened",
    "deletes of a machine with a lease, for a cause",
    "drains",
    "fair worlds with as many away as may be",
    "held back by a pause",
    "leases",
    "machines left behind on purpose",
    "operators killed",
    "pauses",
    "replace values that a machine went for",
];
/// In so many worlds of a hundred the witness may have missed something, so that some accounts say nothing.
const GAPS: u64 = 5;
const WITH_GAPS: &str = "worlds that were not seen all the time";

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
    let unmet: Vec<_> = MET.iter().filter(|name| totals.get(*name).is_none_or(|count| *count == 0)).collect();
    assert!(done < MANY || unmet.is_empty(), "{done} schedules without {unmet:?}");
    let gaps = totals.get(WITH_GAPS).copied().unwrap_or_default();
    assert!(done < MANY || gaps * 100 <= done * GAPS, "{gaps} {WITH_GAPS}");
}

struct Run {
    seed: u64,
    counts: BTreeMap<&'static str, u64>,
    result: Result<(), String>,
}

async fn run(access: &Access, schedule: Schedule) -> Run {
    let fates = Fates::of_seed(schedule.seed);
    let world = World::with(access, "random", fates, schedule.terms.replacement).await;
    let witness = Witness::default();
    let (kill, killed) = mpsc::channel(1);
    let result = tokio::select! {
        result = story(&world, &witness, &schedule, kill) => result,
        () = operators(&world, killed, schedule.terms.fair) => unreachable!(),
        () = witness.watch(&world, &schedule.terms) => unreachable!(),
    };
    let mut counts = world.fates.struck();
    counts.insert("effects", u64::try_from(world.fates.seen().len()).unwrap());
    counts.insert("machines made", world.cloud.born());
    counts.insert("events", u64::try_from(schedule.events.len()).unwrap());
    let kills = schedule.events.iter().filter(|(_, event)| *event == Event::Kill).count();
    counts.insert("operators killed", u64::try_from(kills).unwrap());
    let result = match result {
        Ok(accounts) => {
            counts.extend(accounts);
            counts.insert(WITH_GAPS, u64::from(witness.seen().has_gaps()));
            Ok(())
        }
        Err(error) => Err(format!("{error}\n{schedule}\n  {}", world.cloud.story())),
    };
    Run { seed: schedule.seed, counts, result }
}

/// An operator runs, and a new one after each that ended or was killed. In a fair schedule none is killed while a
/// write is under way: such a write may land when the next one has looked around.
async fn operators(world: &World, mut killed: mpsc::Receiver<Duration>, fair: bool) {
    loop {
        let mut operator = world.start();
        let down = tokio::select! {
            () = operator.has_ended() => Duration::from_millis(50),
            down = killed.recv() => down.unwrap_or_default(),
        };
        if fair {
            operator.end_between_writes().await;
        } else {
            operator.end().await;
        }
        tokio::time::sleep(down).await;
    }
}

async fn story(
    world: &World,
    witness: &Witness,
    schedule: &Schedule,
    kill: mpsc::Sender<Duration>,
) -> Result<BTreeMap<&'static str, u64>, String> {
    world.put_secret("0", true).await;
    witness.begun().await;
    for (wait, event) in &schedule.events {
        tokio::time::sleep(Duration::from_millis(*wait)).await;
        happen(world, *event, &kill).await;
        world.check()?;
    }
    calm(world, &schedule.terms).await;
    let deadline = Instant::now() + PATIENCE;
    let evidence = || evidence(world, witness, schedule);
    loop {
        let missing = settles(world, &evidence).await;
        world.check()?;
        match missing {
            Ok(left) => {
                let mut counts = evidence().accounts()?;
                counts.insert("machines left behind on purpose", left);
                return Ok(counts);
            }
            Err(missing) if Instant::now() > deadline => {
                return Err(format!("stuck: {missing}; accounts: {:?}", evidence().accounts()));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    }
}

fn evidence(world: &World, witness: &Witness, schedule: &Schedule) -> Evidence {
    Evidence {
        record: world.cloud.record(),
        done: world.books.done(),
        held: world.clients.held(),
        seen: witness.seen(),
        terms: schedule.terms,
        torn: world.fates.torn(),
        now: (Instant::now(), SystemClock::start().now().wall),
    }
}

/// As it should be, and it stays so without another machine being made: a Secret that was rotated just now may
/// still be news to the operator. How many machines were left behind.
async fn settles(world: &World, evidence: &impl Fn() -> Evidence) -> Result<u64, String> {
    settled(world, evidence()).await?;
    let born = world.cloud.born();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let left = settled(world, evidence()).await?;
    if world.cloud.born() == born { Ok(left) } else { Err("machines are made at rest".to_owned()) }
}

/// One machine per living Proxy, named by its status, and those that people said may be left behind; no other.
/// Says what is missing, or how many are of the second kind.
async fn settled(world: &World, evidence: Evidence) -> Result<u64, String> {
    let proxies = world.list().await;
    let mut named = BTreeSet::new();
    for proxy in &proxies {
        named.insert(machine_of(proxy)?);
    }
    let is_named = |machine: &Instance| named.contains(machine.id.as_str());
    let (theirs, others): (Vec<_>, Vec<_>) = world.cloud.machines().into_iter().partition(is_named);
    if theirs.len() != named.len() {
        return Err(format!("the Proxies name {named:?}, the cloud has of these {theirs:?}"));
    }
    if let Some(other) = others.iter().find(|machine| !evidence.may_be_left(machine)) {
        return Err(format!("nobody's machine, and nobody said that it may be left behind: {other:?}"));
    }
    let running = theirs.iter().all(|machine| machine.state == InstanceState::Running);
    if !running || world.cloud.landing() != 0 {
        return Err(format!("not at rest: {theirs:?}"));
    }
    evidence.values_are_settled()?;
    Ok(u64::try_from(others.len()).unwrap())
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
