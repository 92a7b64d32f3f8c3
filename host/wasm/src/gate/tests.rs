//! The gate as a guest meets it, against real sockets on this machine.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::config::{EgressAuth, EgressRule};
use egress_proxies_core::ids::ProviderName;

fn rule(address: SocketAddr, prefix: &str, allow: &[&str]) -> EgressRule {
    EgressRule {
        origin: target::origin(&format!("http://{address}")).unwrap(),
        methods: vec!["GET".into(), "POST".into()],
        path_prefix: prefix.into(),
        auth: EgressAuth::None,
        allow_cidrs: allow.iter().map(|net| net.parse().unwrap()).collect(),
    }
}

fn policy(egress: Vec<EgressRule>) -> Policy {
    Policy::new(ProviderName::parse("p").unwrap(), egress, None, plain::PlainClient::new().unwrap())
}

fn gate(egress: Vec<EgressRule>, network: Network, time: Duration) -> Arc<CallGate> {
    CallGate::new(Arc::new(policy(egress)), network, Errand::Look, Instant::now() + time)
}

fn request(method: &str, uri: &str, body: &'static [u8]) -> http::Request<WasiBody> {
    let body = Full::new(Bytes::from_static(body)).map_err(|never| match never {}).boxed_unsync();
    http::Request::builder().method(method).uri(uri).body(body).unwrap()
}

/// A server that answers every connection by `answer`, and keeps what it read first.
async fn server<F, A>(answer: F) -> (SocketAddr, JoinSet<()>, Arc<Mutex<Vec<String>>>)
where
    F: Fn(TcpStream) -> A + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut tasks, log) = (JoinSet::new(), Arc::clone(&seen));
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 4096];
            let read = stream.read(&mut buffer).await.unwrap_or(0);
            log.lock().unwrap().push(String::from_utf8_lossy(&buffer[..read]).into_owned());
            answer(stream).await;
        }
    });
    (address, tasks, seen)
}

