//! One process of the built binary, as most installations run it, and an API server that is away.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::contender::link;
use super::processes::external;
use super::replica::{Answering, Replica};
use crate::operator::{Bench, is_ready};

/// Well above the 10 s after which nobody may act without the API server.
const AWAY: Duration = Duration::from_secs(20);
/// What takes seconds on a machine that is idle: the Lease, the watches, probes.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// As long as what was broken off may be at work upstream, and more.
const AT_WORK: Duration = Duration::from_secs(16);
/// What the log says of a pause, and of its end.
pub(crate) const PAUSES: &str = "the lead pauses";
pub(crate) const RESUMES: &str = "the pause is over";

/// The JSON of an answer.
fn json(text: &str) -> Value {
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Grants a lease for ten minutes; answers with its id.
pub(crate) async fn long_lease(operator: &Replica) -> String {
    let grant = async || {
        let (status, text) = operator.api("POST", "/v1/leases", r#"{"ttlSeconds":600}"#).await?;
        (status == 201).then(|| json(&text)["leaseID"].as_str().unwrap().to_owned())
    };
    operator.until("it gives a lease", SOON, grant).await
}

/// Panics unless this Proxy is shown, and as healthy.
pub(crate) async fn lists_as_healthy(operator: &Replica, name: &str) {
    let (status, text) = operator.until("lists are answered", SOON, async || operator.list().await).await;
    assert_eq!(status, 200, "{text}");
    let list = json(&text);
    let found = list["proxies"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["id"].as_str().unwrap().ends_with(&format!("/{name}")));
    assert!(found.is_some_and(|it| it["healthy"] == true), "{list}");
}

#[tokio::test]
async fn one_process_whose_api_server_is_away_for_a_while_keeps_its_leases_and_catches_up() {
    let Some(bench) = Bench::open("away").await else { return };
    let proxy = Answering::start().await;
    let operator = Replica::start(&bench, "operator").await;
    bench.create("a", external(proxy.port)).await;
    bench.until_ready("a").await;
    let (kept, returned) = (long_lease(&operator).await, long_lease(&operator).await);
    bench.create("leaves", external(proxy.port)).await;
    bench.until_ready("leaves").await;
    let (pid, before) = (operator.pid(), bench.get("a").await.unwrap());
    // A machine that is busy elsewhere may have paused it before.
    let paused = operator.said(PAUSES);

    operator.link.cut();
    let deadline = Instant::now() + AWAY;
    bench.create("new", external(proxy.port)).await;
    bench.delete("leaves").await;
    while Instant::now() < deadline {
        lists_as_healthy(&operator, "a").await;
        let ready =
            operator.until("/readyz is answered", SOON, async || operator.probe("/readyz").await).await;
        assert_eq!(ready.0, 200);
        sleep(Duration::from_millis(500)).await;
    }
    operator.says_again(PAUSES, paused, SOON).await;
    let (_, text) = operator.until("an answer", SOON, async || operator.lease().await).await;
    assert!(text.contains("not_leader") && text.contains("waits for it"), "{text}");
    let resumed = operator.said(RESUMES);
    operator.link.heal();
    let healed = Instant::now();

    operator.says_again(RESUMES, resumed, SOON).await;
    for lease in [&kept, &returned] {
        let renew = format!("/v1/leases/{lease}/renew");
        let renewed = operator.api("POST", &renew, r#"{"ttlSeconds":600}"#).await;
        assert_eq!(renewed.unwrap().0, 200, "it was kept: {}", operator.log());
    }
    let released = operator.api("DELETE", &format!("/v1/leases/{returned}"), "").await;
    assert_eq!(released.unwrap().0, 204);
    assert!(is_ready(&bench.until_ready("new").await));
    bench.until_gone("leaves").await;
    lists_as_healthy(&operator, "a").await;
    assert_eq!(bench.get("a").await.unwrap(), before, "what is as it was needs no write");
    assert_eq!((operator.pid(), operator.has_ended()), (pid, None));
    sleep_until(healed + AT_WORK).await;
    operator.signal("TERM");
    assert_eq!(operator.exit_code(SOON).await, 0);
    assert!(operator.log().contains("gave the lead up"), "{}", operator.log());
}

#[tokio::test]
async fn watches_whose_connections_died_in_an_outage_begin_anew_when_the_pause_is_over() {
    let Some(bench) = Bench::open("died").await else { return };
    let proxy = Answering::start().await;
    let operator = Replica::start(&bench, "operator").await;
    bench.create("a", external(proxy.port)).await;
    bench.until_ready("a").await;
    operator.leases(SOON).await;
    let paused = operator.said(PAUSES);
    operator.link.cut();
    operator.says_again(PAUSES, paused, SOON).await;
    // What it does not hear of. The watch would be found dead 65 s after it brought the last write of `a`.
    let created = Instant::now();
    bench.create("new", external(proxy.port)).await;
    let resumed = operator.said(RESUMES);
    operator.link.heal_for_new_connections();
    operator.says_again(RESUMES, resumed, SOON).await;
    bench.until_ready("new").await;
    let took = created.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}: {}", operator.log());
}

#[tokio::test]
async fn a_process_that_starts_while_the_api_server_is_away_waits_for_it() {
    let Some(bench) = Bench::open("late").await else { return };
    let proxy = Answering::start().await;
    bench.create("a", external(proxy.port)).await;
    let link = link().await;
    link.cut();
    let operator = Replica::start_over(link, &bench, "operator");
    // Longer than a request may take.
    operator.says("waiting for the API server", SOON).await;
    assert_eq!(operator.probe("/livez").await.unwrap().0, 200, "nobody kills it for that");
    let (status, text) = operator.probe("/readyz").await.unwrap();
    assert!(status == 503 && text.contains("waiting for the API server"), "{text}");
    assert!(operator.list().await.is_none(), "nothing is known yet");
    operator.link.heal();
    bench.until_ready("a").await;
    operator.leases(SOON).await;
    assert_eq!(operator.probe("/readyz").await.unwrap().0, 200);
    assert_eq!(operator.has_ended(), None);
}
