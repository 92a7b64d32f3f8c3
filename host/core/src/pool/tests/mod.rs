//! The lines of the tables in `docs/pool.md`, and properties under random interleavings.

mod leases;
mod properties;
mod reports;
mod selection;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::crd::{Mode, Phase};
use crate::facts::{Auth, Fleet, Machine, ProxyFacts};
use crate::ids::{Incarnation, LeaseId, ProxyKey, ProxyUid};
use crate::time::{Moment, Now};

/// A healthy proxy without limits, `default/<name>`, on machine `<name>-m1`.
fn proxy(name: &str) -> ProxyFacts {
    ProxyFacts {
        attributes: BTreeMap::from([("geo".to_owned(), "local".to_owned())]),
        phase: Phase::Ready,
        machine: Some(machine(&format!("{name}-m1"))),
        healthy: Some(true),
        latency: Some(Duration::from_millis(10)),
        ..ProxyFacts::new(ProxyKey::new("default", name), uid(name), Mode::Managed)
    }
}

fn machine(incarnation: &str) -> Machine {
    Machine {
        incarnation: Incarnation::parse(incarnation).unwrap(),
        address: "192.0.2.1".to_owned(),
        port: 3128,
    }
}

fn uid(name: &str) -> ProxyUid {
    ProxyUid::parse(name).unwrap()
}

fn fleet(proxies: impl IntoIterator<Item = ProxyFacts>) -> Fleet {
    let proxies = proxies.into_iter().map(|facts| (facts.uid.clone(), Arc::new(facts))).collect();
    Fleet { ready: true, proxies: Arc::new(proxies) }
}

fn with(name: &str, change: impl FnOnce(&mut ProxyFacts)) -> ProxyFacts {
    let mut facts = proxy(name);
    change(&mut facts);
    facts
}

fn at(seconds: u64) -> Now {
    Now { wall: jiff::Timestamp::from_second(1_800_000_000).unwrap() + span(seconds), mono: moment(seconds) }
}

fn span(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn moment(seconds: u64) -> Moment {
    Moment::after_start(span(seconds))
}

fn id(text: &str) -> LeaseId {
    LeaseId::parse(text).unwrap()
}

/// For fields that are optional.
fn site(host: &str) -> Option<Target> {
    Target::parse(host).map(Some).unwrap()
}

fn order() -> Order {
    Order { ttl: span(300), ..Order::default() }
}

fn order_for(host: &str) -> Order {
    Order { target: site(host), ..order() }
}

fn order_of(session: &str) -> Order {
    Order { session: Some(session.to_owned()), ..order() }
}

fn report(outcome: Outcome) -> Report {
    Report { outcome, target: None, cooldown: None, release: false }
}

fn pool() -> Pool {
    Pool::new(DEFAULT_COOLDOWN)
}

fn name(granted: &Result<Granted, Refusal>) -> &str {
    &granted.as_ref().expect("a grant").proxy.key.name
}

fn refusal(granted: Result<Granted, Refusal>) -> NoMatch {
    match granted {
        Err(Refusal::NoMatch(why)) => why,
        other => panic!("expected no match, got {other:?}"),
    }
}
