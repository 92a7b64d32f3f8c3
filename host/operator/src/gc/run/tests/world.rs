//! Two clouds that keep real state, an API server in memory, and what goes wrong with either.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use anyhow::anyhow;
use egress_proxies_core::gc::{LivingProxy, Policy, Seen, View};
use egress_proxies_core::ids::{Incarnation, InstanceId, ProviderName, ProxyKey, ProxyUid};
use egress_proxies_core::lifecycle::{Owner, machine_tags, spec_hash};
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Failure, HostFault, Instance, InstanceRef, InstanceState,
    Listing, Lookup, Observation, Provider, ProviderInfo, ProviderSettings, Providers, Reason, Tags,
};
use egress_proxies_core::time::{Moment, Now};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::gc::{GcMetrics, GcSetup, LiveProxies, LiveProxy, PassOutcome, ProxySource, Removed, run};
use crate::leadership::Leadership;

pub(super) const CLUSTER: &str = "this-cluster";
pub(super) const INTERVAL: Duration = Duration::from_mins(10);

pub(super) fn name(text: &str) -> ProviderName {
    ProviderName::parse(text).unwrap()
}

pub(super) fn uid(text: &str) -> ProxyUid {
    ProxyUid::parse(text).unwrap()
}

/// An old machine of the provider `one`.
pub(super) fn machine(id: &str, of: &str) -> Instance {
    made(id, of, "one")
}

pub(super) fn made(id: &str, of: &str, by: &str) -> Instance {
    let spec = serde_json::from_str(r#"{"mode":"Managed","provider":"one"}"#).unwrap();
    let key = ProxyKey::new("crawl", format!("proxy-{of}"));
    Instance {
        incarnation: Incarnation::parse("1").ok(),
        created_at: Some(jiff::Timestamp::UNIX_EPOCH),
        tags: machine_tags(&Owner::new(&uid(of), CLUSTER), &key, &name(by), &spec_hash(&spec, None)),
        ..Instance::bare(InstanceId::parse(id).unwrap(), format!("px-{of}"), InstanceState::Running)
    }
}

pub(super) fn proxy(of: &str, named: &str) -> LiveProxy {
    let id = InstanceId::parse(named).ok();
    let key = ProxyKey::new("crawl", format!("proxy-{of}"));
    let proxy =
        LivingProxy { key, provider: Some(name("one")), deleting: false, recorded: id.clone(), planned: id };
    (uid(of), proxy)
}

/// A day after the epoch, then as Tokio's clock goes.
struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let day = Duration::from_hours(24);
        let wall = jiff::SignedDuration::try_from(day + self.0.elapsed()).unwrap();
        Now { wall: jiff::Timestamp::UNIX_EPOCH + wall, mono: Moment::after_start(self.0.elapsed()) }
    }
}

/// One cloud.
#[derive(Default)]
pub(super) struct Cloud {
    pub(super) machines: BTreeMap<InstanceId, Instance>,
    /// What lists show instead of what there is.
    pub(super) stale: Option<Vec<Instance>>,
    pub(super) unreachable: BTreeSet<InstanceId>,
    /// The next lists fail.
    pub(super) lists: VecDeque<Failure>,
    pub(super) gets_fail: bool,
    /// The next looks fail.
    pub(super) gets: VecDeque<Failure>,
    /// The first delete of these never ends; the second one forces it.
    pub(super) deletes_hang: BTreeSet<InstanceId>,
    pub(super) deletes_fail: BTreeSet<InstanceId>,
    /// The lead pauses when the next delete is about to leave.
    pub(super) pauses_at_delete: bool,
    /// Lists and looks never end.
    pub(super) hangs: bool,
    pub(super) deleted: Vec<InstanceRef>,
}

impl Cloud {
    pub(super) fn add(&mut self, machine: Instance) {
        self.machines.insert(machine.id.clone(), machine);
    }

    fn list(&mut self, wanted: impl Fn(&Instance) -> bool) -> Result<Listing, Failure> {
        if let Some(failure) = self.lists.pop_front() {
            return Err(failure);
        }
        let mut items: Vec<Instance> =
            self.stale.clone().unwrap_or_else(|| self.machines.values().cloned().collect());
        items.retain(|machine| wanted(machine) && !self.unreachable.contains(&machine.id));
        let unreachable = self.unreachable.iter().map(ToString::to_string).collect();
        Ok(Listing { items, unreachable })
    }
}

type Hook = Box<dyn FnOnce(&World) + Send>;

