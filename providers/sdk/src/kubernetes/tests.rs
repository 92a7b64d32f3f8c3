//! A row for each kind of answer that API servers give.

use serde_json::json;

use super::*;

fn response(code: u16, body: &serde_json::Value) -> Response {
    Response { status: code, headers: Vec::new(), body: body.to_string().into_bytes() }
}

fn status(reason: &str, message: &str) -> serde_json::Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message})
}

#[test]
fn each_status_has_its_reason() {
    let rows = [
        (401, "Unauthorized", "Unauthorized", Reason::Denied),
        (403, "Forbidden", "pods is forbidden: User \"x\" cannot create resource", Reason::Denied),
        (403, "Forbidden", "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1", Reason::Quota),
        (403, "Forbidden", "violates PodSecurity \"restricted:latest\"", Reason::Denied),
        (404, "NotFound", "namespaces \"a\" not found", Reason::Missing),
        (409, "AlreadyExists", "pods \"a\" already exists", Reason::Busy),
        (409, "Conflict", "the object has been modified", Reason::Busy),
        (410, "Expired", "The provided continue parameter is too old", Reason::StaleCursor),
        (410, "Gone", "too old", Reason::StaleCursor),
        (413, "RequestEntityTooLarge", "limit is 3145728", Reason::Permanent),
        (422, "Invalid", "Pod \"a\" is invalid", Reason::Invalid(String::new())),
        (429, "TooManyRequests", "please try again later", Reason::Throttled),
        (500, "InternalError", "etcdserver: leader changed", Reason::Transient),
        (504, "Timeout", "the request timed out", Reason::Transient),
        (500, "", "no reason", Reason::Transient),
        (429, "", "no reason", Reason::Throttled),
        (418, "Teapot", "odd", Reason::Other("Teapot".into())),
    ];
    for (code, reason, message, expected) in rows {
        let failure = failure("creating the pod", &response(code, &status(reason, message)));
        assert_eq!(failure.reason, expected, "{reason} {message}");
        assert_eq!(failure.upstream_status, Some(code));
        assert_eq!(failure.message, format!("creating the pod: {message}"));
    }
}

#[test]
fn a_namespace_that_is_going_away_is_missing() {
    let mut body = status("Forbidden", "because it is being terminated");
    body["details"] = json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
    assert_eq!(failure("creating the pod", &response(403, &body)).reason, Reason::Missing);
}

#[test]
fn an_invalid_object_names_the_fields() {
    let mut body = status("Invalid", "Pod \"a\" is invalid: [long]");
    body["details"] = json!({"causes": [
        {"reason": "FieldValueInvalid", "field": "spec.nodeSelector", "message": "must be a label"},
        {"reason": "FieldValueInvalid", "field": "spec.containers[0].image", "message": "other"}]});
    let failure = failure("creating the pod", &response(422, &body));
    assert_eq!(
        failure.message,
        "creating the pod: the API server refuses spec.nodeSelector, spec.containers[0].image: must be a label"
    );
}

#[test]
fn retry_after_comes_from_the_header_or_the_details() {
    let mut body = status("TooManyRequests", "later");
    body["details"] = json!({"retryAfterSeconds": 3});
    assert_eq!(failure("x", &response(429, &body)).retry_after_ms, Some(3_000));
    let mut answer = response(429, &body);
    answer.headers.push(("retry-after".into(), "9".into()));
    assert_eq!(failure("x", &answer).retry_after_ms, Some(9_000));
}

#[test]
fn what_is_not_a_status_is_judged_by_its_code() {
    for body in [json!({"kind": "Pod"}), json!("text"), json!([])] {
        let failure = failure("asking", &response(503, &body));
        assert_eq!((failure.reason, failure.message.as_str()), (Reason::Transient, "asking: HTTP 503"));
    }
}

#[test]
fn only_a_not_found_of_the_object_itself_is_absence() {
    let mut body = status("NotFound", "pods \"a\" not found");
    body["details"] = json!({"kind": "pods", "name": "a"});
    assert!(is_absent(&response(404, &body), "pods", "a"));
    assert!(!is_absent(&response(404, &body), "pods", "b"));
    assert!(!is_absent(&response(404, &body), "secrets", "a"));
    assert!(!is_absent(&response(403, &body), "pods", "a"));
    let unserved = status("NotFound", "the server could not find the requested resource");
    assert!(!is_absent(&response(404, &unserved), "pods", "a"));
    assert!(!is_absent(
        &Response { status: 404, headers: vec![], body: b"404 page not found".to_vec() },
        "pods",
        "a"
    ));
}
