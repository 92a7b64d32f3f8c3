//! What a candidate does that is never let in, and what a leader does whose API server is away.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

use super::*;
use crate::clock::SystemClock;

/// An API server that answers everything so.
fn answering(status: u16, reason: &'static str) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no such thing", "reason": reason, "code": status
        });
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, BoxError>(Response::builder().status(status).body(body)?)
    });
    Client::new(service, "default")
}

fn candidate(client: Client) -> Election {
    Election::new(ElectionSetup {
        client,
        namespace: "here".to_owned(),
        name: "lease".to_owned(),
        identity: "me".to_owned(),
        timing: Timing::default(),
        clock: SystemClock::start(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_candidate_without_rights_or_namespace_ends_after_a_while_and_says_what_to_apply() {
    for (status, reason) in [(403, "Forbidden"), (404, "NotFound")] {
        let began = Instant::now();
        let mut election = candidate(answering(status, reason));
        let leadership = election.leadership();
        let said = election.run().await.to_string();
        for part in
            ["here/lease", "no such thing", "deploy/base", "--leader-lease-namespace", "--leader-elect=false"]
        {
            assert!(said.contains(part), "{status}: {said}");
        }
        assert!((REFUSED..REFUSED * 2).contains(&began.elapsed()), "{status}: {:?}", began.elapsed());
        assert!(!*leadership.elected.borrow() && !(leadership.may_act)(), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_waits_for_a_server_that_fails_for_as_long_as_it_takes() {
    let mut election = candidate(answering(500, "InternalError"));
    assert!(timeout(REFUSED * 20, election.run()).await.is_err(), "it ended");
}

/// An API server that has one Lease, and can be away.
#[derive(Default)]
struct Shelf {
    lease: Mutex<Option<Value>>,
    away: AtomicBool,
    /// Instead of it somebody else answers so.
    says: Mutex<Option<(u16, String)>>,
    writes: AtomicU64,
}

/// What an API server says of a Lease that is not there.
fn gone() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "leases.coordination.k8s.io \"lease\" not found",
        "details": {"name": "lease", "group": "coordination.k8s.io", "kind": "leases"}
    })
}

impl Shelf {
    fn client(self: &Arc<Self>) -> Client {
        let shelf = Arc::clone(self);
        Client::new(
            tower::service_fn(move |request: Request<Body>| Arc::clone(&shelf).answer(request)),
            "here",
        )
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if self.away.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if let Some((status, body)) = self.says.lock().unwrap().clone() {
            return Ok(Response::builder().status(status).body(Body::from(body.into_bytes()))?);
        }
        let method = request.method().clone();
        let body = request.into_body().collect_bytes().await?;
        let mut lease = self.lease.lock().unwrap();
        let known = lease.as_ref().map_or(Value::Null, |it| it["metadata"]["resourceVersion"].clone());
        if method == Method::GET {
            return Ok(match &*lease {
                Some(lease) => answer(200, lease),
                None => answer(404, &gone()),
            });
        }
        let mut wanted: Value = serde_json::from_slice(&body)?;
        if wanted["metadata"]["resourceVersion"] != known {
            return Ok(answer(409, &json!({"kind": "Status", "status": "Failure", "code": 409})));
        }
        let version = self.writes.fetch_add(1, Ordering::SeqCst).to_string();
        wanted["metadata"]["resourceVersion"] = json!(version);
        wanted["metadata"]["uid"] = json!("uid");
        *lease = Some(wanted.clone());
        Ok(answer(200, &wanted))
    }

    fn held_by(&self) -> String {
        let lease = self.lease.lock().unwrap();
        lease.as_ref().unwrap()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

fn answer(status: u16, body: &Value) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body.to_string().into_bytes())).unwrap()
}

/// Lets the election go on for so long.
async fn goes_on(election: &mut Election, seconds: u64) {
    let ended = timeout(Duration::from_secs(seconds), election.run()).await;
    assert!(ended.is_err(), "it ended: {}", ended.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_leader_pauses_while_the_api_server_is_away_and_then_goes_on_with_its_lease() {
    let shelf = Arc::new(Shelf::default());
    let mut election = candidate(shelf.client());
    let Leadership { elected, may_act, resumed, .. } = election.leadership();
    goes_on(&mut election, 5).await;
    assert!(*elected.borrow() && may_act());

    shelf.away.store(true, Ordering::SeqCst);
    goes_on(&mut election, 7).await;
    assert!(may_act(), "less than 10 s after its last renewal");
    goes_on(&mut election, 4).await;
    assert!(*elected.borrow() && !may_act());
    goes_on(&mut election, 3600).await;
    assert!(*elected.borrow() && !may_act());
    assert_eq!(*resumed.borrow(), 0);

    shelf.away.store(false, Ordering::SeqCst);
    goes_on(&mut election, 8).await;
    assert!(may_act());
    assert_eq!(*resumed.borrow(), 1);
    assert_eq!(shelf.held_by(), "me");
    let transitions = shelf.lease.lock().unwrap().as_ref().unwrap()["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions, 0, "it never changed hands");
    election.release().await;
    assert!(!may_act());
    assert_eq!(shelf.held_by(), "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_told_to_end_soon_after_a_pause_began_does_not_give_the_lead_up() {
    for (since, gives_up) in [(0, false), (12, false), (18, true)] {
        let shelf = Arc::new(Shelf::default());
        let mut election = candidate(shelf.client());
        let may_act = election.leadership().may_act;
        goes_on(&mut election, 5).await;
        shelf.away.store(true, Ordering::SeqCst);
        while may_act() {
            goes_on(&mut election, 1).await;
        }
        shelf.away.store(false, Ordering::SeqCst);
        goes_on(&mut election, since).await;
        election.release().await;
        assert_eq!(shelf.held_by(), if gives_up { "" } else { "me" }, "{since}");
    }
}

/// What somebody does to a Lease.
type Edit = fn(&mut Value);

#[tokio::test(start_paused = true)]
async fn a_paused_leader_ends_when_its_lease_is_not_as_it_may_be() {
    let edits: [(&str, Edit); 4] = [
        ("held by other now", |lease| lease["spec"]["holderIdentity"] = json!("other")),
        ("made anew by somebody else", |lease| lease["metadata"]["uid"] = json!("another")),
        ("held it in between", |lease| lease["spec"]["leaseTransitions"] = json!(2)),
        ("restored from a backup", |lease| lease["metadata"]["resourceVersion"] = json!("0")),
    ];
    for (why, edit) in edits {
        let shelf = Arc::new(Shelf::default());
        let mut election = candidate(shelf.client());
        let Leadership { elected, may_act, .. } = election.leadership();
        goes_on(&mut election, 5).await;
        shelf.away.store(true, Ordering::SeqCst);
        goes_on(&mut election, 30).await;
        {
            let mut lease = shelf.lease.lock().unwrap();
            let lease = lease.as_mut().unwrap();
            lease["metadata"]["resourceVersion"] = json!("100");
            edit(lease);
        }
        shelf.away.store(false, Ordering::SeqCst);
        let said = timeout(Duration::from_secs(10), election.run()).await.unwrap().to_string();
        assert!(said.contains("no longer leads and must not act") && said.contains(why), "{said}");
        assert!(!*elected.borrow() && !may_act());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_waits_whatever_it_is_told_but_that_its_lease_is_gone() {
    let no_such_kind = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
    let status = |code: u16, reason: &str| {
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}).to_string()
    };
    for says in [
        (404, "<html>no backend</html>".to_owned()),
        (404, json!({"message": "no route"}).to_string()),
        (404, no_such_kind.to_string()),
        (200, "<html>welcome</html>".to_owned()),
        (502, "<html>bad gateway</html>".to_owned()),
        (401, status(401, "Unauthorized")),
        (403, status(403, "Forbidden")),
    ] {
        let shelf = Arc::new(Shelf::default());
        let mut election = candidate(shelf.client());
        let may_act = election.leadership().may_act;
        goes_on(&mut election, 5).await;
        *shelf.says.lock().unwrap() = Some(says);
        goes_on(&mut election, 600).await;
        assert!(!may_act());
        *shelf.says.lock().unwrap() = None;
        goes_on(&mut election, 8).await;
        assert!(may_act());
        *shelf.says.lock().unwrap() = Some((404, gone().to_string()));
        let said = timeout(Duration::from_secs(10), election.run()).await.unwrap().to_string();
        assert!(said.contains("the Lease was deleted by somebody else"), "{said}");
    }
}
