//! Hand-over between two processes of the built binary, with the real durations.

use std::time::Duration;

use egress_proxies_core::crd::{Phase, Proxy};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::replica::{Answering, Replica};
use crate::operator::Bench;

/// Time for a process to start on a machine that is busy.
const START: Duration = Duration::from_mins(1);
/// 2 s until a renewal, 15 s until the Lease has run out, and room for what a new leader reads, three times over.
pub(crate) const HAND_OVER: Duration = Duration::from_mins(1);
/// So soon another one works: 15 to 17 s until it leads, and what it reads then. On a machine that does not keep it
/// waiting ([`LATE`]).
pub(crate) const PROMISED: Duration = Duration::from_secs(20);
/// A timer that is later than this says that the machine is too busy to prove anything about time.
pub(crate) const LATE: Duration = Duration::from_millis(100);
/// What takes up to 13 s.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// One replica that leads, with a Proxy that is Ready and one that is Unhealthy, and another one that stands by.
struct Pair {
    bench: Bench,
    proxy: Answering,
    leader: Replica,
    standby: Replica,
}

impl Pair {
    async fn start(purpose: &str) -> Option<Self> {
        let bench = Bench::open(purpose).await?;
        let proxy = Answering::start().await;
        let leader = Replica::start(&bench, "leader").await;
        bench.create("a", external(proxy.port)).await;
        bench.create("dead", external(1)).await;
        bench.until_ready("a").await;
        let unhealthy = |proxy: &Proxy| proxy.status.as_ref().is_some_and(|it| it.phase == Phase::Unhealthy);
        bench.until("dead", "Unhealthy", unhealthy).await;
        leader.leases(START).await;
        let standby = Replica::start(&bench, "standby").await;
        standby.ready().await;
        Some(Self { bench, proxy, leader, standby })
    }

    async fn holder(&self) -> String {
        let leases = Api::<Lease>::namespaced(self.bench.client.clone(), &self.bench.namespace);
        let lease = leases.get("egress-proxies-operator").await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap_or_default()
    }

    /// The standby does all that the leader did, and what there was needed no write, probed again and again.
    async fn has_handed_over(&self, versions: [Option<String>; 2]) {
        assert!(self.holder().await.starts_with("standby_"));
        assert_eq!(self.standby.leader_metric().await.as_deref(), Some("1"));
        self.bench.create("b", external(self.proxy.port)).await;
        self.bench.until_ready("b").await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(self.versions().await, versions, "what is as it was needs no write");
    }

    async fn versions(&self) -> [Option<String>; 2] {
        let version = async |name| self.bench.get(name).await.unwrap().metadata.resource_version;
        [version("a").await, version("dead").await]
    }
}

/// What comes of it, and how late timers were meanwhile.
pub(crate) async fn with_lateness<T>(of: impl Future<Output = T>) -> (T, Duration) {
    let mut of = std::pin::pin!(of);
    let (tick, mut late) = (Duration::from_millis(50), Duration::ZERO);
    loop {
        let began = Instant::now();
        tokio::select! {
            done = &mut of => return (done, late),
            () = tokio::time::sleep(tick) => late = late.max(began.elapsed().saturating_sub(tick)),
        }
    }
}

pub(crate) fn external(port: u16) -> Value {
    json!({
        "mode": "External",
        "endpoint": {"host": "127.0.0.1", "port": port, "protocol": "http"},
        "healthCheck": {"intervalSeconds": 2, "timeoutSeconds": 1}
    })
}

