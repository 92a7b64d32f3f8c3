//! The conditions table of `docs/lifecycle.md`, row by row, and what is worth a write.

use std::time::Duration;

use super::*;
use crate::crd::{ConditionType, HealthCheckSpec, Mode, Phase, ProxySpec};
use crate::ids::{ProxyKey, ProxyUid};
use crate::time::Moment;

fn object() -> ObjectFacts {
    let spec: ProxySpec = ProxySpec {
        mode: Mode::External,
        provider: None,
        placement: None,
        parameters: None,
        cloud_init: None,
        port: None,
        endpoint: Some(crate::crd::EndpointSpec {
            host: "192.0.2.7".to_owned(),
            port: 3128,
            protocol: Default::default(),
        }),
        auth: None,
        attributes: Default::default(),
        max_leases: None,
        max_leases_per_target: None,
        suspend: false,
        health_check: HealthCheckSpec::default(),
    };
    ObjectFacts {
        key: ProxyKey::new("crawl", "p"),
        uid: ProxyUid::parse("u1").unwrap(),
        generation: 4,
        resource_version: "1".to_owned(),
        deleting: false,
        finalizers: Vec::new(),
        spec_hash: None,
        planned_id: None,
        planned_scope: None,
        replace_nonce: None,
        abandon: false,
        spec,
        status: ProxyStatus::default(),
    }
}

fn at(seconds: i64) -> Now {
    let wall = jiff::Timestamp::from_second(1_800_000_000 + seconds).unwrap();
    Now { wall, mono: Moment::after_start(Duration::from_secs(1000)) }
}

fn verdict(healthy: bool, incarnation: &str) -> Verdict {
    Verdict {
        machine: Machine {
            incarnation: Incarnation::parse(incarnation).unwrap(),
            address: if incarnation.contains(':') { "192.0.2.7" } else { "10.0.0.1" }.to_owned(),
            port: 3128,
        },
        healthy,
        reason: if healthy { "ProbeSucceeded" } else { "Refused" },
        message: "as the probe said".to_owned(),
        latency: healthy.then(|| Duration::from_millis(100)),
        probed_at: at(0).wall,
    }
}

fn running() -> RecordedMachine {
    RecordedMachine {
        id: InstanceId::parse("m1").unwrap(),
        scope: Some("projects/p".to_owned()),
        incarnation: Some(Incarnation::parse("i1").unwrap()),
        running: Some(Machine {
            incarnation: Incarnation::parse("i1").unwrap(),
            address: "10.0.0.1".to_owned(),
            port: 3128,
        }),
    }
}

fn intent(stage: Stage) -> StatusIntent {
    let machine = matches!(stage, Stage::Running | Stage::Draining(_)).then(running);
    StatusIntent { stage, machine, latch: None, current: true }
}

fn condition(status: &ProxyStatus, kind: ConditionType) -> String {
    let condition = conditions::find(status, kind).unwrap();
    assert_eq!(condition.observed_generation, Some(4));
    assert!(!condition.reason.is_empty());
    format!("{}/{}", condition.status, condition.reason)
}

fn reason_named(name: &str) -> ProvisionedReason {
    use ProvisionedReason as R;
    [
        R::QuotaExceeded,
        R::CloudInitError,
        R::AuthError,
        R::ProviderUnavailable,
        R::OutOfScope,
        R::Denied,
        R::Missing,
        R::Retrying,
        R::PermanentError,
        R::NameConflict,
        R::Abandoned,
    ]
    .into_iter()
    .find(|reason| reason.as_str() == name)
    .unwrap_or_else(|| panic!("no reason {name}"))
}

fn stage_named(name: &str) -> Stage {
    match name.split_once(", ") {
        Some(("Blocked", reason)) => Stage::Blocked(reason_named(reason), "why".to_owned()),
        Some(("External", reason)) => Stage::External(Some((reason_named(reason), "why".to_owned()))),
        Some(("Deleting", reason)) => Stage::Deleting(Some((reason_named(reason), "why".to_owned()))),
        Some(_) => panic!("no stage {name}"),
        None => match name {
            "Creating" => Stage::Creating,
            "Provisioning" => Stage::Provisioning(None),
            "Running" => Stage::Running,
            "External" => Stage::External(None),
            "Draining" => Stage::Draining("why".to_owned()),
            "Replacing" => Stage::Replacing("why".to_owned()),
            "Deleting" => Stage::Deleting(None),
            other => panic!("no stage {other}"),
        },
    }
}

