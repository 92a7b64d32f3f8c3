//! The shell examples of `docs/http-api.md`, run as they stand by a real curl against the real server, and
//! through a proxy that demands an awkward password. Pages are asked for over plain HTTP, which is the one
//! change made to the examples: nothing outside of this machine is contacted. Likewise the Python example,
//! by what it reports of proxies that fail in several ways.
//!
//! Needs `sh`, `curl` and `jq`, or `python3` with requests; where one is missing the test says so and ends.

use std::io::{Write, stderr};
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egress_proxies_operator::http::{Limits, serve};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::world::{TOKEN, World, credentials, with};

const USER: &str = "craw:ler";
const PASSWORD: &str = "p@s:s/w%o$r#d \u{e9}";
const DOCUMENT: &str = include_str!("../../../../docs/http-api.md");

/// The fenced blocks of a language, in their order.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut blocks = Vec::new();
    let mut open = false;
    for line in DOCUMENT.lines() {
        match (open, line) {
            (false, line) if line == fence => {
                open = true;
                blocks.push(String::new());
            }
            (true, "```") => open = false,
            (true, line) => blocks.last_mut().expect("a block").extend([line, "\n"]),
            (false, _) => {}
        }
    }
    blocks
}

async fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", program])
        .stdout(Stdio::null())
        .status()
        .await;
    found.is_ok_and(|status| status.success())
}

/// A proxy that answers every request itself, if the credentials are right.
async fn proxy(listener: TcpListener) {
    let expected = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    while let Ok((mut stream, _)) = listener.accept().await {
        let head = head(&mut stream).await;
        let right = head.lines().any(|line| {
            line.split_once(": Basic ").is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("proxy-authorization") && value == expected
            })
        });
        let status = if right && head.starts_with("GET http://example.com/ ") {
            "200 OK"
        } else {
            "407 Proxy Authentication Required"
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\nconnection: close\r\n\r\npage\n");
        // A client that is gone is no fault of this proxy.
        stream.write_all(answer.as_bytes()).await.unwrap_or_default();
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn the_shell_examples_work_as_they_stand() {
    for program in ["curl", "jq"] {
        if !has(program).await {
            writeln!(stderr(), "left out: {program} is not installed").unwrap();
            return;
        }
    }
    let mut tasks = JoinSet::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy_port = listener.local_addr().unwrap().port();
    tasks.spawn(proxy(listener));
    let world = World::new([with("proxy-1", |f| {
        f.auth = credentials(USER, PASSWORD);
        let machine = f.machine.as_mut().unwrap();
        (machine.address, machine.port) = ("127.0.0.1".to_owned(), proxy_port);
    })])
    .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    let (router, stop) = (world.router.clone(), CancellationToken::new());
    let server_stop = stop.clone();
    tasks.spawn(async move { serve(listener, router, Limits::default(), server_stop).await.unwrap() });

    let blocks = blocks("sh");
    let (setting, examples) = blocks.split_first().expect("examples");
    assert!(setting.starts_with("API=") && examples.len() >= 4, "{blocks:?}");
    for example in examples {
        let id = world.lease("{}").await;
        let script = format!("set -eu\n{}", example.replace("https://example.com/", "http://example.com/"));
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .env_clear()
            .envs([
                ("API", api.as_str()),
                ("TOKEN", TOKEN),
                ("id", &id),
                ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ])
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{said}\nin\n{script}", output.status);
        if script.contains("-o page.html") {
            assert_eq!(std::fs::read_to_string(folder.path().join("page.html")).unwrap(), "page\n");
        }
        let cooldowns = world.delete("/v1/proxies/default/proxy-1/cooldowns").await;
        assert_eq!(cooldowns.status, 204);
    }
    stop.cancel();
}

/// A proxy that gives this answer to whatever it is asked.
async fn answering(listener: TcpListener, status: &'static str) {
    while let Ok((mut stream, _)) = listener.accept().await {
        head(&mut stream).await;
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        // A client that is gone is no fault of this proxy.
        stream.write_all(answer.as_bytes()).await.unwrap_or_default();
    }
}

#[tokio::test]
async fn the_python_example_blames_the_proxy_for_what_is_its_fault_only_and_always_releases() {
    let installed =
        Command::new("python3").args(["-c", "import requests"]).stderr(Stdio::null()).status().await;
    if !installed.is_ok_and(|status| status.success()) {
        writeln!(stderr(), "left out: python3 with requests is not installed").unwrap();
        return;
    }
    // What the proxy says to CONNECT, if it is there at all; whether that is its own fault.
    let rows = [
        (Some("503 Service Unavailable"), false),
        (Some("403 Forbidden"), false),
        (Some("407 Proxy Authentication Required"), true),
        (None, true),
    ];
    let mut tasks = JoinSet::new();
    for (status, its_fault) in rows {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        match status {
            Some(status) => drop(tasks.spawn(answering(listener, status))),
            None => drop(listener),
        }
        let world = World::new([with("proxy-1", |f| {
            let machine = f.machine.as_mut().unwrap();
            (machine.address, machine.port) = ("127.0.0.1".to_owned(), port);
        })])
        .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let (router, stop) = (world.router.clone(), CancellationToken::new());
        tasks.spawn(async move { serve(listener, router, Limits::default(), stop).await.unwrap() });
        run_python(&api).await;
        let shown = world.get("/v1/proxies/default/proxy-1").await.json();
        assert_eq!(shown["reportedUnreachable"], its_fault, "{status:?}");
        assert_eq!(shown["activeLeases"], 0, "{status:?}");
    }
}

async fn run_python(api: &str) {
    let blocks = blocks("python");
    let example = blocks.iter().find(|block| block.starts_with("import requests")).expect("the example");
    let script =
        example.replace("http://localhost:8090", api).replace(r#", "...""#, &format!(r#", "{TOKEN}""#));
    assert!(script.contains(api) && script.contains(TOKEN), "{script}");
    let output =
        Command::new("python3").args(["-c", &script]).env("NO_PROXY", "127.0.0.1").output().await.unwrap();
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn the_answers_shown_have_the_fields_of_real_ones() {
    let shown: Vec<Value> = blocks("json").iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let world = World::new([with("p", |f| f.auth = credentials("u", "p"))]).await;
    let lease = world.post("/v1/leases", "{}").await.json();
    world.set([with("p", |f| f.suspend = true)]);
    let refused = world.post("/v1/leases", "{}").await.json();
    assert_eq!(shown.len(), 2);
    for (shown, real) in shown.iter().zip([lease, refused]) {
        assert_eq!(fields(shown), fields(&real));
    }
}

fn fields(value: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        names.push(name.clone());
        if name != "attributes" {
            names.extend(fields(value).into_iter().map(|inner| format!("{name}.{inner}")));
        }
    }
    names.sort();
    names
}
