//! `get`, `delete` and `list-by-tag`.

use egress_proxies_provider_sdk::model::{Deletion, InstanceState, ListRequest, Observation, Page, Reason};
use egress_proxies_provider_sdk::{Method, Provider};
use serde_json::{Value, json};

use super::*;

fn made() -> Fake {
    let fake = Fake::new();
    Kubernetes.create(&fake.call(), &request()).unwrap();
    fake.start(NAME, "10.0.0.7");
    fake
}

fn list(owner: Vec<Pair>, limit: u32, cursor: Option<String>) -> ListRequest {
    ListRequest { owner, untagged_prefix: None, cursor, limit, extra: Vec::new() }
}

#[test]
fn a_machine_that_runs_is_found_with_its_address() {
    let Observation::Found(found) = Kubernetes.get(&made().call(), &target()).unwrap() else { panic!() };
    assert_eq!((found.state, found.problem), (InstanceState::Running, None));
    assert_eq!(found.location.as_deref(), Some("node-1"));
    assert_eq!(found.created_at.as_deref(), Some("2026-11-29T12:00:00Z"));
    let endpoint = &found.endpoints[0];
    assert_eq!(
        (endpoint.address.as_str(), endpoint.port, endpoint.protocol.as_str()),
        ("10.0.0.7", 3128, "http")
    );
    assert_eq!(endpoint.scope, "private");
}

#[test]
fn get_says_absent_only_when_the_api_server_does() {
    let fake = made();
    let rows: [(u16, Value, Reason); 6] = [
        (
            404,
            json!({"kind": "Status", "reason": "NotFound", "message": "the server could not find the requested resource"}),
            Reason::Missing,
        ),
        (404, json!("404 page not found"), Reason::Missing),
        (404, status_body("NotFound", "namespaces", NAMESPACE), Reason::Missing),
        (403, status_body("Forbidden", "pods", NAME), Reason::Denied),
        (401, status_body("Unauthorized", "pods", NAME), Reason::Denied),
        (503, json!("upstream connect error"), Reason::Transient),
    ];
    for (code, body, reason) in rows {
        fake.next(Method::Get, "pods/", Fault::Answer(code, body));
        assert_eq!(Kubernetes.get(&fake.call(), &target()).unwrap_err().reason, reason);
    }
    for body in [json!({}), json!({"kind": "Pod", "metadata": {"name": NAME}}), json!([1])] {
        fake.next(Method::Get, "pods/", Fault::Answer(200, body));
        assert_eq!(Kubernetes.get(&fake.call(), &target()).unwrap_err().reason, Reason::Transient);
    }
    fake.next(Method::Get, "pods/", Fault::LoseAnswer);
    assert_eq!(Kubernetes.get(&fake.call(), &target()).unwrap_err().reason, Reason::Transient);
    fake.state.borrow_mut().pods.clear();
    assert_eq!(Kubernetes.get(&fake.call(), &target()).unwrap(), Observation::Absent(None));
}

#[test]
fn another_incarnation_is_another_machine() {
    let fake = made();
    let mut target = target();
    target.incarnation = Some("uid-0".into());
    assert_eq!(Kubernetes.get(&fake.call(), &target).unwrap(), Observation::Absent(None));
    assert_eq!(Kubernetes.delete(&fake.call(), &target).unwrap(), Deletion::Gone);
    assert_eq!(fake.count("DELETE"), 0);
    target.incarnation = Some(fake.uid(NAME));
    assert!(matches!(Kubernetes.get(&fake.call(), &target).unwrap(), Observation::Found(_)));
}

#[test]
fn a_machine_that_is_not_ours_is_found_and_never_deleted() {
    let fake = made();
    fake.edit(NAME, |pod| pod["metadata"]["labels"]["proxy-operator-cluster"] = json!("c-2"));
    let Observation::Found(found) = Kubernetes.get(&fake.call(), &target()).unwrap() else { panic!() };
    assert!(found.tags.contains(&pair("proxy-operator-cluster", "c-2")));
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::Gone);
    assert_eq!(fake.count("DELETE"), 0);
}

#[test]
fn ids_of_elsewhere_are_out_of_scope_and_ask_nothing() {
    let fake = made();
    for id in [
        format!("other/{NAME}"),
        NAME.into(),
        format!("{NAMESPACE}/"),
        format!("{NAMESPACE}/../secrets"),
        "a/b/c".into(),
    ] {
        let target = InstanceRef { id, ..target() };
        let before = fake.requests.borrow().len();
        assert_eq!(Kubernetes.get(&fake.call(), &target).unwrap_err().reason, Reason::OutOfScope);
        assert_eq!(Kubernetes.delete(&fake.call(), &target).unwrap_err().reason, Reason::OutOfScope);
        assert_eq!(fake.requests.borrow().len(), before);
    }
}

#[test]
fn delete_is_sent_once_and_is_over_when_the_pod_is() {
    let fake = made();
    for _ in 0..5 {
        assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::InProgress(Some(1_000)));
        let Observation::Found(found) = Kubernetes.get(&fake.call(), &target()).unwrap() else { panic!() };
        assert_eq!(found.state, InstanceState::Deleting);
    }
    assert_eq!(fake.count("DELETE"), 1);
    fake.finish_deletion(NAME);
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::Gone);
    assert_eq!(Kubernetes.get(&fake.call(), &target()).unwrap(), Observation::Absent(None));
}