#[tokio::test]
async fn a_standby_serves_reads_refuses_leases_and_takes_over_from_a_leader_that_is_killed() {
    let Some(pair) = Pair::start("killed").await else { return };
    let (status, text) = pair.standby.lease().await.unwrap();
    assert!(status == 503 && text.contains("not_leader"), "{text}");
    let (status, text) = pair.standby.list().await.unwrap();
    assert!(status == 200 && text.contains(r#""count":2"#), "{text}");
    assert_eq!(pair.standby.leader_metric().await.as_deref(), Some("0"));
    assert_eq!(pair.leader.leader_metric().await.as_deref(), Some("1"));
    let versions = pair.versions().await;

    pair.leader.signal("KILL");
    let (took, late) = with_lateness(pair.standby.leases(HAND_OVER)).await;
    assert!(late > LATE || took <= PROMISED, "it leads after {took:?}, timers were up to {late:?} late");
    // 15 s from the last renewal, which is less than 10 s old: otherwise it would no longer lead.
    assert!(took > Duration::from_secs(5), "it waited for the Lease to run out: {took:?}");
    pair.has_handed_over(versions).await;
}

#[tokio::test]
async fn a_leader_that_is_stopped_for_a_while_ends_when_it_wakes_up() {
    let Some(pair) = Pair::start("stopped").await else { return };
    let versions = pair.versions().await;
    pair.leader.signal("STOP");
    pair.standby.leases(HAND_OVER).await;
    pair.leader.signal("CONT");
    if let Some((status, text)) = pair.leader.lease().await {
        assert!(status == 503 && text.contains("not_leader"), "{text}");
    }
    assert_eq!(pair.leader.exit_code(SOON).await, 1);
    assert!(pair.leader.log().contains("no longer leads and must not act"), "{}", pair.leader.log());
    pair.has_handed_over(versions).await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_does_nothing_more_and_ends_when_it_sees_who_leads() {
    let Some(pair) = Pair::start("cut").await else { return };
    let versions = pair.versions().await;
    let cut = Instant::now();
    pair.leader.link.cut();
    pair.leader.says("the lead pauses", SOON).await;
    // Another one may lead 15 s after the last renewal, which is up to 2 s old. Where this machine is so slow that
    // the pause shows later, the order proves nothing.
    let holder = pair.holder().await;
    let in_time = cut.elapsed() < Duration::from_secs(13);
    assert!(!in_time || holder.starts_with("leader_"), "nobody may have taken the Lease yet: {holder}");
    let (status, text) = pair.leader.lease().await.unwrap();
    assert!(status == 503 && text.contains("not_leader"), "{text}");
    let (status, text) = pair.leader.list().await.unwrap();
    assert!(status == 200 && text.contains(r#""count":2"#), "reads go on: {text}");
    assert_eq!(pair.leader.leader_metric().await.as_deref(), Some("0"));

    let leads = pair.standby.leases(HAND_OVER.saturating_sub(cut.elapsed()));
    let (_, late) = with_lateness(leads).await;
    let took = cut.elapsed();
    assert!(!in_time || late > LATE || took <= PROMISED, "the other one leads {took:?} after the cut");
    assert_eq!(pair.leader.lease().await.unwrap().0, 503, "one of them gives leases");
    assert_eq!(pair.leader.has_ended(), None);
    pair.leader.link.heal();
    assert_eq!(pair.leader.exit_code(SOON).await, 1);
    let holder = pair.holder().await;
    let why = format!("this process no longer leads and must not act: the Lease is held by {holder} now");
    assert!(pair.leader.log().contains(&why), "{}", pair.leader.log());
    pair.has_handed_over(versions).await;
}

#[tokio::test]
async fn an_api_server_that_is_away_for_all_leaves_the_lead_where_it_is() {
    let Some(pair) = Pair::start("outage").await else { return };
    let versions = pair.versions().await;
    let (holder, pids) = (pair.holder().await, [pair.leader.pid(), pair.standby.pid()]);
    for replica in [&pair.leader, &pair.standby] {
        replica.link.cut();
    }
    // Longer than the Lease lasts: whoever came first could take it.
    tokio::time::sleep(Duration::from_secs(25)).await;
    for replica in [&pair.leader, &pair.standby] {
        assert_eq!(replica.lease().await.unwrap().0, 503);
        assert_eq!(replica.list().await.unwrap().0, 200);
        replica.link.heal();
    }
    pair.leader.leases(SOON).await;
    assert_eq!(pair.holder().await, holder);
    assert_eq!([pair.leader.pid(), pair.standby.pid()], pids);
    assert_eq!((pair.leader.has_ended(), pair.standby.has_ended()), (None, None));
    pair.bench.create("b", external(pair.proxy.port)).await;
    pair.bench.until_ready("b").await;
    assert_eq!(pair.versions().await, versions, "what is as it was needs no write");
    assert_eq!(pair.standby.lease().await.unwrap().0, 503);
}

#[tokio::test]
async fn a_leader_told_to_end_hands_over_at_once_and_one_whose_lease_is_deleted_ends() {
    let Some(pair) = Pair::start("orderly").await else { return };
    let versions = pair.versions().await;
    pair.leader.signal("TERM");
    let took = pair.standby.leases(HAND_OVER).await;
    assert_eq!(pair.leader.exit_code(SOON).await, 0);
    // A Lease that was not given up takes 13 s at least.
    assert!(took < Duration::from_secs(9), "handed over in {took:?}");
    pair.has_handed_over(versions).await;

    let leases = Api::<Lease>::namespaced(pair.bench.client.clone(), &pair.bench.namespace);
    leases.delete("egress-proxies-operator", &DeleteParams::default()).await.unwrap();
    assert_eq!(pair.standby.exit_code(SOON).await, 1);
    assert!(pair.standby.log().contains("deleted by somebody else"), "{}", pair.standby.log());
}
