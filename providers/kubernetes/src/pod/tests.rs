//! A row for each line of the table of states.

use serde_json::{Value, json};

use super::*;

fn read(status: &Value) -> (InstanceState, Option<Failure>) {
    read_pod(&json!({"name": "px-1", "namespace": "n", "uid": "u"}), &json!({"nodeName": "node-1"}), status)
}

fn read_pod(metadata: &Value, spec: &Value, status: &Value) -> (InstanceState, Option<Failure>) {
    let pod: Pod =
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap();
    let instance = pod.instance("2026-11-29T12:00:00Z".parse().unwrap());
    (instance.state, instance.problem)
}

fn waiting(phase: &str, reason: &str) -> Value {
    json!({
        "phase": phase, "podIP": "10.0.0.7",
        "containerStatuses": [{"ready": false, "restartCount": 3, "state": {"waiting": {"reason": reason, "message": "said"}}}],
    })
}

fn running(ready: bool, pod_ready: &str) -> Value {
    json!({
        "phase": "Running", "podIP": "10.0.0.7",
        "conditions": [{"type": "Ready", "status": pod_ready}],
        "containerStatuses": [{"ready": ready, "restartCount": 0, "state": {"running": {}}}],
    })
}

#[test]
fn each_status_is_a_state_and_a_problem() {
    use InstanceState::{Failed, Other, Provisioning, Running, Stopped};
    let unschedulable = json!({
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}],
    });
    let failed = |reason: &str| json!({"phase": "Failed", "reason": reason, "message": "said"});
    let disrupted =
        json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let no_address = json!({"phase": "Running", "containerStatuses": [{"ready": true}]});
    let other = |word: &str| Some(Reason::Other(word.into()));
    let rows = [
        (json!({}), Provisioning, None),
        (json!({"phase": "Pending"}), Provisioning, None),
        (waiting("Pending", "ContainerCreating"), Provisioning, None),
        (waiting("Pending", "ErrImagePull"), Provisioning, Some(Reason::Missing)),
        (waiting("Pending", "ImagePullBackOff"), Provisioning, Some(Reason::Missing)),
        (waiting("Pending", "ErrImageNeverPull"), Provisioning, Some(Reason::Missing)),
        (waiting("Pending", "InvalidImageName"), Provisioning, Some(Reason::Invalid(String::new()))),
        (waiting("Pending", "CreateContainerConfigError"), Provisioning, other("CreateContainerConfigError")),
        (unschedulable, Provisioning, Some(Reason::Capacity)),
        (waiting("Running", "CrashLoopBackOff"), Provisioning, other("CrashLoopBackOff")),
        (running(false, "False"), Provisioning, None),
        (running(true, "True"), Running, None),
        (no_address, Provisioning, None),
        (running(true, "False"), Other("unknown".into()), Some(Reason::Transient)),
        (running(true, "Unknown"), Other("unknown".into()), Some(Reason::Transient)),
        (json!({"phase": "Running", "reason": "NodeLost"}), Other("unknown".into()), Some(Reason::Transient)),
        (json!({"phase": "Unknown"}), Other("unknown".into()), None),
        (json!({"phase": "Succeeded"}), Stopped, other("Ended")),
        (failed("Evicted"), Stopped, other("Evicted")),
        (failed("Preempting"), Stopped, other("Preempting")),
        (failed("NodeShutdown"), Stopped, other("NodeShutdown")),
        (disrupted, Stopped, other("Ended")),
        (failed("OutOfcpu"), Failed, other("OutOfcpu")),
        (failed("UnexpectedAdmissionError"), Failed, other("UnexpectedAdmissionError")),
        (failed(""), Failed, other("Ended")),
    ];
    for (status, state, reason) in rows {
        let (seen, problem) = read(&status);
        assert_eq!((seen, problem.map(|problem| problem.reason)), (state, reason), "{status}");
    }
}

#[test]
fn a_pod_with_a_deletion_timestamp_is_deleting_whatever_else_it_says() {
    let metadata = json!({"name": "px-1", "deletionTimestamp": "2026-11-29T12:00:00Z"});
    for status in [running(true, "True"), json!({"phase": "Failed"}), json!({"phase": "Succeeded"})] {
        assert_eq!(read_pod(&metadata, &json!({}), &status).0, InstanceState::Deleting);
    }
}

#[test]
fn a_gate_of_somebody_else_is_no_rest_of_ours() {
    let metadata = json!({"name": "px-1", "creationTimestamp": "2026-11-29T11:00:00Z"});
    let gated = |name: &str| json!({"schedulingGates": [{"name": name}]});
    let pending = json!({"phase": "Pending"});
    assert_eq!(read_pod(&metadata, &gated("example.com/quota"), &pending).0, InstanceState::Provisioning);
    assert_eq!(read_pod(&metadata, &gated(GATE), &pending).0, InstanceState::Failed);
}

#[test]
fn what_squid_said_is_not_repeated() {
    let (_, problem) = read(&waiting("Running", "CrashLoopBackOff"));
    let message = problem.unwrap().message;
    assert!(message.contains("kubectl logs -n n px-1 --previous") && !message.contains("said"), "{message}");
}

#[test]
fn a_pull_that_fails_again_and_again_is_said_in_the_same_words() {
    let spec = json!({"containers": [{"image": "registry.example/squid:1"}]});
    let message = |reason: &str, said: &str| {
        let mut status = waiting("Pending", reason);
        status["containerStatuses"][0]["state"]["waiting"]["message"] = json!(said);
        read_pod(&json!({"name": "px-1", "namespace": "n"}), &spec, &status).1.unwrap().message
    };
    let first = message("ErrImagePull", "rpc error: code = NotFound, attempt 1");
    assert_eq!(first, message("ErrImagePull", "rpc error: code = NotFound, attempt 2"));
    assert_eq!(first, message("ImagePullBackOff", "Back-off pulling image"));
    for part in ["registry.example/squid:1", "kubectl describe pod -n n px-1"] {
        assert!(first.contains(part), "{first}");
    }
}

#[test]
fn every_address_is_an_endpoint_and_the_first_comes_first() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "px-1"},
        "spec": {"containers": [{"ports": [{"containerPort": 8080}]}]},
        "status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]},
    }))
    .unwrap();
    let endpoints = pod.instance(Timestamp::UNIX_EPOCH).endpoints;
    let seen: Vec<_> = endpoints.iter().map(|endpoint| (endpoint.address.as_str(), endpoint.port)).collect();
    assert_eq!(seen, [("10.0.0.7", 8080), ("fd00::7", 8080)]);
}
