//! A lifecycle loop that takes part in the election, as the process does, with two ways to the API server. It
//! notes when it was allowed to act.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_proxies_core::facts::Fleet;
use egress_proxies_core::leader::Timing;
use egress_proxies_operator::clock::BootClock;
use egress_proxies_operator::kubernetes_client;
use egress_proxies_operator::leader::{Election, ElectionSetup};
use egress_proxies_operator::leadership::Leadership;
use egress_proxies_operator::lifecycle::{self, LifecycleSetup};
use kube::Config;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::link::Link;
use crate::operator::{Bench, Crash};
use crate::provider::Configured;
use crate::spy::{Spy, SpyLayer};
use crate::support::api_server::ApiServer;
use crate::wiring::{Wiring, judge};

/// Shorter than the real ones, in the same proportion; long enough for a machine that is busy.
pub(crate) fn short() -> Timing {
    Timing { lease: Duration::from_secs(9), renew: Duration::from_secs(6), retry: Duration::from_secs(1) }
}

/// A running contender. Dropping it is a crash.
pub(crate) struct Contender {
    pub(crate) spy: Arc<Spy>,
    /// To the API server, for everything but the election.
    pub(crate) link: Link,
    /// To the API server, for the election.
    pub(crate) election_link: Link,
    pub(crate) fleet: watch::Receiver<Fleet>,
    pub(crate) acting: watch::Receiver<bool>,
    pub(crate) may_act: Arc<dyn Fn() -> bool + Send + Sync>,
    effects: Arc<Mutex<Vec<Instant>>>,
    sent: Arc<Mutex<Vec<Instant>>>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    ended: watch::Receiver<Option<(Instant, String)>>,
}

pub(crate) async fn config(link: &Link) -> Config {
    let mut config = ApiServer::shared().await.unwrap().config();
    config.cluster_url = link.url();
    config
}

/// A link to the API server of this test binary.
pub(crate) async fn link() -> Link {
    Link::to(&ApiServer::shared().await.unwrap().config().cluster_url).await
}

impl Contender {
    pub(crate) async fn start(bench: &Bench, name: &str, timing: Timing) -> Self {
        let (link, election_link) = (link().await, link().await);
        let election = Election::new(ElectionSetup {
            client: kubernetes_client::client(config(&election_link).await).unwrap(),
            namespace: bench.namespace.clone(),
            name: "operator".to_owned(),
            identity: name.to_owned(),
            timing,
            clock: BootClock::start(),
        });
        let spy = Spy::new(Crash::never());
        let client = kubernetes_client::builder(config(&link).await).unwrap();
        let client = client.with_layer(&SpyLayer(Arc::clone(&spy))).build();
        let (shelf, cloud) = (Arc::clone(&bench.shelf), Arc::clone(&bench.cloud));
        let sent = Arc::default();
        let providers = Arc::new(Configured::new(shelf, cloud, Crash::never()).noting(&sent));
        let Wiring { setup, fleet, verdicts } =
            Wiring::new(client, &bench.namespace, providers, bench.shelf.changes());
        let (acting, acts) = watch::channel(false);
        let effects = Arc::new(Mutex::new(Vec::new()));
        let leadership = election.leadership();
        let may_act = Arc::clone(&leadership.may_act);
        let leadership = noting(leadership, Arc::clone(&effects));
        let setup = LifecycleSetup { instance: name.to_owned(), leadership, acting, ..setup };
        let cancel = CancellationToken::new();
        let (end, ended) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(process(election, setup, cancel.clone(), end));
        tasks.spawn(judge(fleet.clone(), verdicts, |_| false));
        let acting = acts;
        Self { spy, link, election_link, fleet, acting, may_act, effects, sent, cancel, tasks, ended }
    }

    /// Waits until it acts.
    pub(crate) async fn leads(&self, within: Duration) {
        let mut acting = self.acting.clone();
        let acts = tokio::time::timeout(within, acting.wait_for(|acting| *acting)).await;
        drop(acts.expect("it leads in time").expect("it has not ended"));
    }

    /// Waits until it may act, or may not.
    pub(crate) async fn may_act_is(&self, allowed: bool, within: Duration) {
        let deadline = Instant::now() + within;
        while (self.may_act)() != allowed {
            assert!(Instant::now() < deadline, "not in {within:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// When it asked and was allowed to act, before each effect and while it waits for one; and when it wrote, made or
    /// deleted something, whether or not it asked.
    pub(crate) fn effects(&self) -> Vec<Instant> {
        let asked = self.effects.lock().unwrap().clone();
        let sent = self.sent.lock().unwrap().clone();
        [asked, sent, self.spy.sent()].concat()
    }

    /// Waits until it has ended by itself: when and why.
    pub(crate) async fn ended(&self, within: Duration) -> (Instant, String) {
        let mut ended = self.ended.clone();
        let found = tokio::time::timeout(within, ended.wait_for(Option::is_some)).await;
        found.expect("it ends in time").unwrap().clone().unwrap()
    }

    /// Both ways to the API server are cut.
    pub(crate) fn cut_off(&self) {
        self.link.cut();
        self.election_link.cut();
    }

    /// All passes again.
    pub(crate) fn reconnect(&self) {
        self.link.heal();
        self.election_link.heal();
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) {
        self.cancel.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

/// As `app` does it.
async fn process(
    mut election: Election,
    setup: LifecycleSetup,
    cancel: CancellationToken,
    end: watch::Sender<Option<(Instant, String)>>,
) {
    tokio::select! {
        biased;
        lost = election.run() => {
            end.send_replace(Some((Instant::now(), lost.to_string())));
            return;
        }
        ended = lifecycle::run(setup, cancel) => ended.unwrap(),
    }
    election.release().await;
}

fn noting(leadership: Leadership, effects: Arc<Mutex<Vec<Instant>>>) -> Leadership {
    let may_act = Arc::clone(&leadership.may_act);
    let noted = move || {
        let allowed = may_act();
        if allowed {
            effects.lock().unwrap().push(Instant::now());
        }
        allowed
    };
    Leadership { may_act: Arc::new(noted), ..leadership }
}
