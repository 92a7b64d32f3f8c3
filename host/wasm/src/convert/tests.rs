//! Failures and machines as a guest gives them, and what becomes of them.

use std::time::Duration;

use egress_proxies_core::provider::{Deletion, Reason};

use super::instance::{Place, instance};
use super::*;
use crate::bindings::egress_proxies::provider::model;
use crate::call::Op;
use crate::call::mask::Mask;

fn given(reason: model::Reason) -> model::Failure {
    model::Failure {
        reason,
        message: "m".into(),
        retry_after_ms: None,
        upstream_status: None,
        upstream_code: None,
        extra: Vec::new(),
    }
}

#[test]
fn each_reason_keeps_its_meaning() {
    for (from, to) in [
        (model::Reason::Transient, Reason::Transient),
        (model::Reason::Throttled, Reason::Throttled),
        (model::Reason::Quota, Reason::Quota),
        (model::Reason::Capacity, Reason::Capacity),
        (model::Reason::Denied, Reason::Denied),
        (model::Reason::Missing, Reason::Missing),
        (model::Reason::Invalid("/placement/zone".into()), Reason::Invalid("/placement/zone".into())),
        (model::Reason::NameTaken, Reason::NameTaken),
        (model::Reason::Busy, Reason::Busy),
        (model::Reason::OutOfScope, Reason::OutOfScope),
        (model::Reason::Permanent, Reason::Permanent),
        (model::Reason::Unsupported, Reason::Unsupported),
        (model::Reason::Other("odd".into()), Reason::Other("odd".into())),
        (model::Reason::StaleCursor, Reason::Transient),
    ] {
        assert_eq!(failure(given(from), Op::Create, &Mask::default()).reason, to);
    }
    assert_eq!(
        failure(given(model::Reason::NameTaken), Op::Get, &Mask::default()).reason,
        Reason::Other("name-taken".into()),
        "a name can only be taken when something is made"
    );
}

#[test]
fn retry_times_are_clamped() {
    for (asked, expected) in [(0, 1), (5_000, 5), (u32::MAX, 3600)] {
        let failure = failure(
            model::Failure { retry_after_ms: Some(asked), ..given(model::Reason::Throttled) },
            Op::Get,
            &Mask::default(),
        );
        assert_eq!(failure.retry_after, Some(Duration::from_secs(expected)));
        assert_eq!(
            deletion(model::Deletion::InProgress(Some(asked))),
            Deletion::InProgress(Some(Duration::from_secs(expected)))
        );
    }
}

#[test]
fn a_long_message_is_cut_and_an_empty_one_replaced() {
    let long = model::Failure { message: "é".repeat(5_000), ..given(model::Reason::Transient) };
    assert!(failure(long, Op::Get, &Mask::default()).message.len() <= 1024 + 3);
    let empty = model::Failure { message: " \n".into(), ..given(model::Reason::Transient) };
    assert_eq!(failure(empty, Op::Get, &Mask::default()).message, "the provider gave no message");
}

fn machine() -> model::Instance {
    model::Instance {
        id: "m".into(),
        name: "n".into(),
        incarnation: None,
        state: model::InstanceState::Running,
        endpoints: Vec::new(),
        created_at: None,
        location: None,
        problem: None,
        tags: Vec::new(),
        extra: Vec::new(),
    }
}

fn endpoint(port: u16, protocol: &str) -> model::Endpoint {
    model::Endpoint {
        address: "203.0.113.9".into(),
        port,
        protocol: protocol.into(),
        scope: "public".into(),
        credentials: None,
        extra: Vec::new(),
    }
}

#[test]
fn endpoints_are_bounded_and_of_a_known_protocol() {
    let mask = Mask::default();
    let nets = ["203.0.113.0/24".parse().unwrap()];
    let place = Place { op: Op::Create, mask: &mask, address_cidrs: &nets, port: Some(3128) };
    let given = model::Instance { endpoints: vec![endpoint(0, "http"), endpoint(1, "socks5")], ..machine() };
    let seen = instance(given, place).unwrap();
    assert_eq!(seen.endpoints.iter().map(|endpoint| endpoint.port).collect::<Vec<_>>(), [3128]);

    let given = model::Instance { endpoints: vec![endpoint(1, "http"); 9], ..machine() };
    assert!(instance(given, place).unwrap_err().message.contains("9 endpoints"));

    let bad = model::Credentials { username: "a:b".into(), password: "p".into() };
    let given = model::Instance {
        endpoints: vec![model::Endpoint { credentials: Some(bad), ..endpoint(1, "http") }],
        ..machine()
    };
    let message = instance(given, place).unwrap_err().message;
    assert!(message.contains("credentials") && !message.contains("a:b"), "{message}");
}

#[test]
fn tags_names_and_moments_are_checked() {
    let mask = Mask::default();
    let place = Place { op: Op::Get, mask: &mask, address_cidrs: &[], port: None };
    let tag = model::Pair { key: "k".into(), value: "v".into() };
    let many = model::Instance { tags: vec![tag; 129], ..machine() };
    assert!(instance(many, place).unwrap_err().message.contains("129 tags"));
    for name in ["", "a\nb", &"x".repeat(254)] {
        assert!(instance(model::Instance { name: name.into(), ..machine() }, place).is_err(), "{name:?}");
    }
    let odd = model::Instance { created_at: Some("yesterday".into()), ..machine() };
    assert_eq!(instance(odd, place).unwrap().created_at, None, "an unreadable moment is no moment");
}

