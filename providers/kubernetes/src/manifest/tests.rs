//! What the pod may and may not do.

use egress_proxies_provider_sdk::model::Credentials;

use super::*;
use crate::settings::Config;

fn request() -> CreateRequest {
    CreateRequest {
        name: "px-1".into(),
        attempt_key: "a".into(),
        port: 3128,
        placement: "{}".into(),
        parameters: "{}".into(),
        bootstrap: None,
        access: None,
        tags: Vec::new(),
        owner: Vec::new(),
        extra: Vec::new(),
    }
}

fn made(config: &str, placement: &str, request: &CreateRequest) -> Value {
    let config: Config = serde_json::from_str(config).unwrap();
    pod("proxies", request, &Settings::of_machine(config, placement, "{}").unwrap())
}

#[test]
fn it_fits_the_restricted_standard() {
    let pod = made("{}", "{}", &request());
    let spec = &pod["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["enableServiceLinks"], false);
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &spec["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"], json!({"drop": ["ALL"]}));
    for field in ["hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "nodeName", "initContainers"] {
        assert!(spec[field].is_null(), "{field}");
    }
    let volumes = spec["volumes"].as_array().unwrap();
    assert!(
        volumes
            .iter()
            .all(|volume| volume["projected"].is_object() || volume["emptyDir"]["sizeLimit"].is_string())
    );
    assert_eq!(spec["volumes"][0]["projected"]["sources"].as_array().unwrap().len(), 1, "no Secret");
}

#[test]
fn squid_comes_back_and_ends_within_its_grace_period() {
    for (config, grace) in [("{}", 15), (r#"{"shutdownSeconds": 300}"#, 310)] {
        let pod = made(config, "{}", &request());
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], grace);
    }
}

#[test]
fn the_user_is_the_configurations_or_the_platforms() {
    let user = |config: &str| made(config, "{}", &request())["spec"]["securityContext"]["runAsUser"].clone();
    assert_eq!(user("{}"), 13);
    assert_eq!(user(r#"{"runAsUser": 1000650000}"#), 1_000_650_000);
    assert_eq!(user(r#"{"runAsUser": null}"#), Value::Null);
}

#[test]
fn a_low_port_needs_the_safe_sysctl() {
    let sysctls = |port| {
        made("{}", "{}", &CreateRequest { port, ..request() })["spec"]["securityContext"]["sysctls"].clone()
    };
    assert_eq!(sysctls(80), json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]));
    assert_eq!(sysctls(1024), Value::Null);
}

#[test]
fn the_proxys_image_and_labels_are_used() {
    let config = r#"{"image": "a/squid:1", "imagePullSecrets": ["s"], "nodeSelector": {"zone": "z"}}"#;
    let pod = made(
        config,
        r#"{"image": "b/squid:2", "labels": {"team": "crawl", "app.kubernetes.io/name": "x"}}"#,
        &request(),
    );
    assert_eq!(pod["spec"]["containers"][0]["image"], "b/squid:2");
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"zone": "z"}));
    assert_eq!(pod["metadata"]["labels"]["team"], "crawl");
    assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/name"], "squid");
    assert_eq!(made(config, "{}", &request())["spec"]["containers"][0]["image"], "a/squid:1");
}

#[test]
fn the_secret_belongs_to_its_pod_and_never_changes() {
    let mut request = request();
    request.access = Some(Credentials { username: "u".into(), password: "p".into() });
    let secret = secret("proxies", &request, "uid-1", &[0; 12]).unwrap();
    assert_eq!(secret["immutable"], true);
    let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": "px-1", "uid": "uid-1"}]);
    assert_eq!(secret["metadata"]["ownerReferences"], owners);
    let files: Vec<&String> = secret["stringData"].as_object().unwrap().keys().collect();
    assert_eq!(files, ["users"]);
    let pod = made("{}", "{}", &request);
    assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": GATE}]));
    let sources = &pod["spec"]["volumes"][0]["projected"]["sources"];
    assert_eq!(sources[1]["secret"]["name"], secret["metadata"]["name"]);
}

#[test]
fn the_main_configuration_is_a_file_that_the_pod_itself_holds() {
    let request = request();
    let pod = made("{}", "{}", &request);
    assert_eq!(pod["spec"]["schedulingGates"], Value::Null, "nothing has to be there before it starts");
    let item = &pod["spec"]["volumes"][0]["projected"]["sources"][0]["downwardAPI"]["items"][0];
    assert_eq!(item["path"], MAIN_FILE);
    assert_eq!(item["fieldRef"]["fieldPath"], "metadata.annotations['crawl.example.com/squid.conf']");
    let text = pod["metadata"]["annotations"]["crawl.example.com/squid.conf"].as_str().unwrap();
    assert!(text.starts_with("http_port 3128\n"), "{text}");
}

#[test]
fn a_long_configuration_fits_into_an_annotation() {
    const MANY: u32 = 1000;
    let networks: Vec<String> = (0..MANY).map(|n| format!("2001:db8:{n:x}:ffff:ffff:ffff::/96")).collect();
    let denied: Vec<String> = (0..MANY).map(|n| format!("2001:db9:{n:x}:ffff:ffff:ffff::/96")).collect();
    let ports: Vec<String> = (0..MANY).map(|n| format!("{}-{}", 10_000 + n, 20_000 + n)).collect();
    let config = json!({"allowedClients": networks, "deniedDestinations": denied, "connectPorts": ports, "safePorts": ports});
    let pod = made(&config.to_string(), "{}", &request());
    // The API server takes 256 KiB of annotations.
    let text = pod["metadata"]["annotations"]["crawl.example.com/squid.conf"].as_str().unwrap();
    assert!((100_000..240_000).contains(&text.len()), "{}", text.len());
}