async fn write(mut stream: TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

static BIG: [u8; MOST_REQUEST_BYTES + 1] = [b'x'; MOST_REQUEST_BYTES + 1];
const LOOPBACK: &[&str] = &["127.0.0.1/32"];
const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_granted_request_goes_out_and_its_answer_is_stripped() {
    let (address, _tasks, seen) = server(|stream| {
        write(stream, "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\nset-cookie: a=b\r\nx-kept: yes\r\ncontent-length: 2\r\n\r\nok")
    })
    .await;
    let gate = gate(vec![rule(address, "/v1", LOOPBACK)], Network::Granted, MINUTE);
    let mut asked = request("POST", &format!("http://{address}/v1/things?a=b"), b"{}");
    asked.headers_mut().insert("x-own", http::HeaderValue::from_static("1"));
    asked.headers_mut().insert("authorization", http::HeaderValue::from_static("Bearer x"));
    let response = gate.send(asked, None).await.unwrap();
    assert_eq!(response.status(), 302, "redirects are the guest's business");
    assert_eq!(response.body().as_ref(), b"ok");
    assert!(response.headers().contains_key("x-kept") && !response.headers().contains_key("set-cookie"));
    let sent = seen.lock().unwrap().first().unwrap().to_lowercase();
    assert!(sent.starts_with("post /v1/things?a=b http/1.1\r\n"), "{sent}");
    assert!(sent.contains(&format!("host: {address}")) && sent.contains("x-own: 1"), "{sent}");
    assert!(!sent.contains("bearer"), "{sent}");
    assert_eq!(gate.denial(), None);
}

#[tokio::test]
async fn a_process_that_may_no_longer_act_reads_and_changes_nothing() {
    let (address, _tasks, seen) =
        server(|stream| write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"))
            .await;
    let acts = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&acts);
    let fence = Fence::new(Arc::new(move || asked.load(Ordering::SeqCst)));
    let policy = policy(vec![rule(address, "/", LOOPBACK)]).behind(fence);
    let policy = Arc::new(policy).with_needs(Vec::new());
    let gate = CallGate::new(policy, Network::Granted, Errand::Look, Instant::now() + MINUTE);
    let send = |method| gate.send(request(method, &format!("http://{address}/"), b""), None);
    assert_eq!(send("POST").await.unwrap().status(), 200);
    acts.store(false, Ordering::SeqCst);
    assert!(!gate.held_back());
    assert!(matches!(send("POST").await, Err(Error::ConnectionTerminated)));
    assert!(gate.held_back());
    assert_eq!(send("GET").await.unwrap().status(), 200);
    let methods: Vec<String> =
        seen.lock().unwrap().iter().map(|head| head.chars().take_while(|c| *c != ' ').collect()).collect();
    assert_eq!(methods, ["POST", "GET"]);
    assert_eq!(gate.denial(), None, "nothing is missing in the providers config");
}

#[tokio::test]
async fn a_process_that_may_no_longer_act_once_it_is_connected_sends_nothing() {
    let (address, _tasks, seen) =
        server(|stream| write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"))
            .await;
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    // The lead is lost right after the first question.
    let fence = Fence::new(Arc::new(move || count.fetch_add(1, Ordering::SeqCst) == 0));
    let policy = Arc::new(policy(vec![rule(address, "/", LOOPBACK)]).behind(fence));
    let gate = CallGate::new(policy, Network::Granted, Errand::Look, Instant::now() + MINUTE);
    let sent = gate.send(request("POST", &format!("http://{address}/"), b"{}"), None).await;
    assert!(matches!(sent, Err(Error::ConnectionTerminated)), "{sent:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    // The next connection is answered after the first one: by then all of that was read.
    gate.send(request("GET", &format!("http://{address}/"), b""), None).await.unwrap();
    let heads = seen.lock().unwrap().clone();
    assert!(heads.len() == 2 && heads[0].is_empty() && heads[1].starts_with("GET "), "{heads:?}");
}

#[tokio::test]
async fn what_is_not_granted_is_remembered_with_the_missing_line() {
    let (address, _tasks, seen) =
        server(|stream| write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    for (method, uri, line) in [
        (
            "GET",
            format!("http://{address}/v2"),
            format!("{{ origin: \"http://{address}\", methods: [GET], pathPrefix: /v2, auth: none }}"),
        ),
        ("DELETE", format!("http://{address}/v1"), "methods: [DELETE]".to_owned()),
        (
            "GET",
            "https://api.example.com/x?secret=1".to_owned(),
            "origin: \"https://api.example.com\"".to_owned(),
        ),
        ("GET", format!("http://user:pw@{address}/v1"), "user and password".to_owned()),
        ("GET", format!("http://{address}/v1/%2e%2e/admin"), "hides".to_owned()),
        (
            "GET",
            "https://kubernetes.internal/api/v1/namespaces/a/pods".to_owned(),
            "kubernetes: {".to_owned(),
        ),
        ("TRACE", format!("http://{address}/v1"), "TRACE is never allowed".to_owned()),
        ("get", format!("http://{address}/v1"), "get is never allowed".to_owned()),
    ] {
        let gate = gate(vec![rule(address, "/v1", LOOPBACK)], Network::Granted, MINUTE);
        let error = gate.send(request(method, &uri, b""), None).await.unwrap_err();
        assert!(matches!(error, Error::HttpRequestDenied), "{uri}: {error}");
        let denial = gate.denial().unwrap();
        assert!(denial.contains(&line), "{uri}: {denial}");
        assert!(!denial.contains("secret=1") && !denial.contains("pw"), "{denial}");
    }
    assert!(seen.lock().unwrap().is_empty(), "nothing left");
}

#[tokio::test]
async fn private_and_metadata_addresses_are_refused_after_resolution() {
    let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let refused = gate(vec![rule(address, "/", &[])], Network::Granted, MINUTE);
    refused.send(request("GET", &format!("http://{address}/"), b""), None).await.unwrap_err();
    assert!(refused.denial().unwrap().contains("allowCidrs: [127.0.0.1/32]"), "{:?}", refused.denial());

    let named =
        EgressRule { origin: target::origin("http://localhost:9").unwrap(), ..rule(address, "/", &[]) };
    let refused = gate(vec![named], Network::Granted, MINUTE);
    refused.send(request("GET", "http://localhost:9/", b""), None).await.unwrap_err();
    assert!(refused.denial().unwrap().contains("not public"), "{:?}", refused.denial());

    let metadata: SocketAddr = "169.254.169.254:80".parse().unwrap();
    let refused = gate(vec![rule(metadata, "/", LOOPBACK)], Network::Granted, MINUTE);
    refused.send(request("GET", "http://169.254.169.254/", b""), None).await.unwrap_err();
    assert!(refused.denial().unwrap().contains("never allowed"), "{:?}", refused.denial());
}

#[tokio::test]
async fn calls_without_network_have_none() {
    let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let gate = gate(vec![rule(address, "/", LOOPBACK)], Network::Off, MINUTE);
    gate.send(request("GET", &format!("http://{address}/"), b""), None).await.unwrap_err();
    assert!(gate.denial().unwrap().contains("without the network"));
}

#[tokio::test]
async fn a_server_that_never_answers_ends_with_the_call_whatever_the_guest_asked_for() {
    let (address, _tasks, _) = server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let gate = gate(vec![rule(address, "/", LOOPBACK)], Network::Granted, Duration::from_millis(300));
    let options =
        RequestOptions { first_byte_timeout: Some(Duration::from_mins(10)), ..RequestOptions::default() };
    let began = Instant::now();
    let error =
        gate.send(request("GET", &format!("http://{address}/"), b""), Some(options)).await.unwrap_err();
    assert!(matches!(error, Error::HttpResponseTimeout), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_server_that_drips_ends_with_the_call() {
    let (address, _tasks, _) = server(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let gate = gate(vec![rule(address, "/", LOOPBACK)], Network::Granted, Duration::from_millis(400));
    let error = gate.send(request("GET", &format!("http://{address}/"), b""), None).await.unwrap_err();
    assert!(matches!(error, Error::ConnectionReadTimeout), "{error}");
}

#[tokio::test]
async fn answers_and_requests_have_a_largest_size() {
    let (address, _tasks, _) = server(|mut stream| async move {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", MOST_RESPONSE_BYTES + 1);
        stream.write_all(head.as_bytes()).await.unwrap();
        let _cut_off = stream.write_all(&vec![b'x'; MOST_RESPONSE_BYTES + 1]).await;
    })
    .await;
    let gate = gate(vec![rule(address, "/", LOOPBACK)], Network::Granted, MINUTE);
    let error = gate.send(request("GET", &format!("http://{address}/"), b""), None).await.unwrap_err();
    assert!(matches!(error, Error::HttpResponseBodySize(_)), "{error}");
    let error = gate.send(request("POST", &format!("http://{address}/"), &BIG), None).await.unwrap_err();
    assert!(matches!(error, Error::HttpRequestBodySize(_)), "{error}");
}

#[tokio::test]
async fn a_call_has_a_number_of_requests_refused_ones_too() {
    let refused = gate(Vec::new(), Network::Granted, MINUTE);
    for _ in 0..3 {
        refused.send(request("GET", "https://api.example.com/", b""), None).await.unwrap_err();
    }
    assert_eq!(refused.requests(), 3);
    refused.requests.store(MOST_REQUESTS, Ordering::Relaxed);
    let error = refused.send(request("GET", "https://other.example.com/", b""), None).await.unwrap_err();
    assert!(matches!(error, Error::ConnectionLimitReached), "{error}");
    assert!(
        refused.denial().unwrap().contains("api.example.com"),
        "the first refusal is the one that is kept"
    );

    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let gate = gate(vec![rule(address, "/", LOOPBACK)], Network::Granted, MINUTE);
    gate.requests.store(MOST_REQUESTS, Ordering::Relaxed);
    let error = gate.send(request("GET", &format!("http://{address}/"), b""), None).await.unwrap_err();
    assert!(matches!(error, Error::ConnectionLimitReached), "{error}");
}

#[tokio::test]
async fn answers_that_are_kept_count_until_they_are_let_go() {
    let (address, _tasks, _) = server(|mut stream| async move {
        let body = vec![b'x'; 6 << 20];
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        let _cut_off = stream.write_all(&body).await;
    })
    .await;
    let gate = gate(vec![rule(address, "/", LOOPBACK)], Network::Granted, MINUTE);
    let ask = || gate.send(request("GET", &format!("http://{address}/"), b""), None);
    let kept = [ask().await.unwrap(), ask().await.unwrap()];
    let error = ask().await.unwrap_err();
    assert!(matches!(error, Error::HttpResponseBodySize(_)), "{error}");
    drop(kept);
    assert_eq!(ask().await.unwrap().body().len(), 6 << 20);
}

#[tokio::test]
async fn the_headers_of_an_answer_have_a_largest_size() {
    let (address, _tasks, _) = server(|mut stream| async move {
        let long = "x".repeat(MOST_RESPONSE_HEADERS);
        let head = format!("HTTP/1.1 200 OK\r\nx-long: {long}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
    })
    .await;
    let gate = gate(vec![rule(address, "/", LOOPBACK)], Network::Granted, MINUTE);
    let error = gate.send(request("GET", &format!("http://{address}/"), b""), None).await.unwrap_err();
    assert!(matches!(error, Error::HttpResponseHeaderSectionSize(_)), "{error}");
}
