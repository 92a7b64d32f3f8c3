//! The Squid pod itself: its users, what it may do to its node, and how it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::{Answer, condition, curl, wait_for};
use super::operator::{Namespace, PODS, Ring, TOKEN, ring};

/// Every character that breaks a URL, a shell or a configuration file somewhere, and two outside ASCII.
const PASSWORD: &str = "p@ss:w/o%r$d# with spaces äß";

#[test]
fn credentials_of_a_secret_reach_squid_probes_and_leases_whatever_they_contain() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("auth");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "user", "namespace": space.name, "labels": { "crawl.example.com/proxy-auth": "true" } },
        "stringData": { "username": "crawler", "password": PASSWORD },
    });
    ring.cluster.apply(&secret.to_string());
    // At a provider that runs Squid as a user of no name: it must do as well as Debian's own.
    space.proxy("one", "  mode: Managed\n  provider: any-user\n  attributes: { test: auth }\n  auth: { secretRef: { name: user } }\n");
    let proxy = space.wait("one", "Ready", "True");
    assert_eq!(ring.pod(&proxy).expect("a pod")["spec"]["securityContext"]["runAsUser"], 1_000_650_000);

    let body = json!({ "selector": { "test": "auth" }, "namespace": space.name }).to_string();
    let granted = ring.api("POST", "/v1/leases", Some(&body));
    assert_eq!(granted.status, 201, "{}", granted.body);
    let lease: Value = serde_json::from_str(&granted.body).expect("JSON");
    assert_eq!(lease["proxy"]["password"], PASSWORD);
    let page = curl(&["-x", lease["proxy"]["url"].as_str().expect("a url"), &ring.page]);
    assert_eq!((page.status, page.body.trim()), (200, "ok"));
    let without = curl(&["-x", lease["proxy"]["server"].as_str().expect("a server"), &ring.page]);
    assert_eq!(without.status, 407, "{}", without.body);
    let log = ring.log_text();
    for secret in [PASSWORD, TOKEN, lease["leaseID"].as_str().expect("an id")] {
        assert!(!log.contains(secret), "the operator logged {secret}");
    }
    let events = ring.cluster.kubectl(&["-n", &space.name, "get", "events", "-o", "yaml"]);
    assert!(!events.contains(PASSWORD), "an Event shows a password");
}

#[test]
fn squid_runs_without_rights_logs_requests_survives_a_kill_and_lets_tunnels_end() {
    let Some(ring) = ring() else { return };
    let space = ring.namespace("pod");
    space.proxy("one", "  mode: Managed\n  provider: kubernetes\n  attributes: { test: pod }\n");
    let proxy = space.wait("one", "Ready", "True");
    let pod = ring.pod(&proxy).expect("a pod");
    has_no_rights(&pod["spec"]);

    let name = pod["metadata"]["name"].as_str().expect("a name");
    is_logged(ring, &proxy, name, "status/204");
    let log = ring.cluster.kubectl(&["-n", PODS, "logs", name]);
    // The kubelet has connected by now, or the pod would not be ready.
    assert!(!log.contains("transaction-end-before-headers"), "the kubelet's probes are in the log: {log}");
    let memory: u64 = processes(container(&pod)).iter().map(|pid| resident_mib(*pid)).sum();
    assert!((1..200).contains(&memory), "Squid takes {memory} MiB");

    let before = restarts(&pod);
    // Process 1 of a container can't be killed from inside: kill everything of Squid's as the node's root.
    for pid in processes(container(&pod)) {
        Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill starts");
    }
    wait_for("it was started again and is ready", || {
        let now = ring.pod(&proxy).expect("the same pod");
        let ready = now["status"]["containerStatuses"][0]["ready"] == true;
        if restarts(&now) > before && ready { Ok(()) } else { Err(now["status"].to_string()) }
    });
    let after = space.wait("one", "Ready", "True");
    assert_eq!(after["status"]["incarnation"], proxy["status"]["incarnation"], "a restart is no replacement");
    assert_ne!(condition(&after, "Provisioned").0, "False");
    is_logged(ring, &proxy, name, "status/205");

    ends_with_an_open_tunnel(ring, &space, &proxy);
}