#[test]
fn each_row_of_the_conditions_table_holds() {
    let document = include_str!("../../../../../docs/lifecycle.md");
    let table = document.split("## Conditions").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| stage"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 30);
    for row in rows {
        let [stage, health, phase, provisioned, healthy, ready] = row[..] else { panic!("{row:?}") };
        let identity = if stage.starts_with("External") { "192.0.2.7:3128" } else { "i1" };
        let verdicts = match health {
            "good" => vec![Some(verdict(true, identity))],
            "bad" => vec![Some(verdict(false, identity))],
            "no verdict" => vec![None, Some(verdict(true, "another machine".split(' ').next().unwrap()))],
            "no URL" => vec![None, Some(verdict(true, identity))],
            "any" => vec![None, Some(verdict(true, identity)), Some(verdict(false, identity))],
            other => panic!("no health {other}"),
        };
        for verdict in verdicts {
            let view = HealthView { configured: health != "no URL", verdict: verdict.as_ref() };
            let status = render(&object(), &intent(stage_named(stage)), view, at(0));
            assert_eq!(format!("{:?}", status.phase), phase, "{row:?}");
            assert_eq!(condition(&status, ConditionType::Provisioned), provisioned, "{row:?}");
            assert_eq!(condition(&status, ConditionType::Healthy), healthy, "{row:?}");
            assert_eq!(condition(&status, ConditionType::Ready), ready, "{row:?}");
            assert_eq!(status.reason.as_deref(), ready.split('/').nth(1), "{row:?}");
            assert_eq!(status.observed_generation, Some(4));
        }
    }
}

fn ready() -> ObjectFacts {
    let good = verdict(true, "i1");
    let view = HealthView { configured: true, verdict: Some(&good) };
    let mut object = object();
    object.status = render(&object, &intent(Stage::Running), view, at(0));
    object
}

#[test]
fn the_message_about_a_missing_probe_url_names_the_three_places() {
    let view = HealthView { configured: false, verdict: None };
    let status = render(&object(), &intent(Stage::Running), view, at(0));
    let message = &conditions::find(&status, ConditionType::Healthy).unwrap().message;
    for place in ["spec.healthCheck.url", "providers config", "flag --probe-url"] {
        assert!(message.contains(place), "{message}");
    }
}

#[test]
fn a_transition_time_moves_only_with_the_value() {
    let object = ready();
    let bad = verdict(false, "i1");
    let view = HealthView { configured: true, verdict: Some(&bad) };
    let status = render(&object, &intent(Stage::Running), view, at(60));
    let time = |kind| conditions::find(&status, kind).unwrap().last_transition_time.0;
    assert_eq!(time(ConditionType::Provisioned), at(0).wall);
    assert_eq!(time(ConditionType::Healthy), at(60).wall);
    assert_eq!(time(ConditionType::Ready), at(60).wall);
}

#[test]
fn the_same_state_at_another_time_is_not_written() {
    let object = ready();
    let good = Verdict { probed_at: at(500).wall, ..verdict(true, "i1") };
    let view = HealthView { configured: true, verdict: Some(&good) };
    assert!(!needs_write(&object.status, &render(&object, &intent(Stage::Running), view, at(600))));
    let restarted = HealthView { configured: true, verdict: None };
    let status = render(&object, &intent(Stage::Running), restarted, at(600));
    assert_eq!(status, object.status, "the conditions go on after a restart");
}

#[test]
fn only_a_real_change_of_latency_is_written() {
    let object = ready();
    let with = |millis| {
        let latency = Some(Duration::from_millis(millis));
        let good = Verdict { latency, ..verdict(true, "i1") };
        let view = HealthView { configured: true, verdict: Some(&good) };
        needs_write(&object.status, &render(&object, &intent(Stage::Running), view, at(0)))
    };
    assert!(!with(100));
    assert!(!with(150));
    assert!(with(151));
    assert!(with(49));
}

#[test]
fn a_new_incarnation_starts_without_a_verdict() {
    let object = ready();
    let mut intent = intent(Stage::Running);
    let next = Incarnation::parse("i2").unwrap();
    if let Some(machine) = intent.machine.as_mut().and_then(|machine| machine.running.as_mut()) {
        machine.incarnation = next;
    }
    let old = verdict(true, "i1");
    let view = HealthView { configured: true, verdict: Some(&old) };
    let status = render(&object, &intent, view, at(0));
    assert_eq!(condition(&status, ConditionType::Ready), "False/NotProbedYet");
    assert_eq!((status.latency_millis, status.last_health_check_time), (None, None));
}

