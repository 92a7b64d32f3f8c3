//! What a candidate does that is never let in.

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
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

#[tokio::test(start_paused = true)]
async fn a_candidate_without_rights_or_namespace_ends_after_a_while_and_says_what_to_apply() {
    for (status, reason) in [(403, "Forbidden"), (404, "NotFound")] {
        let began = Instant::now();
        let mut election = Election::new(ElectionSetup {
            client: answering(status, reason),
            namespace: "here".to_owned(),
            name: "lease".to_owned(),
            identity: "me".to_owned(),
            timing: Timing::default(),
            clock: SystemClock::start(),
        });
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
    let mut election = Election::new(ElectionSetup {
        client: answering(500, "InternalError"),
        namespace: "here".to_owned(),
        name: "lease".to_owned(),
        identity: "me".to_owned(),
        timing: Timing::default(),
        clock: SystemClock::start(),
    });
    assert!(timeout(REFUSED * 20, election.run()).await.is_err(), "it ended");
}