fn has_no_rights(spec: &Value) {
    assert_eq!(spec["automountServiceAccountToken"], false);
    let security = &spec["containers"][0]["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
}

/// Fetches a page through the proxy, and sees it in `kubectl logs`.
fn is_logged(ring: &Ring, proxy: &Value, pod: &str, path: &str) {
    let url = format!("http://{}:3128", proxy["status"]["ip"].as_str().expect("an address"));
    let answer = curl(&["-x", &url, &format!("{}{path}", ring.page)]);
    assert_eq!(format!("status/{}", answer.status), path, "{}", answer.body);
    wait_for("the request is in kubectl logs", || {
        let log = ring.cluster.kubectl(&["-n", PODS, "logs", pod]);
        if log.contains(path) { Ok(()) } else { Err(log) }
    });
}

/// Deletes the Proxy while a client holds a tunnel: it is hidden first, the tunnel gets Squid's own time to
/// end, and Squid ends by itself before the kubelet would kill it.
#[expect(clippy::disallowed_methods, reason = "a test measures real processes in real time")]
fn ends_with_an_open_tunnel(ring: &Ring, space: &Namespace, proxy: &Value) {
    let pod = ring.pod(proxy).expect("a pod");
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64().expect("a grace period");
    let name = pod["metadata"]["name"].as_str().expect("a name");
    let code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}{\"\\n\"}";
    let mut watch = ring
        .cluster
        .command(&["-n", PODS, "get", "pod", name, "--watch", "-o", code])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let tunnel = open_tunnel(ring, proxy);
    let began = Instant::now();
    ring.cluster.kubectl(&["-n", &space.name, "delete", "px", "one", "--wait=false"]);
    let body = json!({ "selector": { "test": "pod" }, "namespace": space.name }).to_string();
    wait_for("nobody gets it any more", || match ring.api("POST", "/v1/leases", Some(&body)) {
        Answer { status: 409, .. } => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let hidden = began.elapsed();
    // Squid's own time for open tunnels is 5 s.
    assert!(is_open(&tunnel) || hidden > Duration::from_secs(4), "cut at once, {hidden:?} after the delete");
    ring.cluster.kubectl(&["-n", &space.name, "wait", "--for=delete", "px/one", "--timeout=100s"]);
    let took = began.elapsed();
    assert!(ring.pod(proxy).is_none(), "the pod is gone with the Proxy");
    // As much again for a busy machine.
    assert!(took < Duration::from_secs(2 * grace), "it took {took:?}, the grace period is {grace} s");
    assert!(!is_open(&tunnel), "the tunnel outlives its proxy");

    watch.kill().expect("it runs");
    let seen = watch.wait_with_output().expect("it ends").stdout;
    let codes = String::from_utf8_lossy(&seen).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        codes.last().map(String::as_str),
        Some("0"),
        "Squid was killed, or nobody saw its end: {codes:?}"
    );
}

/// A tunnel to the API server, at its Service's address, through the proxy.
fn open_tunnel(ring: &Ring, proxy: &Value) -> TcpStream {
    let path = "jsonpath={.spec.clusterIP}";
    let target = ring.cluster.kubectl(&["-n", "default", "get", "service", "kubernetes", "-o", path]);
    let address = proxy["status"]["ip"].as_str().expect("an address");
    let mut stream = TcpStream::connect((address, 3128)).expect("Squid listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let request = format!("CONNECT {target}:443 HTTP/1.1\r\nHost: {target}:443\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("Squid reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("Squid answers");
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream
}

/// Whether the tunnel is still there: nobody sends anything in it.
fn is_open(tunnel: &TcpStream) -> bool {
    tunnel.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
    match tunnel.peek(&mut [0]) {
        Ok(bytes) => bytes > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

fn restarts(pod: &Value) -> i64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0)
}

/// The id of a pod's only container.
fn container(pod: &Value) -> &str {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().expect("an id");
    id.rsplit('/').next().expect("an id")
}

/// Every process whose cgroup names the container.
fn processes(container: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let cgroup = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if cgroup.contains(container) {
            found.extend(entry.file_name().to_string_lossy().parse::<u32>());
        }
    }
    assert!(!found.is_empty(), "no process of container {container} was found");
    found
}

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim_end_matches("kB").trim().parse::<u64>().expect("a number") / 1024
}