/// All of it.
pub(super) struct World {
    me: Weak<Self>,
    clouds: BTreeMap<ProviderName, Arc<Mutex<Cloud>>>,
    pub(super) not_ready: Mutex<BTreeSet<ProviderName>>,
    pub(super) proxies: Mutex<LiveProxies>,
    /// Lists and looks at the API server fail.
    pub(super) lists_fail: AtomicBool,
    pub(super) looks_fail: AtomicBool,
    /// Proxies that the list leaves out although they exist.
    pub(super) unlisted: Mutex<BTreeSet<ProxyUid>>,
    pub(super) proxy_lists: AtomicUsize,
    /// After the first list of a pass, whichever that is, and after that of the Proxies.
    between: Mutex<Option<Hook>>,
    after_proxies: Mutex<Option<Hook>>,
    leads: AtomicBool,
    resumed: watch::Sender<u64>,
    /// Stops leading once so many deletes were sent.
    pub(super) leads_for: AtomicUsize,
    pub(super) outcomes: Mutex<Vec<PassOutcome>>,
    pub(super) removed: Mutex<Vec<Removed>>,
    pub(super) seen: Mutex<BTreeMap<ProviderName, Option<Seen>>>,
}

impl World {
    pub(super) fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            clouds: ["one", "two"].map(|of| (name(of), Arc::default())).into(),
            not_ready: Mutex::default(),
            proxies: Mutex::default(),
            lists_fail: AtomicBool::new(false),
            looks_fail: AtomicBool::new(false),
            unlisted: Mutex::default(),
            proxy_lists: AtomicUsize::new(0),
            between: Mutex::default(),
            after_proxies: Mutex::default(),
            leads: AtomicBool::new(true),
            resumed: watch::channel(0).0,
            leads_for: AtomicUsize::new(usize::MAX),
            outcomes: Mutex::default(),
            removed: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    pub(super) fn cloud(&self, of: &str) -> MutexGuard<'_, Cloud> {
        self.clouds[&name(of)].lock().unwrap()
    }

    pub(super) fn deleted(&self, of: &str) -> Vec<String> {
        self.cloud(of).deleted.iter().map(|target| target.id.to_string()).collect()
    }

    pub(super) fn add_proxy(&self, (uid, proxy): LiveProxy) {
        self.proxies.lock().unwrap().insert(uid, proxy);
    }

    pub(super) fn between(&self, act: impl FnOnce(&Self) + Send + 'static) {
        *self.between.lock().unwrap() = Some(Box::new(act));
    }

    fn listed(&self) {
        let act = self.between.lock().unwrap().take();
        if let Some(act) = act {
            act(self);
        }
    }

    pub(super) fn after_proxies(&self, act: impl FnOnce(&Self) + Send + 'static) {
        *self.after_proxies.lock().unwrap() = Some(Box::new(act));
    }

    pub(super) fn pauses(&self) {
        self.leads.store(false, Ordering::SeqCst);
    }

    /// The pause is over.
    pub(super) fn resumes(&self) {
        self.resumed.send_modify(|pauses| *pauses += 1);
        self.leads.store(true, Ordering::SeqCst);
    }

    fn deletes(&self) -> usize {
        self.clouds.values().map(|cloud| cloud.lock().unwrap().deleted.len()).sum()
    }

    /// Runs the loop with these settings over this world.
    pub(super) fn start(self: &Arc<Self>, change: impl FnOnce(&mut GcSetup)) -> Running {
        let (elect, elected) = watch::channel(true);
        let leading = Arc::clone(self);
        let may_act = move || {
            leading.leads.load(Ordering::SeqCst)
                && leading.deletes() < leading.leads_for.load(Ordering::SeqCst)
        };
        let names = self.clouds.keys().cloned().collect::<Vec<_>>();
        let mut setup = GcSetup {
            proxies: Arc::<Self>::clone(self),
            view: View::All,
            providers: Arc::<Self>::clone(self),
            names: Arc::new(move || names.clone()),
            cluster: CLUSTER.to_owned(),
            policy: Policy::default(),
            interval: INTERVAL,
            dry_run: false,
            leadership: Leadership {
                elected,
                may_act: Arc::new(may_act),
                resumed: self.resumed.subscribe(),
                shared: true,
            },
            clock: Arc::new(TestClock(Instant::now())),
            metrics: Arc::<Self>::clone(self),
        };
        change(&mut setup);
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let running = run(setup, cancel.clone());
        tasks.spawn(async move { running.await.unwrap() });
        Running { _elect: elect, cancel, tasks }
    }
}

/// The running loop.
pub(super) struct Running {
    _elect: watch::Sender<bool>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    /// Lets this many passes happen.
    pub(super) async fn passes(&self, count: u32) {
        // A little more, since a pass takes time as well.
        tokio::time::sleep(INTERVAL * count + Duration::from_secs(1)).await;
    }

