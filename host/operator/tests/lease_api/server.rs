//! Over a real connection: what a client can do to the server by being slow, many, or there at the end.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use egress_proxies_operator::http::{Limits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::world::{TOKEN, World, proxy};

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<std::io::Result<()>>,
}

async fn start(router: Router, limits: Limits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener, router, limits, stop.clone()));
    Server { address, stop, tasks }
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

/// Sends the text and reads until the server closes, or for 5 s at most.
async fn exchange(mut stream: TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection stays open after {:?}", String::from_utf8_lossy(&answer));
    String::from_utf8_lossy(&answer).into_owned()
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn the_api_answers_over_tcp_and_refuses_a_long_body_before_it_is_sent() {
    let world = World::new([proxy("p")]).await;
    let server = start(world.router.clone(), Limits::default()).await;
    assert!(exchange(connect(&server).await, HEALTH).await.ends_with("ok"));
    let head = format!(
        "POST /v1/leases HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 66560\r\n\
         connection: close\r\n\r\n"
    );
    let answer = exchange(connect(&server).await, &head).await;
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.contains(r#""error":"body_too_large""#),
        "{answer}"
    );
    server.stop.cancel();
}

#[tokio::test]
async fn a_client_that_sends_its_header_slowly_or_nothing_at_all_is_cut_off() {
    let world = World::new([]).await;
    let limits = Limits { header_read: Duration::from_millis(200), ..Limits::default() };
    let server = start(world.router.clone(), limits).await;
    for text in ["", "GET /healthz HTTP/1.1\r\nhost:"] {
        exchange(connect(&server).await, text).await;
    }
    server.stop.cancel();
}

#[tokio::test]
async fn a_client_that_never_takes_its_answer_is_cut_off_and_frees_its_place() {
    let big = Router::new().route("/big", get(async || vec![b'x'; 64 << 20]));
    let limits = Limits { connections: 1, write: Duration::from_millis(300), ..Limits::default() };
    let server = start(big, limits).await;
    let mut greedy = connect(&server).await;
    greedy.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let next =
        exchange(connect(&server).await, "GET /nope HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(next.starts_with("HTTP/1.1 404 "), "{next}");
    server.stop.cancel();
}

#[tokio::test]
async fn a_client_that_takes_its_answer_slowly_but_takes_it_gets_all_of_it() {
    let big = Router::new().route("/big", get(async || vec![b'x'; 16 << 20]));
    let server = start(big, Limits { write: Duration::from_millis(500), ..Limits::default() }).await;
    let mut slow = connect(&server).await;
    slow.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let (mut piece, mut taken) = (vec![0; 2 << 20], 0);
    loop {
        let read = slow.read(&mut piece).await.unwrap();
        taken += read;
        if read == 0 {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(taken > 16 << 20, "{taken}");
    server.stop.cancel();
}

#[tokio::test]
async fn connections_over_the_cap_wait_for_their_turn() {
    let world = World::new([]).await;
    let server = start(world.router.clone(), Limits { connections: 1, ..Limits::default() }).await;
    let first = connect(&server).await;
    sleep(Duration::from_millis(50)).await;
    let mut second = connect(&server).await;
    second.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(300), second.read(&mut byte)).await.is_err(), "it was not capped");
    drop(first);
    assert_eq!(timeout(Duration::from_secs(5), second.read(&mut byte)).await.unwrap().unwrap(), 1);
    server.stop.cancel();
}

#[tokio::test]
async fn a_stop_lets_requests_under_way_finish_and_takes_no_new_ones() {
    let slow = Router::new().route(
        "/slow",
        get(async || {
            sleep(Duration::from_millis(400)).await;
            "done"
        }),
    );
    let mut server = start(slow, Limits::default()).await;
    let idle = connect(&server).await;
    let mut calls = JoinSet::new();
    calls.spawn(exchange(connect(&server).await, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"));
    sleep(Duration::from_millis(100)).await;
    server.stop.cancel();
    assert!(calls.join_next().await.unwrap().unwrap().ends_with("done"));
    let ended = timeout(Duration::from_secs(5), server.tasks.join_next()).await.expect("the server ends");
    assert!(ended.unwrap().unwrap().is_ok());
    drop(idle);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_handler_that_never_ends_does_not_hold_up_the_stop() {
    let stuck = Router::new().route("/stuck", get(std::future::pending::<&str>));
    let limits = Limits { drain: Duration::from_millis(200), ..Limits::default() };
    let mut server = start(stuck, limits).await;
    let mut stream = connect(&server).await;
    stream.write_all(b"GET /stuck HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    sleep(Duration::from_millis(100)).await;
    server.stop.cancel();
    timeout(Duration::from_secs(3), server.tasks.join_next()).await.expect("the server ends");
}