#[test]
fn a_pod_whose_node_does_not_confirm_is_removed_by_force_two_minutes_after_its_grace_period() {
    let fake = made();
    Kubernetes.delete(&fake.call(), &target()).unwrap();
    // 5 s of Squid's own, 10 s of margin, two minutes.
    fake.pass(15 + 120);
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::InProgress(Some(1_000)));
    assert_eq!(fake.count("DELETE"), 1);
    fake.pass(1);
    fake.edit(NAME, |pod| pod["metadata"]["labels"]["proxy-operator-cluster"] = json!("c-2"));
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::Gone);
    assert_eq!(fake.count("DELETE"), 1, "never somebody else's");
    fake.edit(NAME, |pod| pod["metadata"]["labels"]["proxy-operator-cluster"] = json!("c-1"));
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::InProgress(Some(1_000)));
    assert_eq!(fake.count("DELETE"), 2);
    assert_eq!(Kubernetes.get(&fake.call(), &target()).unwrap(), Observation::Absent(None));
}

#[test]
fn a_lost_answer_to_a_delete_is_transient_and_safe_to_repeat() {
    let fake = made();
    fake.next(Method::Delete, "pods", Fault::LoseAnswer);
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap_err().reason, Reason::Transient);
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::InProgress(Some(1_000)));
    assert_eq!(fake.count("DELETE"), 1);
}

#[test]
fn a_pod_that_is_replaced_between_look_and_delete_is_spared() {
    let fake = made();
    fake.next(Method::Delete, "pods", Fault::Answer(409, status_body("Conflict", "pods", NAME)));
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::Gone);
    fake.next(Method::Delete, "pods", Fault::Answer(404, status_body("NotFound", "pods", NAME)));
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap(), Deletion::Gone);
    fake.next(Method::Delete, "pods", Fault::Answer(403, status_body("Forbidden", "pods", NAME)));
    assert_eq!(Kubernetes.delete(&fake.call(), &target()).unwrap_err().reason, Reason::Denied);
}

/// Five machines of two Proxies, one of another cluster, one of nobody.
fn fleet() -> Fake {
    let fake = Fake::new();
    for (index, cluster) in ["c-1", "c-1", "c-1", "c-2", "c-1"].into_iter().enumerate() {
        let mut request = request();
        request.name = format!("px-{index}");
        request.owner = vec![pair("proxy-operator-uid", "u"), pair("proxy-operator-cluster", cluster)];
        request.tags = request.owner.clone();
        Kubernetes.create(&fake.call(), &request).unwrap();
    }
    fake.edit("px-4", |pod| pod["metadata"]["labels"] = json!({}));
    fake
}

#[test]
fn a_listing_has_all_pages_and_ours_alone() {
    let fake = fleet();
    let owner = vec![pair("proxy-operator-cluster", "c-1")];
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page: Page = Kubernetes.list_by_tag(&fake.call(), &list(owner.clone(), 2, cursor)).unwrap();
        assert!(page.unreachable.is_empty());
        names.extend(page.items.into_iter().map(|item| item.name));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["px-0", "px-1", "px-2"]);
}

#[test]
fn an_item_of_a_listing_is_what_get_gives() {
    let fake = made();
    let page = Kubernetes.list_by_tag(&fake.call(), &list(owner(), 100, None)).unwrap();
    let Observation::Found(found) = Kubernetes.get(&fake.call(), &target()).unwrap() else { panic!() };
    assert_eq!(page.items, [found]);
}

#[test]
fn owner_tags_that_cannot_be_selected_by_are_checked_all_the_same() {
    let fake = made();
    let named = vec![pair("proxy-operator-name", "cut-")];
    assert_eq!(Kubernetes.list_by_tag(&fake.call(), &list(named, 100, None)).unwrap().items.len(), 1);
    let other = vec![pair("proxy-operator-name", "other-")];
    assert_eq!(Kubernetes.list_by_tag(&fake.call(), &list(other, 100, None)).unwrap().items.len(), 0);
}

#[test]
fn machines_with_our_prefix_and_no_owner_are_listed_when_asked_for() {
    let mut request = list(vec![pair("proxy-operator-cluster", "c-1")], 100, None);
    request.untagged_prefix = Some("px-".into());
    let page = Kubernetes.list_by_tag(&fleet().call(), &request).unwrap();
    assert_eq!(page.items.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["px-3", "px-4"]);
}

#[test]
fn a_listing_that_fails_is_never_an_empty_one() {
    let fake = fleet();
    let rows = [
        (410, status_body("Expired", "", ""), Reason::StaleCursor),
        (403, status_body("Forbidden", "pods", ""), Reason::Denied),
        (404, json!("404 page not found"), Reason::Missing),
        (500, json!("oops"), Reason::Transient),
        (200, json!({"kind": "PodList"}), Reason::Transient),
        (200, json!("<html>"), Reason::Transient),
    ];
    for (code, body, reason) in rows {
        fake.next(Method::Get, "pods?", Fault::Answer(code, body));
        let failure = Kubernetes.list_by_tag(&fake.call(), &list(owner(), 100, None)).unwrap_err();
        assert_eq!(failure.reason, reason);
    }
}
