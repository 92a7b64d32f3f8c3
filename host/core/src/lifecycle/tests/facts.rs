use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::crd::{Phase, Proxy, ProxyStatus};
use crate::facts::{Auth, Machine, ProxyFacts};
use crate::ids::Incarnation;
use crate::lifecycle::{FactsInput, facts_of};
use crate::provider::ProviderSettings;

fn proxy(spec: &str, status: ProxyStatus) -> Proxy {
    let mut proxy = Proxy::new("p", serde_json::from_str(spec).unwrap());
    proxy.metadata.namespace = Some("crawl".to_owned());
    proxy.metadata.uid = Some("u1".to_owned());
    proxy.status = Some(status);
    proxy
}

fn ready() -> ProxyStatus {
    ProxyStatus {
        phase: Phase::Ready,
        provider_id: Some("m1".to_owned()),
        incarnation: Some("i1".to_owned()),
        ip: Some("10.0.0.1".to_owned()),
        port: Some(3128),
        latency_millis: Some(30),
        conditions: vec![Condition {
            type_: "Healthy".to_owned(),
            status: "True".to_owned(),
            reason: "ProbeSucceeded".to_owned(),
            message: String::new(),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            observed_generation: None,
        }],
        ..ProxyStatus::default()
    }
}

const MANAGED: &str = r#"{"mode":"Managed","provider":"gcp","attributes":{"geo":"de"}}"#;
const EXTERNAL: &str =
    r#"{"mode":"External","endpoint":{"host":"::1","port":8080},"healthCheck":{"url":"http://own/"}}"#;

fn input() -> FactsInput<'static> {
    FactsInput { auth: Auth::None, provider: None, default_probe_url: None, ca_pem: None, running: None }
}

fn facts(proxy: &Proxy, input: FactsInput<'_>) -> ProxyFacts {
    facts_of(proxy, input).unwrap()
}

fn machine(incarnation: &str) -> Machine {
    Machine {
        incarnation: Incarnation::parse(incarnation).unwrap(),
        address: "10.0.0.2".to_owned(),
        port: 3128,
    }
}

#[test]
fn a_managed_proxy_has_the_machine_that_its_status_shows() {
    let facts = facts(&proxy(MANAGED, ready()), input());
    assert_eq!(facts.machine.unwrap().address, "10.0.0.1");
    assert_eq!(facts.healthy, Some(true));
    assert_eq!(facts.latency, Some(Duration::from_millis(30)));
    assert_eq!(facts.probe, None);
}

#[test]
fn a_machine_that_is_replaced_or_deleted_is_out_of_reach() {
    let replacing = ProxyStatus { phase: Phase::Replacing, ip: None, port: None, ..ready() };
    let running = Some(machine("i1"));
    let hidden = facts(&proxy(MANAGED, replacing), FactsInput { running: running.clone(), ..input() });
    assert_eq!(hidden.machine, None);
    assert_eq!(hidden.healthy, None);
    let mut deleted = proxy(MANAGED, ready());
    deleted.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let deleted = facts(&deleted, FactsInput { running, ..input() });
    assert_eq!(deleted.machine, None);
    assert!(deleted.deleting);
}

#[test]
fn a_machine_that_drains_is_probed_and_handed_out_no_more() {
    let draining = ProxyStatus { phase: Phase::Replacing, ..ready() };
    let facts = facts(&proxy(MANAGED, draining), input());
    assert_eq!(facts.machine.as_ref().map(|machine| machine.address.as_str()), Some("10.0.0.1"));
    assert_eq!(facts.healthy, Some(true), "its verdict goes on");
    assert_eq!((facts.staying_machine(), facts.serves()), (None, false));
}

#[test]
fn a_machine_serves_while_it_is_healthy_and_stays_whatever_the_phase_says_of_its_spec() {
    let of =
        |phase, ready: ProxyStatus| facts(&proxy(MANAGED, ProxyStatus { phase, ..ready }), input()).serves();
    assert!(of(Phase::Ready, ready()));
    assert!(of(Phase::Failed, ready()), "its new spec was refused, the old machine goes on");
    let mut sick = ready();
    sick.conditions[0].status = "False".to_owned();
    assert!(!of(Phase::Unhealthy, sick));
    assert!(!of(Phase::Ready, ProxyStatus { ip: None, ..ready() }));
}

#[test]
fn the_leader_probes_a_running_machine_before_its_status_is_written() {
    let provisioning = ProxyStatus {
        phase: Phase::Provisioning,
        provider_id: Some("m1".to_owned()),
        ..ProxyStatus::default()
    };
    let early = facts(&proxy(MANAGED, provisioning), FactsInput { running: Some(machine("i2")), ..input() });
    assert_eq!(early.machine, Some(machine("i2")));
    assert_eq!(early.healthy, None);
    let later = facts(&proxy(MANAGED, ready()), FactsInput { running: Some(machine("i2")), ..input() });
    assert_eq!(later.machine.unwrap().incarnation.as_str(), "i1", "once it is written the status decides");
}

