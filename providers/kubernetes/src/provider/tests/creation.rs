//! `create`: each way it can be cut off, repeated, or meet somebody else's pod.

use egress_proxies_provider_sdk::model::{
    Credentials, Failure, Instance, InstanceState, Observation, Reason,
};
use egress_proxies_provider_sdk::{Method, Provider};
use serde_json::json;

use super::*;

fn create(fake: &Fake) -> Result<Instance, Failure> {
    Kubernetes.create(&fake.call(), &request())
}

fn state(fake: &Fake) -> InstanceState {
    match Kubernetes.get(&fake.call(), &target()).unwrap() {
        Observation::Found(instance) => instance.state,
        Observation::Absent(why) => panic!("absent: {why:?}"),
    }
}

#[test]
fn a_machine_without_secrets_is_one_pod_in_one_request() {
    let fake = Fake::new();
    let made = Kubernetes.create(&fake.call(), &request_without_secrets()).unwrap();
    assert_eq!((made.name.as_str(), made.incarnation.as_deref()), (NAME, Some("uid-1")));
    let state = fake.state.borrow();
    assert!(state.pods[NAME]["spec"]["schedulingGates"].is_null());
    assert!(state.pods[NAME]["metadata"]["annotations"]["crawl.example.com/squid.conf"].is_string());
    assert!(state.secrets.is_empty());
    assert_eq!(fake.requests.borrow().len(), 1);
}

#[test]
fn a_second_create_finds_the_machine_that_a_lost_answer_hid() {
    let fake = Fake::new();
    fake.next(Method::Post, "pods", Fault::LoseAnswer);
    let made = Kubernetes.create(&fake.call(), &request_without_secrets()).unwrap();
    assert_eq!(made.incarnation.as_deref(), Some("uid-1"));
    let again = Kubernetes.create(&fake.call(), &request_without_secrets()).unwrap();
    assert_eq!(again.incarnation.as_deref(), Some("uid-1"));
    assert_eq!(fake.state.borrow().pods.len(), 1);
}

