//! Events wait, in order, and are sent once whatever a pause does.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::*;
use crate::lifecycle::events::Kind;
use crate::lifecycle::recorder::Silent;

/// An API server that answers when it is given leave, and has each name once.
struct Server {
    leave: Arc<Semaphore>,
    notes: Arc<Mutex<Vec<String>>>,
    allowed: Arc<AtomicBool>,
    sendings: Arc<AtomicBool>,
    /// So many requests are answered with 429 first.
    busy: Arc<AtomicUsize>,
}

impl Server {
    fn new() -> (Self, Events, Telling) {
        let server = Self {
            leave: Arc::new(Semaphore::new(0)),
            notes: Arc::default(),
            allowed: Arc::new(AtomicBool::new(true)),
            sendings: Arc::default(),
            busy: Arc::default(),
        };
        let (leave, notes) = (Arc::clone(&server.leave), Arc::clone(&server.notes));
        let (sendings, busy) = (Arc::clone(&server.sendings), Arc::clone(&server.busy));
        let known = Arc::new(Mutex::new(Vec::<String>::new()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (leave, notes, known) = (Arc::clone(&leave), Arc::clone(&notes), Arc::clone(&known));
            let (sendings, busy) = (Arc::clone(&sendings), Arc::clone(&busy));
            async move {
                let text = request.into_body().collect().await.unwrap().to_bytes();
                let event: Value = serde_json::from_slice(&text).unwrap();
                let name = event["metadata"]["name"].as_str().unwrap().to_owned();
                let again = known.lock().unwrap().contains(&name);
                sendings.store(true, Ordering::SeqCst);
                if busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                    return Ok(refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"));
                }
                if again {
                    return Ok::<_, Infallible>(refusal(StatusCode::CONFLICT, "AlreadyExists"));
                }
                known.lock().unwrap().push(name);
                notes.lock().unwrap().push(event["note"].as_str().unwrap().to_owned());
                leave.acquire().await.unwrap().forget();
                Ok(Response::new(Body::from(text.to_vec())))
            }
        });
        let may_act = Arc::clone(&server.allowed);
        let (events, telling) = Events::new(Sender {
            client: Client::new(service, "ns"),
            instance: "test".to_owned(),
            metrics: Arc::new(Silent),
            may_act: Arc::new(move || may_act.load(Ordering::SeqCst)),
        });
        (server, events, telling)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap().clone()
    }
}

fn refusal(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "code": code.as_u16(), "message": "no"});
    let mut answer = Response::new(Body::from(serde_json::to_vec(&status).unwrap()));
    *answer.status_mut() = code;
    answer
}

fn object(name: &str) -> ObjectFacts {
    let proxy: Proxy = serde_json::from_value(json!({
        "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
        "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"mode": "Managed", "provider": "p"}
    }))
    .unwrap();
    ObjectFacts::of(&proxy).unwrap()
}

fn news(note: &str) -> News {
    News { kind: Kind::Normal, reason: "Created".to_owned(), action: "Provision", note: note.to_owned() }
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::UNIX_EPOCH
}

#[tokio::test(start_paused = true)]
async fn who_tells_does_not_wait_and_one_at_a_time_is_sent_in_order() {
    let (server, events, telling) = Server::new();
    let mut task = JoinSet::new();
    task.spawn(telling.run());
    for (name, note) in [("a", "first"), ("b", "second"), ("b", "second"), ("c", "third")] {
        events.tell(&object(name), news(note), now()).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.notes(), ["first"], "the second waits for the answer to the first");
    server.leave.add_permits(9);
    events.all_told().await;
    assert_eq!(server.notes(), ["first", "second", "third"], "the same news once");
    drop(events);
    task.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_pause_broke_off_is_sent_again_under_its_name() {
    let (server, events, telling) = Server::new();
    let mut task = JoinSet::new();
    task.spawn(telling.run());
    events.tell(&object("a"), news("first"), now()).await;
    events.tell(&object("b"), news("second"), now()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.allowed.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.sendings.store(false, Ordering::SeqCst);
    server.leave.add_permits(9);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!server.sendings.load(Ordering::SeqCst), "nothing is sent in a pause");
    assert_eq!(server.notes(), ["first"], "it had come through, and its answer was not waited for");
    server.allowed.store(true, Ordering::SeqCst);
    events.all_told().await;
    assert_eq!(server.notes(), ["first", "second"]);
    drop(events);
    task.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_too_many_wait_who_tells_sends_its_own() {
    let (server, events, telling) = Server::new();
    for name in 0..MOST_WAITING {
        events.tell(&object(&format!("p{name}")), news("waits"), now()).await;
    }
    server.leave.add_permits(MOST_WAITING + 2);
    events.tell(&object("a"), news("one too many"), now()).await;
    assert_eq!(server.notes(), ["one too many"]);
    events.tell_at_once(&object("b"), news("goes before all"), now()).await;
    assert_eq!(server.notes().len(), 2);
    let mut task = JoinSet::new();
    task.spawn(telling.run());
    events.all_told().await;
    assert_eq!(server.notes().len(), MOST_WAITING + 2);
    drop(events);
    task.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_busy_server_refuses_is_sent_again_a_few_times_and_holds_up_the_others_no_longer() {
    let (server, events, telling) = Server::new();
    let mut task = JoinSet::new();
    task.spawn(telling.run());
    server.leave.add_permits(9);
    server.busy.store(BUSY.len(), Ordering::SeqCst);
    events.tell(&object("a"), news("in the end"), now()).await;
    events.all_told().await;
    assert_eq!(server.notes(), ["in the end"]);
    server.busy.store(BUSY.len() + 1, Ordering::SeqCst);
    events.tell(&object("b"), news("never"), now()).await;
    events.tell(&object("c"), news("the next one"), now()).await;
    events.all_told().await;
    assert_eq!(server.notes(), ["in the end", "the next one"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_at_once_is_told_before_the_caller_goes_on_and_again_after_a_pause() {
    let (server, events, _nobody_empties_the_queue) = Server::new();
    server.leave.add_permits(9);
    server.allowed.store(false, Ordering::SeqCst);
    events.tell_at_once(&object("a"), news("abandoned"), now()).await;
    assert!(server.notes().is_empty(), "in a pause");
    server.allowed.store(true, Ordering::SeqCst);
    events.tell_at_once(&object("a"), news("abandoned"), now()).await;
    assert_eq!(server.notes(), ["abandoned"]);
    events.tell_at_once(&object("a"), news("abandoned"), now()).await;
    assert_eq!(server.notes(), ["abandoned"], "once");
    server.busy.store(BUSY.len(), Ordering::SeqCst);
    events.tell_at_once(&object("b"), news("abandoned too"), now()).await;
    assert_eq!(server.notes(), ["abandoned", "abandoned too"], "a busy server is asked again");
}