#[test]
fn an_external_proxy_is_where_its_spec_says() {
    let facts = facts(&proxy(EXTERNAL, ProxyStatus::default()), input());
    let machine = facts.machine.unwrap();
    assert_eq!((machine.address.as_str(), machine.port), ("::1", 8080));
    assert_eq!(machine.incarnation.as_str(), "::1:8080");
    assert_eq!(facts.provider, None);
}

#[test]
fn the_verdict_in_status_goes_on_only_for_the_endpoint_that_it_is_about() {
    for (ip, port, healthy, latency) in [
        (Some("::1"), Some(8080), Some(true), Some(30)),
        (Some("::2"), Some(8080), None, None),
        (Some("::1"), Some(8081), None, None),
        (None, None, None, None),
    ] {
        let status = ProxyStatus { incarnation: None, ip: ip.map(str::to_owned), port, ..ready() };
        let facts = facts(&proxy(EXTERNAL, status), input());
        assert_eq!(facts.healthy, healthy, "{ip:?} {port:?}");
        assert_eq!(facts.latency, latency.map(Duration::from_millis), "{ip:?} {port:?}");
    }
}

#[test]
fn the_verdict_in_status_is_not_that_of_another_address_of_the_same_machine() {
    let mut proxy = proxy(MANAGED, ready());
    proxy.status.as_mut().unwrap().phase = Phase::Provisioning;
    for (running, healthy) in [
        (Machine { address: "10.0.0.1".to_owned(), ..machine("i1") }, Some(true)),
        (machine("i1"), None),
        (Machine { address: "10.0.0.1".to_owned(), port: 8080, ..machine("i1") }, None),
        (Machine { address: "10.0.0.1".to_owned(), ..machine("i2") }, None),
    ] {
        let facts = facts(&proxy, FactsInput { running: Some(running.clone()), ..input() });
        assert_eq!(facts.machine, Some(running.clone()));
        assert_eq!(facts.healthy, healthy, "{running:?}");
        assert_eq!(facts.latency.is_some(), healthy.is_some(), "{running:?}");
    }
}

#[test]
fn the_probe_url_is_the_proxys_then_the_providers_then_the_flags() {
    let settings =
        ProviderSettings { probe_url: Some("http://provider/".to_owned()), ..ProviderSettings::default() };
    let url = |spec: &str, provider: Option<&ProviderSettings>, flag: Option<&str>| {
        let input = FactsInput { provider, default_probe_url: flag, ..input() };
        facts(&proxy(spec, ready()), input).probe.map(|plan| plan.url)
    };
    assert_eq!(url(EXTERNAL, Some(&settings), Some("http://flag/")).as_deref(), Some("http://own/"));
    assert_eq!(url(MANAGED, Some(&settings), Some("http://flag/")).as_deref(), Some("http://provider/"));
    assert_eq!(url(MANAGED, None, Some("http://flag/")).as_deref(), Some("http://flag/"));
    assert_eq!(url(MANAGED, None, None), None);
}

#[test]
fn attributes_of_the_proxy_win_over_those_of_its_provider() {
    let attributes =
        BTreeMap::from([("geo", "us"), ("tier", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    let settings = ProviderSettings { attributes, ..ProviderSettings::default() };
    let facts = facts(&proxy(MANAGED, ready()), FactsInput { provider: Some(&settings), ..input() });
    assert_eq!(facts.attributes["geo"], "de");
    assert_eq!(facts.attributes["tier"], "1");
}

#[test]
fn a_probe_knows_the_networks_of_the_provider_and_none_of_one_that_is_gone() {
    let settings = ProviderSettings {
        address_cidrs: ["10.0.0.0/8".parse().unwrap()].into(),
        ..ProviderSettings::default()
    };
    let networks = |provider| {
        let input = FactsInput { provider, default_probe_url: Some("http://flag/"), ..input() };
        facts(&proxy(MANAGED, ready()), input).probe.unwrap().networks
    };
    assert_eq!(networks(Some(&settings)), settings.address_cidrs);
    assert!(networks(None).is_empty());
}

#[test]
fn a_probe_never_takes_longer_than_its_interval() {
    let spec = r#"{"mode":"Managed","provider":"gcp","healthCheck":{"url":"http://x/","intervalSeconds":5,"timeoutSeconds":9}}"#;
    let plan = facts(&proxy(spec, ready()), input()).probe.unwrap();
    assert_eq!((plan.interval, plan.timeout), (Duration::from_secs(5), Duration::from_secs(5)));
    assert_eq!(plan.expected_status, [200]);
}