#[test]
fn a_new_machine_with_secrets_is_a_pod_and_its_secret_and_the_gate_is_gone() {
    let fake = Fake::new();
    let made = create(&fake).unwrap();
    assert_eq!(made.id, format!("{NAMESPACE}/{NAME}"));
    assert_eq!((made.name.as_str(), made.incarnation.as_deref()), (NAME, Some("uid-1")));
    assert_eq!((made.state, made.endpoints.len()), (InstanceState::Provisioning, 0));
    for tag in request().tags {
        assert!(made.tags.contains(&tag), "{tag:?}");
    }
    let state = fake.state.borrow();
    assert!(state.pods[NAME]["spec"]["schedulingGates"].is_null());
    assert_eq!(state.secrets[NAME]["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    assert_eq!(fake.requests.borrow().len(), 3);
}

#[test]
fn the_id_is_the_one_that_was_planned() {
    let fake = Fake::new();
    let plan = Kubernetes.validate_create(&fake.context, &request()).unwrap();
    assert_eq!(plan.id, Some(create(&fake).unwrap().id));
}

#[test]
fn a_second_create_returns_the_machine_as_it_is() {
    let fake = Fake::new();
    let first = create(&fake).unwrap();
    fake.start(NAME, "10.0.0.7");
    let mut again = request();
    again.parameters = r#"{"connectPorts": [8443]}"#.into();
    again.tags[3] = pair("proxy-operator-spec", "v1-4567");
    let second = Kubernetes.create(&fake.call(), &again).unwrap();
    assert_eq!(second.incarnation, first.incarnation);
    assert_eq!(second.state, InstanceState::Running);
    assert!(second.tags.contains(&pair("proxy-operator-spec", "v1-0123")), "its real tags");
    assert_eq!(fake.state.borrow().pods.len(), 1);
}

#[test]
fn a_pod_of_somebody_else_is_left_alone() {
    let fake = Fake::new();
    create(&fake).unwrap();
    for (label, value) in [("proxy-operator-cluster", "c-2"), ("proxy-operator-uid", "another")] {
        fake.edit(NAME, |pod| pod["metadata"]["labels"][label] = json!(value));
        let before = fake.state.borrow().pods.clone();
        assert_eq!(create(&fake).unwrap_err().reason, Reason::NameTaken);
        assert_eq!(fake.state.borrow().pods, before);
    }
}

#[test]
fn a_pod_that_is_being_deleted_is_busy() {
    let fake = Fake::new();
    create(&fake).unwrap();
    fake.start(NAME, "10.0.0.7");
    Kubernetes.delete(&fake.call(), &target()).unwrap();
    assert_eq!(create(&fake).unwrap_err().reason, Reason::Busy);
}

#[test]
fn a_lost_answer_to_the_pod_makes_one_machine() {
    let fake = Fake::new();
    fake.next(Method::Post, "pods", Fault::LoseAnswer);
    let made = create(&fake).unwrap();
    assert_eq!(made.incarnation.as_deref(), Some("uid-1"));
    assert!(fake.state.borrow().pods[NAME]["spec"]["schedulingGates"].is_null());
}

#[test]
fn a_lost_request_for_the_pod_is_transient() {
    let fake = Fake::new();
    fake.next(Method::Post, "pods", Fault::LoseRequest);
    assert_eq!(create(&fake).unwrap_err().reason, Reason::Transient);
    assert!(fake.state.borrow().pods.is_empty());
}

#[test]
fn a_failure_after_the_pod_takes_it_away_again() {
    let quota = || {
        Fault::Answer(403, json!({"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: q"}))
    };
    let rows = [
        (Method::Post, "secrets", quota(), Reason::Quota),
        (Method::Post, "secrets", Fault::LoseRequest, Reason::Transient),
        (Method::Post, "secrets", Fault::LoseAnswer, Reason::Transient),
        (Method::Post, "secrets", Fault::Deny, Reason::Denied),
        (Method::Patch, "pods", Fault::LoseRequest, Reason::Transient),
        (Method::Patch, "pods", Fault::LoseAnswer, Reason::Transient),
        (Method::Patch, "pods", Fault::Deny, Reason::Denied),
    ];
    for (method, path, fault, reason) in rows {
        let fake = Fake::new();
        fake.next(method, path, fault);
        assert_eq!(create(&fake).unwrap_err().reason, reason, "{method:?} {path}");
        assert!(fake.state.borrow().pods.is_empty(), "{method:?} {path}");
        fake.collect_garbage();
        assert_eq!(create(&fake).unwrap().incarnation.as_deref(), Some("uid-2"), "{method:?} {path}");
    }
}

#[test]
fn what_a_cut_off_call_left_is_provisioning_first_and_failed_later() {
    let fake = Fake::new();
    // The secret fails and so does the clean-up: as if the call had been stopped there.
    fake.next(Method::Post, "secrets", Fault::LoseRequest);
    fake.next(Method::Delete, "pods", Fault::LoseRequest);
    create(&fake).unwrap_err();
    assert_eq!(state(&fake), InstanceState::Provisioning);
    fake.pass(89);
    assert_eq!(state(&fake), InstanceState::Provisioning);
    fake.pass(2);
    assert_eq!(state(&fake), InstanceState::Failed);
}

#[test]
fn a_further_create_completes_what_a_cut_off_call_left() {
    let fake = Fake::new();
    fake.next(Method::Post, "secrets", Fault::LoseRequest);
    fake.next(Method::Delete, "pods", Fault::LoseRequest);
    create(&fake).unwrap_err();
    assert_eq!(create(&fake).unwrap().incarnation.as_deref(), Some("uid-1"));
    fake.start(NAME, "10.0.0.7");
}

/// A call that was stopped with its Pod and its Secret made, and the gate still there.
fn cut_off_at_the_gate() -> Fake {
    let fake = Fake::new();
    fake.next(Method::Patch, "pods", Fault::LoseRequest);
    fake.next(Method::Delete, "pods", Fault::LoseRequest);
    create(&fake).unwrap_err();
    assert!(fake.state.borrow().secrets.contains_key(NAME));
    assert!(fake.state.borrow().pods[NAME]["spec"]["schedulingGates"].is_array());
    fake
}

#[test]
fn a_call_that_was_cut_off_at_the_gate_is_cleaned_up_and_then_made_anew() {
    let fake = cut_off_at_the_gate();
    assert_eq!(create(&fake).unwrap_err().reason, Reason::Busy);
    assert!(fake.state.borrow().pods.is_empty());
    assert_eq!(create(&fake).unwrap().incarnation.as_deref(), Some("uid-2"));
    assert_eq!(fake.state.borrow().secrets[NAME]["metadata"]["ownerReferences"][0]["uid"], "uid-2");
}

#[test]
fn an_unfinished_pod_of_an_earlier_request_is_never_completed() {
    let fake = Fake::new();
    fake.next(Method::Post, "secrets", Fault::LoseRequest);
    fake.next(Method::Delete, "pods", Fault::LoseRequest);
    create(&fake).unwrap_err();
    let mut other = request();
    other.parameters = r#"{"connectPorts": [8443]}"#.into();
    other.tags[3] = pair("proxy-operator-spec", "v1-4567");
    assert_eq!(Kubernetes.create(&fake.call(), &other).unwrap_err().reason, Reason::Busy);
    assert!(fake.state.borrow().pods.is_empty() && fake.state.borrow().secrets.is_empty());
    let made = Kubernetes.create(&fake.call(), &other).unwrap();
    assert_eq!(made.incarnation.as_deref(), Some("uid-2"));
    assert!(made.tags.contains(&other.tags[3]));
}

#[test]
fn an_unfinished_pod_whose_configuration_is_another_is_never_completed() {
    // Made before the Proxy had cloudInit, or by a release that kept its configuration elsewhere: its tags are these.
    let edits: [fn(&mut serde_json::Value); 2] = [
        |pod| pod["metadata"]["annotations"]["crawl.example.com/squid.conf"] = json!("http_port 1"),
        |pod| pod["metadata"]["annotations"] = json!({}),
    ];
    for edit in edits {
        let fake = Fake::new();
        fake.next(Method::Post, "secrets", Fault::LoseRequest);
        fake.next(Method::Delete, "pods", Fault::LoseRequest);
        create(&fake).unwrap_err();
        fake.edit(NAME, edit);
        assert_eq!(create(&fake).unwrap_err().reason, Reason::Busy);
        assert!(fake.state.borrow().pods.is_empty() && fake.state.borrow().secrets.is_empty());
        assert_eq!(create(&fake).unwrap().incarnation.as_deref(), Some("uid-2"));
    }
}

#[test]
fn a_pod_that_goes_while_it_is_made_is_busy_and_no_fault_of_the_request() {
    let fake = Fake::new();
    fake.next(Method::Patch, "pods", Fault::Replace(NAME));
    assert_eq!(create(&fake).unwrap_err().reason, Reason::Busy);
    let state = fake.state.borrow();
    assert_eq!(state.pods[NAME]["metadata"]["uid"], "uid-of-another", "the other one is spared");
    drop(state);
    for (code, word) in [(404, "NotFound"), (409, "Conflict"), (422, "Invalid")] {
        let fake = Fake::new();
        fake.next(Method::Patch, "pods", Fault::Answer(code, status_body(word, "pods", NAME)));
        assert_eq!(create(&fake).unwrap_err().reason, Reason::Busy, "{code}");
    }
}

#[test]
fn the_secret_of_the_predecessor_is_given_time_to_go() {
    let fake = Fake::new();
    create(&fake).unwrap();
    // The pod went, the garbage collector has not come yet.
    fake.state.borrow_mut().pods.clear();
    let made = create(&fake).unwrap();
    let owner = fake.state.borrow().secrets[NAME]["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(made.incarnation.as_deref(), owner.as_str(), "never a Secret of another pod");
    assert_eq!(fake.count("POST /api/v1/namespaces/proxies/secrets"), 3);
}

#[test]
fn a_secret_that_stays_is_busy_and_leaves_no_pod() {
    let fake = Fake::new();
    create(&fake).unwrap();
    fake.state.borrow_mut().pods.clear();
    fake.collects.set(false);
    assert_eq!(create(&fake).unwrap_err().reason, Reason::Busy);
    assert!(fake.state.borrow().pods.is_empty());
}

#[test]
fn the_api_servers_refusal_of_the_pod_is_told() {
    let rows = [
        (403, "Forbidden", Reason::Denied),
        (404, "NotFound", Reason::Missing),
        (422, "Invalid", Reason::Invalid(String::new())),
        (429, "TooManyRequests", Reason::Throttled),
        (500, "InternalError", Reason::Transient),
    ];
    for (code, word, reason) in rows {
        let fake = Fake::new();
        fake.next(Method::Post, "pods", Fault::Answer(code, status_body(word, "pods", NAME)));
        assert_eq!(create(&fake).unwrap_err().reason, reason);
        assert!(fake.state.borrow().pods.is_empty());
    }
    let fake = Fake::new();
    fake.next(Method::Post, "pods", Fault::Deny);
    assert_eq!(create(&fake).unwrap_err().reason, Reason::Denied);
    assert_eq!(fake.requests.borrow().len(), 1);
}

#[test]
fn secrets_are_in_the_secret_alone_and_the_password_nowhere() {
    let fake = Fake::new();
    let mut request = request();
    request.bootstrap = Some("# hush-hush\nacl x dst 1.1.1.1".into());
    request.access = Some(Credentials { username: "crawler".into(), password: "p@: /%$#ü".into() });
    Kubernetes.create(&fake.call(), &request).unwrap();
    let state = fake.state.borrow();
    let files = &state.secrets[NAME]["stringData"];
    assert_eq!(files["extra.conf"], "# hush-hush\nacl x dst 1.1.1.1\n");
    assert!(files["users"].as_str().unwrap().starts_with("crawler:$5$"));
    let main = &state.pods[NAME]["metadata"]["annotations"]["crawl.example.com/squid.conf"];
    assert!(main.as_str().unwrap().contains("include /etc/egress-proxy/extra.conf"));
    assert_eq!(files.as_object().unwrap().len(), 2);
    let pod = state.pods[NAME].to_string();
    assert!(!pod.contains("hush-hush") && !pod.contains("crawler"), "{pod}");
    assert!(!state.secrets[NAME].to_string().contains("p@: "));
}