#[test]
fn an_outage_of_the_provider_keeps_a_ready_machine_ready_even_without_its_probe_url() {
    let object = ready();
    let why = (ProvisionedReason::ProviderUnavailable, "not in the providers config".to_owned());
    for configured in [true, false] {
        let view = HealthView { configured, verdict: None };
        let status = render(&object, &intent(Stage::Kept(Some(why.clone()))), view, at(9));
        assert_eq!(status.phase, Phase::Ready);
        assert_eq!(condition(&status, ConditionType::Provisioned), "True/ProviderUnavailable");
        assert_eq!(condition(&status, ConditionType::Ready), "True/ProbeSucceeded");
        assert_eq!(status.ip, object.status.ip);
    }
}

#[test]
fn a_deletion_keeps_the_name_of_the_machine_and_hides_its_address() {
    let status = render(
        &ready(),
        &intent(Stage::Deleting(None)),
        HealthView { configured: true, verdict: None },
        at(9),
    );
    assert_eq!(status.provider_id.as_deref(), Some("m1"));
    assert_eq!((status.ip, status.port), (None, None));
}

#[test]
fn a_stage_that_leaves_the_status_alone_changes_nothing() {
    let mut object = ready();
    object.generation = 5;
    let view = HealthView { configured: true, verdict: None };
    assert_eq!(render(&object, &intent(Stage::Untouched), view, at(9)), object.status);
}

fn generations(status: &ProxyStatus) -> Vec<Option<i64>> {
    let conditions = status.conditions.iter().map(|condition| condition.observed_generation);
    conditions.chain([status.observed_generation]).collect()
}

#[test]
fn a_machine_that_may_be_of_another_spec_keeps_the_generation_that_it_was_ready_for() {
    let mut object = ready();
    object.generation = 5;
    let good = verdict(true, "i1");
    let view = HealthView { configured: true, verdict: Some(&good) };
    let why = (ProvisionedReason::ProviderUnavailable, "not in the providers config".to_owned());
    for stage in [Stage::Kept(None), Stage::Kept(Some(why)), Stage::Running, Stage::Provisioning(None)] {
        let unknown = StatusIntent { current: false, ..intent(stage.clone()) };
        assert_eq!(generations(&render(&object, &unknown, view, at(9))), [Some(4); 4], "{stage:?}");
        let current = StatusIntent { current: true, ..unknown.clone() };
        assert_eq!(generations(&render(&object, &current, view, at(9))), [Some(5); 4], "{stage:?}");
        let latched = StatusIntent { latch: Some("v1-ab".to_owned()), ..unknown };
        assert_eq!(generations(&render(&object, &latched, view, at(9))), [Some(5); 4], "{stage:?}");
    }
    let unknown = StatusIntent { current: false, ..intent(Stage::Kept(None)) };
    assert!(!needs_write(&object.status, &render(&object, &unknown, view, at(9))), "nothing new to say");
}

#[test]
fn another_address_of_the_same_machine_starts_without_a_verdict() {
    let object = ready();
    for (address, port) in [("10.0.0.2", 3128), ("10.0.0.1", 8080)] {
        let mut intent = intent(Stage::Running);
        if let Some(machine) = intent.machine.as_mut().and_then(|machine| machine.running.as_mut()) {
            (machine.address, machine.port) = (address.to_owned(), port);
        }
        let old = verdict(true, "i1");
        for verdict in [None, Some(&old)] {
            let view = HealthView { configured: true, verdict };
            let status = render(&object, &intent, view, at(0));
            assert_eq!(condition(&status, ConditionType::Ready), "False/NotProbedYet", "{address}:{port}");
            assert_eq!((status.latency_millis, status.last_health_check_time), (None, None));
        }
    }
}

/// What an ordinary life shows; the table in the document is about what deserves a look.
const ORDINARY: [&str; 6] =
    ["Creating", "Provisioning", "Created", "ExternalEndpoint", "Replacing", "Deleting"];

#[test]
fn each_reason_that_deserves_a_look_says_in_the_operations_document_where_to() {
    let document = include_str!("../../../../../docs/operations.md");
    let code = include_str!("phase.rs").lines().filter_map(|line| line.trim().split_once(" => \""));
    let reasons: Vec<&str> = code
        .filter(|(variant, _)| variant.starts_with("Self::"))
        .filter_map(|(_, text)| text.strip_suffix("\","))
        .collect();
    assert!(reasons.contains(&ProvisionedReason::Retrying.as_str()), "{reasons:?}");
    for reason in reasons.into_iter().filter(|reason| !ORDINARY.contains(reason)) {
        let row = |line: &str| line.starts_with("| ") && line.contains(&format!("`{reason}`"));
        assert!(document.lines().any(row), "docs/operations.md has no row for {reason}");
    }
}
