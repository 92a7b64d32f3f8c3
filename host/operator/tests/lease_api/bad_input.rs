//! Whatever a client sends, it learns which field is wrong and what is allowed; nothing changes.

use http::Method;

use crate::world::{World, proxy};

#[tokio::test]
async fn every_bad_lease_request_is_refused_with_the_field_and_its_limits() {
    let long = "x".repeat(129);
    let many = format!(r#"{{"exclude":[{}"default/p"]}}"#, r#""default/p","#.repeat(100));
    let session = format!(r#"{{"session":"{long}"}}"#);
    let key = format!(r#"{{"selector":{{"{}":"x"}}}}"#, "k".repeat(257));
    let value = format!(r#"{{"selector":{{"geo":["x","{}"]}}}}"#, "\u{e9}".repeat(257));
    let rows: Vec<(&str, &str, Vec<&str>)> = vec![
        ("", "invalid_json", vec!["empty", "{}"]),
        ("geo=local", "invalid_json", vec!["not a JSON object"]),
        ("[]", "invalid_json", vec!["not a JSON object"]),
        ("{", "invalid_json", vec!["line 1"]),
        ("{} x", "invalid_json", vec!["line 1"]),
        (r#"{"selektor":{}}"#, "invalid_request", vec!["selektor", "selector"]),
        (
            r#"{"selector":{"geo":1}}"#,
            "invalid_request",
            vec!["selector.geo", "a string or a list of strings"],
        ),
        (r#"{"selector":{"geo":[]}}"#, "invalid_request", vec!["selector.geo", "1 to 100"]),
        (r#"{"selector":"geo"}"#, "invalid_request", vec!["selector", "map"]),
        (r#"{"ttlSeconds":0}"#, "invalid_request", vec!["ttlSeconds", "1 to 86400", "not 0"]),
        (r#"{"ttlSeconds":-5}"#, "invalid_request", vec!["ttlSeconds", "1 to 86400", "not -5"]),
        (r#"{"ttlSeconds":86401}"#, "invalid_request", vec!["ttlSeconds", "1 to 86400"]),
        (r#"{"ttlSeconds":99999999999999999999999}"#, "invalid_request", vec!["ttlSeconds", "1 to 86400"]),
        (r#"{"ttlSeconds":1.5}"#, "invalid_request", vec!["ttlSeconds", "whole number"]),
        (r#"{"ttlSeconds":"300"}"#, "invalid_request", vec!["ttlSeconds", "number"]),
        (r#"{"ttlSeconds":1,"ttlSeconds":2}"#, "invalid_request", vec!["duplicate", "ttlSeconds"]),
        (r#"{"target":"https://example.com/x"}"#, "invalid_request", vec!["target", "host alone"]),
        (r#"{"target":""}"#, "invalid_request", vec!["target", "empty"]),
        (r#"{"prefer":"fastest"}"#, "invalid_request", vec!["prefer", "latency", "spread"]),
        (r#"{"exclude":["p"]}"#, "invalid_request", vec!["exclude[0]", "namespace/name"]),
        (&many, "invalid_request", vec!["exclude", "101", "at most 100"]),
        (r#"{"session":""}"#, "invalid_request", vec!["session", "1 to 128"]),
        (&session, "invalid_request", vec!["session", "1 to 128", "not 129"]),
        (r#"{"holder":7}"#, "invalid_request", vec!["holder", "string"]),
        (r#"{"namespace":""}"#, "invalid_request", vec!["namespace"]),
        (&key, "invalid_request", vec!["selector", "key of 257", "at most 256"]),
        (&value, "invalid_request", vec!["selector.geo", "value of 257", "at most 256"]),
    ];
    let world = World::new([proxy("p")]).await;
    for (body, code, parts) in rows {
        let answer = world.post("/v1/leases", body).await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{body}: {}", answer.text);
        for part in parts {
            assert!(answer.message().contains(part), "{body}: {part:?} is not in {}", answer.message());
        }
    }
    assert_eq!(world.get("/v1/proxies/default/p").await.json()["activeLeases"], 0);
}

#[tokio::test]
async fn every_bad_renewal_and_report_is_refused_with_the_field_and_its_limits() {
    let world = World::new([proxy("p")]).await;
    let lease = world.lease("{}").await;
    let rows = [
        ("renew", r#"{"ttlSeconds":0}"#, 400, "invalid_request", "1 to 86400"),
        ("renew", r#"{"ttl":5}"#, 400, "invalid_request", "ttl"),
        ("renew", "", 400, "invalid_json", "empty"),
        ("report", r#"{"result":"meh"}"#, 400, "invalid_result", "rate_limited"),
        ("report", "{}", 400, "invalid_result", "unreachable"),
        ("report", r#"{"result":1}"#, 400, "invalid_request", "result"),
        ("report", r#"{"result":"banned","cooldownSeconds":0}"#, 400, "invalid_request", "1 to 604800"),
        ("report", r#"{"result":"ok","cooldownSeconds":5}"#, 400, "invalid_request", "cooldownSeconds"),
        ("report", r#"{"result":"ok","target":"a b"}"#, 400, "invalid_request", "target"),
        ("report", r#"{"result":"ok","release":"yes"}"#, 400, "invalid_request", "release"),
    ];
    for (call, body, status, code, part) in rows {
        let answer = world.post(&format!("/v1/leases/{lease}/{call}"), body).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{call} {body}: {}", answer.text);
        assert!(answer.message().contains(part), "{call} {body}: {}", answer.message());
    }
    for (call, body) in [("renew", "{}"), ("report", r#"{"result":"ok"}"#)] {
        for unknown in ["nope", "%F0%9F%92%A5", "%FF", "%zz", &"x".repeat(300)] {
            let answer = world.post(&format!("/v1/leases/{unknown}/{call}"), body).await;
            assert_eq!(answer.error(), (404, "unknown_lease".to_owned()), "{unknown}");
        }
    }
}

#[tokio::test]
async fn a_body_of_64_kib_is_read_and_one_of_65_is_not() {
    let world = World::new([proxy("p")]).await;
    let padded = |length: usize| format!("{{}}{}", " ".repeat(length - 2));
    assert_eq!(world.post("/v1/leases", &padded(64 * 1024)).await.status, 201);
    let answer = world.post("/v1/leases", &padded(65 * 1024)).await;
    assert_eq!(answer.error(), (413, "body_too_large".to_owned()));
    // The same without a length told in advance.
    let pieces = futures::stream::iter((0..65).map(|_| Ok::<_, std::io::Error>(" ".repeat(1024))));
    let answer = world.call(Method::POST, "/v1/leases", axum::body::Body::from_stream(pieces)).await;
    assert_eq!(answer.error(), (413, "body_too_large".to_owned()));
    for call in ["renew", "report"] {
        let answer = world.post(&format!("/v1/leases/x/{call}"), &padded(65 * 1024)).await;
        assert_eq!(answer.error(), (413, "body_too_large".to_owned()), "{call}");
    }
    // Nobody reads the body of these.
    for (method, path, status) in [(Method::GET, "/v1/proxies", 200), (Method::DELETE, "/v1/leases/x", 204)] {
        assert_eq!(world.call(method, path, padded(65 * 1024)).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn unknown_routes_methods_and_parameters_get_the_same_shape_of_error() {
    let world = World::new([proxy("p")]).await;
    let rows = [
        (Method::GET, "/", 404, "not_found"),
        (Method::GET, "/v1/proxies/", 404, "not_found"),
        (Method::GET, "/v2/leases", 404, "not_found"),
        (Method::PUT, "/v1/leases", 405, "method_not_allowed"),
        (Method::GET, "/v1/leases/some-id", 405, "method_not_allowed"),
        (Method::GET, "/v1/proxies?helthy=true", 400, "invalid_request"),
        (Method::GET, "/v1/proxies?healthy=yes", 400, "invalid_request"),
        (Method::GET, "/v1/proxies?healthy=true&healthy=false", 400, "invalid_request"),
        (Method::GET, "/v1/proxies?attr.=x", 400, "invalid_request"),
        (Method::GET, "/v1/proxies?namespace=", 400, "invalid_request"),
        (Method::GET, "/v1/proxies?namespace=a&namespace=b", 400, "invalid_request"),
        (Method::POST, "/v1/leases?target=example.com", 400, "invalid_request"),
        (Method::POST, "/v1/leases/x/renew?ttlSeconds=5", 400, "invalid_request"),
        (Method::POST, "/v1/leases/x/report?result=ok", 400, "invalid_request"),
        (Method::DELETE, "/v1/leases/x?force=true", 400, "invalid_request"),
        (Method::GET, "/v1/proxies/default/p?x=1", 400, "invalid_request"),
        (Method::GET, "/v1/proxies/default/%FF", 400, "invalid_request"),
        (Method::DELETE, "/v1/proxies/default/p/cooldowns?target=a%20b", 400, "invalid_request"),
        (Method::GET, "/v1/proxies/default/nope", 404, "unknown_proxy"),
        (Method::DELETE, "/v1/proxies/default/nope/cooldowns", 404, "unknown_proxy"),
    ];
    for (method, path, status, code) in rows {
        let answer = world.call(method.clone(), path, r#"{"result":"ok"}"#).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{method} {path}: {}", answer.text);
        assert_eq!(answer.headers["content-type"], "application/json", "{method} {path}");
    }
    let answer = world.call(Method::PUT, "/v1/leases", "").await;
    assert_eq!(answer.headers["allow"], "POST");
}

#[tokio::test]
async fn a_message_does_not_grow_with_what_was_sent() {
    let world = World::new([proxy("p")]).await;
    let answer = world.post("/v1/leases", &format!(r#"{{"{}":1}}"#, "k".repeat(60_000))).await;
    assert_eq!(answer.error(), (400, "invalid_request".to_owned()));
    assert!(answer.text.len() < 1000);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::new([proxy("p")]).await;
    for path in ["/v1/leases", "/v1/leases/x/renew", "/v1/leases/x/report"] {
        let never = futures::stream::pending::<Result<&str, std::io::Error>>();
        let answer = world.call(Method::POST, path, axum::body::Body::from_stream(never)).await;
        assert_eq!(answer.error(), (408, "request_timeout".to_owned()), "{path}");
    }
}
