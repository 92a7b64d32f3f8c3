//! `describe`, `validate-config` and `validate-create`: each field at fault is named.

use egress_proxies_provider_sdk::model::{CallContext, Credentials, Failure, Reason};
use egress_proxies_provider_sdk::{Context, Provider};
use serde_json::Value;

use super::*;

fn pointer(failure: &Failure) -> &str {
    let Reason::Invalid(pointer) = &failure.reason else { panic!("{failure:?}") };
    pointer
}

#[test]
fn the_schemas_are_json_and_closed() {
    let description = Kubernetes.describe();
    for schema in [description.config_schema, description.placement_schema, description.parameters_schema] {
        let schema: Value = serde_json::from_str(&schema.unwrap()).unwrap();
        assert_eq!(schema["additionalProperties"], false);
        for (name, property) in schema["properties"].as_object().unwrap() {
            let defined = property["$ref"].as_str().map(|path| path.trim_start_matches("#/$defs/"));
            let described = defined.map_or(property, |name| &schema["$defs"][name]);
            assert!(described["description"].is_string(), "{name} has no description");
        }
    }
    assert_eq!(description.capabilities, ["access"]);
}

#[test]
fn a_config_says_what_it_reaches_and_asks_for() {
    let report = Kubernetes.validate_config(&Fake::new().context).unwrap();
    assert_eq!(report.scope, "namespaces/proxies");
    assert_eq!(report.egress[0].methods, ["GET", "POST", "PATCH", "DELETE"]);
    assert_eq!(report.egress[0].path_prefix, "/api/v1/namespaces/proxies/");
    assert_eq!((report.egress[0].auth.as_str(), report.warnings.len()), ("kubernetes", 0));
    let open = Fake::with_config(r#"{"allowedClients": ["0.0.0.0/0", "::/0"]}"#);
    assert_eq!(Kubernetes.validate_config(&open.context).unwrap().warnings.len(), 1);
}

#[test]
fn without_a_namespace_nothing_works_and_the_message_says_why() {
    let context = Context::new(CallContext {
        provider: "k".into(),
        config: "{}".into(),
        timeout_ms: 2_000,
        request_id: String::new(),
        extra: Vec::new(),
    });
    let failure = Kubernetes.validate_config(&context).unwrap_err();
    assert!(failure.message.contains("kubernetes: {namespace:"), "{}", failure.message);
    assert!(Kubernetes.validate_create(&context, &request()).is_err());
}

#[test]
fn each_bad_config_names_its_field() {
    let rows = [
        (r#"{"imagePullPolicy": "Sometimes"}"#, "/config/imagePullPolicy"),
        (r#"{"allowedClients": ["10.0.0.0/8", "10.0.0.0/33"]}"#, "/config/allowedClients/1"),
        (r#"{"allowedClients": ["10.0.0.0/8", "0.0.0.0/0"]}"#, "/config/allowedClients/1"),
        (r#"{"deniedDestinations": ["::/0"]}"#, "/config/deniedDestinations/0"),
        (r#"{"deniedDestinations": ["example.com"]}"#, "/config/deniedDestinations/0"),
        (r#"{"connectPorts": [443, 0]}"#, "/config/connectPorts/1"),
        (r#"{"safePorts": ["9-8"]}"#, "/config/safePorts/0"),
        (r#"{"safePorts": ["1-65536"]}"#, "/config/safePorts/0"),
        (r#"{"resources": {"limit": {}}}"#, "/config/resources/limit"),
        (r#"{"replicas": 2}"#, "/config/replicas"),
    ];
    for (config, expected) in rows {
        let failure = Kubernetes.validate_config(&Fake::with_config(config).context).unwrap_err();
        assert_eq!(pointer(&failure), expected);
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
}

#[test]
fn each_bad_request_names_its_field() {
    let placement = |text: &str| CreateRequest { placement: text.into(), ..request() };
    let parameters = |text: &str| CreateRequest { parameters: text.into(), ..request() };
    let bootstrap = |text: String| CreateRequest { bootstrap: Some(text), ..request() };
    let access = |username: &str, password: &str| CreateRequest {
        access: Some(Credentials { username: username.into(), password: password.into() }),
        ..request()
    };
    let rows = [
        (placement(r#"{"zone": "a"}"#), "/placement/zone"),
        (placement(r#"{"machineType": "e2"}"#), "/placement/machineType"),
        (placement(r#"{"network": "n"}"#), "/placement/network"),
        (placement(r#"{"subnetwork": "n"}"#), "/placement/subnetwork"),
        (placement(r#"{"diskSizeGb": 10}"#), "/placement/diskSizeGb"),
        (parameters(r#"{"allowedClients": ["x"]}"#), "/parameters/allowedClients/0"),
        (parameters(r#"{"allowedClients": ["::/0"]}"#), "/parameters/allowedClients/0"),
        (parameters(r#"{"connectPorts": [65536]}"#), "/parameters/connectPorts/0"),
        (parameters(r#"{"nodeSelector": {"a": 1}}"#), "/parameters/nodeSelector/a"),
        (CreateRequest { port: 0, ..request() }, "/port"),
        (bootstrap("#\n".repeat(65_537)), "/bootstrap"),
        (bootstrap("a\0b".into()), "/bootstrap"),
        (bootstrap("#cloud-config\n".into()), "/bootstrap"),
        (bootstrap("via off\nacl never dst 1.1.1.1".into()), "/bootstrap"),
        (bootstrap("cache_peer 10.0.0.1 parent 80 0".into()), "/bootstrap"),
        (access("", "p"), "/access/username"),
        (access("a:b", "p"), "/access/username"),
        (access("#a", "p"), "/access/username"),
        (access("a", ""), "/access/password"),
        (access("a", "b\nc"), "/access/password"),
        (access("a", &"x".repeat(257)), "/access/password"),
    ];
    for (request, expected) in rows {
        let failure = Kubernetes.validate_create(&Fake::new().context, &request).unwrap_err();
        assert_eq!(pointer(&failure), expected);
    }
}

#[test]
fn the_configuration_can_allow_more_directives_and_a_create_checks_them_too() {
    let request = CreateRequest { bootstrap: Some("cache_peer 10.0.0.1 parent 80 0".into()), ..request() };
    let open = Fake::with_config(r#"{"extraDirectives": ["cache_peer"]}"#);
    Kubernetes.validate_create(&open.context, &request).unwrap();
    Kubernetes.create(&open.call(), &request).unwrap();
    let closed = Fake::new();
    let failure = Kubernetes.create(&closed.call(), &request).unwrap_err();
    assert_eq!(pointer(&failure), "/bootstrap");
    assert!(closed.requests.borrow().is_empty());
}

#[test]
fn odd_passwords_are_fine() {
    for password in ["@", ":", "/", "%", "$", "#", " ", "ü", "p@: /%$#\"'\\ü"] {
        let access = Some(Credentials { username: "user name@ü".into(), password: password.into() });
        Kubernetes.validate_create(&Fake::new().context, &CreateRequest { access, ..request() }).unwrap();
    }
}

#[test]
fn the_largest_bootstrap_is_counted_in_bytes() {
    let bootstrap = |text: String| CreateRequest { bootstrap: Some(text), ..request() };
    let validate = |request: &CreateRequest| Kubernetes.validate_create(&Fake::new().context, request);
    validate(&bootstrap("#\n".repeat(65_536))).unwrap();
    assert!(validate(&bootstrap("ü".repeat(65_537))).unwrap_err().message.contains("131074 bytes"));
}