    /// Ends the loop, which takes no time.
    pub(super) async fn stop(mut self) {
        let began = Instant::now();
        self.cancel.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

impl ProxySource for World {
    fn list(&self) -> BoxFuture<'_, anyhow::Result<LiveProxies>> {
        async move {
            self.proxy_lists.fetch_add(1, Ordering::SeqCst);
            if self.lists_fail.load(Ordering::SeqCst) {
                return Err(anyhow!("page 2 of 3 did not come"));
            }
            let mut all = self.proxies.lock().unwrap().clone();
            all.retain(|uid, _| !self.unlisted.lock().unwrap().contains(uid));
            self.listed();
            let act = self.after_proxies.lock().unwrap().take();
            if let Some(act) = act {
                act(self);
            }
            Ok(all)
        }
        .boxed()
    }

    fn get<'a>(&'a self, key: &'a ProxyKey) -> BoxFuture<'a, anyhow::Result<Option<LiveProxy>>> {
        async move {
            if self.looks_fail.load(Ordering::SeqCst) {
                return Err(anyhow!("the API server does not answer"));
            }
            let all = self.proxies.lock().unwrap();
            Ok(all.iter().find(|(_, it)| it.key == *key).map(|(uid, it)| (uid.clone(), it.clone())))
        }
        .boxed()
    }
}

impl Providers for World {
    fn lookup(&self, of: &ProviderName) -> Lookup {
        if self.not_ready.lock().unwrap().contains(of) {
            return Lookup::Failed { stage: "read", reason: "no such file".to_owned() };
        }
        let info = ProviderInfo { longest_call: Duration::from_secs(30), ..ProviderInfo::bare(of.clone()) };
        Lookup::Ready(Arc::new(Fake {
            info,
            cloud: Arc::clone(&self.clouds[of]),
            world: Weak::clone(&self.me),
        }))
    }

    fn settings(&self, _name: &ProviderName) -> Option<ProviderSettings> {
        None
    }
}

impl GcMetrics for World {
    fn pass(&self, outcome: PassOutcome) {
        self.outcomes.lock().unwrap().push(outcome);
    }
    fn seen(&self, provider: &ProviderName, seen: Option<(&Seen, Option<usize>)>) {
        self.seen.lock().unwrap().insert(provider.clone(), seen.map(|(seen, _)| *seen));
    }
    fn removed(&self, _provider: &ProviderName, removed: Removed) {
        self.removed.lock().unwrap().push(removed);
    }
}

struct Fake {
    info: ProviderInfo,
    world: Weak<World>,
    cloud: Arc<Mutex<Cloud>>,
}

impl Fake {
    fn answer<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce(&mut Cloud) -> Result<T, Failure> + Send + 'a,
    ) -> Call<'a, T> {
        Box::pin(async move {
            if self.cloud.lock().unwrap().hangs {
                std::future::pending::<()>().await;
            }
            act(&mut self.cloud.lock().unwrap())
        })
    }
}

pub(super) fn no_permit() -> Failure {
    Failure::new(Reason::Host(HostFault::NoPermit), "all permits are in use")
}

impl Provider for Fake {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn validate_create<'a>(&'a self, _request: &'a CreateRequest) -> Call<'a, CreatePlan> {
        self.answer(|_| Err(Failure::new(Reason::Unsupported, "nothing is made here")))
    }

    fn create<'a>(&'a self, _request: &'a CreateRequest) -> Call<'a, Instance> {
        self.answer(|_| Err(Failure::new(Reason::Unsupported, "nothing is made here")))
    }

    fn get<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Observation> {
        self.answer(move |cloud| {
            if cloud.gets_fail {
                return Err(Failure::new(Reason::Transient, "no answer"));
            }
            if let Some(failure) = cloud.gets.pop_front() {
                return Err(failure);
            }
            let machine = cloud.machines.get(&target.id);
            Ok(machine.map_or(Observation::Absent(None), |it| Observation::Found(Box::new(it.clone()))))
        })
    }

    fn delete<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Deletion> {
        self.answer(move |cloud| {
            if std::mem::take(&mut cloud.pauses_at_delete) {
                self.world.upgrade().unwrap().pauses();
                return Err(Failure::new(Reason::Host(HostFault::HeldBack), "held back"));
            }
            cloud.deleted.push(target.clone());
            if cloud.deletes_fail.contains(&target.id) {
                return Err(Failure::new(Reason::Denied, "deletion protection is on"));
            }
            if cloud.deletes_hang.remove(&target.id) {
                let machine = cloud.machines.get_mut(&target.id).unwrap();
                machine.state = InstanceState::Deleting;
                return Ok(Deletion::InProgress(None));
            }
            cloud.machines.remove(&target.id);
            Ok(Deletion::InProgress(None))
        })
    }

    fn list_owned<'a>(&'a self, owner: &'a Tags) -> Call<'a, Listing> {
        let list = self.answer(move |cloud| {
            cloud.list(|machine| owner.iter().all(|(key, value)| machine.tags.get(key) == Some(value)))
        });
        Box::pin(async move {
            let listing = list.await;
            if let Some(world) = self.world.upgrade() {
                world.listed();
            }
            listing
        })
    }
}