#[test]
fn a_scope_and_wishes_are_checked() {
    let given = model::ConfigReport {
        scope: "s".into(),
        egress: Vec::new(),
        warnings: Vec::new(),
        extra: Vec::new(),
    };
    assert!(report(given.clone()).is_ok());
    assert!(report(model::ConfigReport { scope: String::new(), ..given.clone() }).is_err());
    let need = model::EgressNeed {
        origin: "https://user@api.example.com".into(),
        methods: vec!["GET".into()],
        path_prefix: "/".into(),
        auth: "none".into(),
        why: "w".into(),
        extra: Vec::new(),
    };
    let said = |need: model::EgressNeed| {
        report(model::ConfigReport { egress: vec![need], ..given.clone() })
            .err()
            .unwrap_or_else(|| panic!())
            .message
    };
    assert!(said(need.clone()).contains("user"));
    let need = model::EgressNeed { origin: "https://api.example.com".into(), ..need };
    assert!(report(model::ConfigReport { egress: vec![need.clone()], ..given.clone() }).is_ok());
    for (bad, word) in [
        (model::EgressNeed { auth: "none, allowCidrs: [10.0.0.0/8]".into(), ..need.clone() }, "auth"),
        (model::EgressNeed { methods: vec!["get".into()], ..need.clone() }, "\"get\" is not one of GET"),
        (model::EgressNeed { methods: Vec::new(), ..need.clone() }, "0 methods"),
        (model::EgressNeed { path_prefix: "/a, b".into(), ..need.clone() }, "percent-encoded"),
    ] {
        let message = said(bad);
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn an_empty_cursor_is_the_end_and_a_long_one_is_refused() {
    let mask = Mask::default();
    let place = Place { op: Op::List, mask: &mask, address_cidrs: &[], port: None };
    let read = |cursor: Option<String>| {
        let given =
            model::Page { items: Vec::new(), next: cursor, unreachable: Vec::new(), extra: Vec::new() };
        page(given, Wanted::Owned(&Default::default()), 10, place).map(|page| page.next)
    };
    assert_eq!(read(None).unwrap(), None);
    assert_eq!(read(Some(String::new())).unwrap(), None);
    assert_eq!(read(Some("c".repeat(4096))).unwrap().map(|cursor| cursor.len()), Some(4096));
    assert!(read(Some("c".repeat(4097))).unwrap_err().message.contains("4096"));
}

#[test]
fn a_page_keeps_only_the_machines_that_were_asked_for() {
    let machine = |id: &str, name: &str, cluster: &str| model::Instance {
        id: id.into(),
        name: name.into(),
        tags: vec![model::Pair { key: "cluster".into(), value: cluster.into() }],
        ..machine()
    };
    let mask = Mask::default();
    let place = Place { op: Op::List, mask: &mask, address_cidrs: &[], port: None };
    let read = |wanted: Wanted<'_>| -> Vec<String> {
        let items =
            vec![machine("a", "px-1", "ours"), machine("b", "px-2", "theirs"), machine("c", "web", "")];
        let given = model::Page { items, next: None, unreachable: Vec::new(), extra: Vec::new() };
        page(given, wanted, 10, place).unwrap().items.iter().map(|item| item.id.to_string()).collect()
    };
    let owner = [("cluster".to_owned(), "ours".to_owned())].into();
    assert_eq!(read(Wanted::Owned(&owner)), ["a"]);
    assert_eq!(read(Wanted::Untagged { owner: &owner, prefix: "px-" }), ["b"]);
}

#[test]
fn secrets_are_hidden_in_everything_that_is_shown_of_a_plan_and_a_machine() {
    use egress_proxies_core::provider::{CreateRequest, Secret};
    let request = CreateRequest {
        name: "px-1".into(),
        attempt_key: String::new(),
        port: 1,
        placement: serde_json::Map::new(),
        parameters: serde_json::Map::new(),
        bootstrap: Some(Secret::new(format!("password: hunter2hunter2 {}", "x".repeat(200)))),
        access: None,
        tags: Default::default(),
    };
    let mask = Mask::of(&request);
    let secret = request.bootstrap.as_ref().unwrap().expose().as_str();
    let given = model::CreatePlan {
        id: None,
        location: Some(format!("at {secret}")),
        warnings: vec![format!("line 3: {secret} is weak")],
        extra: Vec::new(),
    };
    let shown = plan(given.clone(), &mask).unwrap();
    assert_eq!(
        (shown.location.as_deref(), &*shown.warnings),
        (Some("at ***"), &["line 3: *** is weak".to_owned()][..])
    );
    // Cut before it is hidden, it would show its first eighty characters.
    let error = plan(model::CreatePlan { id: Some(secret.into()), ..given }, &mask).unwrap_err();
    assert!(!error.message.contains("hunter2"), "{error}");

    let place = Place { op: Op::Create, mask: &mask, address_cidrs: &[], port: None };
    let tag = model::Pair { key: secret.into(), value: "v".repeat(5_000) };
    let with_address = model::Endpoint { address: secret.into(), ..endpoint(1, "http") };
    for bad in [
        model::Instance { id: secret.into(), ..machine() },
        model::Instance { incarnation: Some(secret.into()), ..machine() },
        model::Instance { tags: vec![tag], ..machine() },
        model::Instance { endpoints: vec![with_address], ..machine() },
    ] {
        let error = instance(bad, place).unwrap_err();
        assert!(error.message.contains("***") && !error.message.contains("hunter2"), "{error}");
    }
    let state = model::InstanceState::Other(secret.into());
    let seen =
        instance(model::Instance { state, location: Some(secret.into()), ..machine() }, place).unwrap();
    assert_eq!(seen.location.as_deref(), Some("***"));
    assert_eq!(seen.state, egress_proxies_core::provider::InstanceState::Other("***".into()));
}
