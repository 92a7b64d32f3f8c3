//! The caches: Proxies, and the two kinds of labelled Secrets.
//!
//! Secrets without one of the two labels are never asked for: the watches select by label, and one
//! selector cannot say "or", hence two caches. A watch lasts 60 s at most, so that a connection that died
//! silently is noticed soon. A process that is elected does not wait for that: it begins every watch anew, with
//! a list ([`Stores::read_anew`]). Nor does one whose pause is over: its watches go on from where they were, see
//! [`waking`](super::waking).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use egress_proxies_core::crd::{CLOUD_INIT_LABEL, PROXY_AUTH_LABEL, Proxy};
use egress_proxies_core::ids::ProxyKey;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::changes::{Change, Changes};
use super::healing::{healing, status_of};
use super::progress::{Anew, Progress, SoFar};
use super::waking::waking;
use crate::leadership::Leadership;

/// Longest time of one watch request.
const WATCH_SECONDS: u32 = 60;
/// Objects in one answer to a list. Read, with its managed fields, an object takes some 15 KiB for a moment: a start
/// over a large fleet would keep the room of the largest page.
const PAGE: u32 = 100;

/// Which namespaces the operator looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// All of them.
    All,
    /// These only.
    Only(Vec<String>),
}

/// One kind of object in all namespaces looked at.
#[derive(Debug, Clone)]
pub(crate) struct Cache<K: Resource<DynamicType = ()> + 'static> {
    parts: Vec<(Option<String>, Store<K>)>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Cache<K> {
    /// One object.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let (_, store) =
            self.parts.iter().find(|(part, _)| part.as_deref().is_none_or(|part| part == namespace))?;
        store.get(&ObjectRef::new(name).within(namespace))
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.parts.iter().flat_map(|(_, store)| store.state()).collect()
    }

    async fn filled(&self) -> Result<(), WatchEnded> {
        for (_, store) in &self.parts {
            store.wait_until_ready().await.map_err(|_| WatchEnded)?;
        }
        Ok(())
    }
}

/// A watch task ended before its cache was filled.
#[derive(Debug, thiserror::Error)]
#[error("a watch of the Kubernetes API ended before its cache was filled")]
pub struct WatchEnded;

/// All caches.
#[derive(Debug, Clone)]
pub(crate) struct Stores {
    /// The Proxies.
    pub(crate) proxies: Cache<Proxy>,
    /// Secrets with the cloud-init label.
    pub(crate) cloud_init: Cache<Secret>,
    /// Secrets with the proxy-auth label.
    pub(crate) proxy_auth: Cache<Secret>,
    anew: Anew,
}

impl Stores {
    /// Resolves when each cache was filled once. Nothing may be concluded from an absence before.
    pub(crate) async fn filled(&self) -> Result<(), WatchEnded> {
        self.proxies.filled().await?;
        self.cloud_init.filled().await?;
        self.proxy_auth.filled().await
    }

    /// Begins every watch anew and resolves when each cache has what its list brought, and has told it. Works
    /// once.
    pub(crate) async fn read_anew(&self) {
        self.anew.asked.cancel();
        for progress in &self.anew.progress {
            progress.anew.cancelled().await;
        }
    }

    /// True if each cache is from a list that was begun after the election.
    pub(crate) fn are_of_this_lead(&self) -> bool {
        self.anew.progress.iter().all(|progress| progress.so_far.is_of_this_lead())
    }

    /// True until each watch was asked for anew since the last pause and is answered.
    pub(crate) fn are_behind(&self) -> bool {
        self.anew.progress.iter().any(|progress| progress.so_far.is_behind())
    }

    /// Grows with each object and each end of a list that is waited for.
    pub(crate) fn received(&self) -> u64 {
        self.anew.progress.iter().map(|progress| progress.so_far.received.load(Ordering::Relaxed)).sum()
    }

    /// The watches whose list is not in the cache (the second one, once it was asked for, or the first), although
    /// another process might get it.
    pub(crate) fn lagging(&self) -> Vec<&str> {
        let asked = self.anew.asked.is_cancelled();
        let listed = |progress: &Progress| {
            if asked { progress.anew.is_cancelled() } else { progress.filled.is_cancelled() }
        };
        let lagging = self.anew.progress.iter();
        let lagging = lagging.filter(|progress| !listed(progress) && !progress.so_far.is_everybodys());
        lagging.map(|progress| progress.watch.as_str()).collect()
    }
}

/// Is told about changes, after the cache has them.
pub(crate) trait OnChange: Send + Sync + 'static {
    /// A Proxy changed, appeared or went away.
    fn proxy(&self, change: Change);
    /// A labelled Secret changed, appeared or went away.
    fn secret(&self, change: Change);
}

/// A watch to be driven by a task, and its name.
pub(crate) type Watch = (String, BoxFuture<'static, ()>);

/// Makes the caches and the watches that fill them.
pub(crate) fn open(
    client: &Client,
    namespaces: &Namespaces,
    leadership: &Leadership,
    on_change: &Arc<dyn OnChange>,
) -> (Stores, Vec<Watch>) {
    let mut opening = Opening { client, namespaces, leadership, anew: Anew::default(), watches: Vec::new() };
    let told = Arc::clone(on_change);
    let proxies = opening.cache(&watcher::Config::default(), move || {
        let told = Arc::clone(&told);
        Box::new(move |change| told.proxy(change))
    });
    let mut secrets = |label: &str| {
        let told = Arc::clone(on_change);
        let config = watcher::Config::default().labels(&format!("{label}=true"));
        opening.cache(&config, move || {
            let told = Arc::clone(&told);
            Box::new(move |change| told.secret(change))
        })
    };
    let cloud_init = secrets(CLOUD_INIT_LABEL);
    let proxy_auth = secrets(PROXY_AUTH_LABEL);
    (Stores { proxies, cloud_init, proxy_auth, anew: opening.anew }, opening.watches)
}

type Tell = Box<dyn Fn(Change) + Send>;

/// What is being opened.
struct Opening<'a> {
    client: &'a Client,
    namespaces: &'a Namespaces,
    leadership: &'a Leadership,
    anew: Anew,
    watches: Vec<Watch>,
}

impl Opening<'_> {
    fn cache<K>(&mut self, config: &watcher::Config, tell: impl Fn() -> Tell) -> Cache<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        let scopes = match self.namespaces {
            Namespaces::All => vec![None],
            Namespaces::Only(names) => names.iter().cloned().map(Some).collect(),
        };
        let mut parts = Vec::new();
        for scope in scopes {
            let name = watch_name::<K>(config, scope.as_deref());
            let progress = Progress::new(name.clone(), self.leadership);
            let client = waking(self.client, &progress.so_far);
            let api = match &scope {
                None => Api::<K>::all(client),
                Some(namespace) => Api::<K>::namespaced(client, namespace),
            };
            let (reader, writer) = store();
            let config = config.clone().timeout(WATCH_SECONDS).page_size(PAGE);
            let filling = Filling::new(writer, tell(), &progress);
            let watch = follow((api, config), filling, self.anew.asked.clone(), progress.anew.clone());
            self.watches.push((name, watch.boxed()));
            self.anew.progress.push(progress);
            parts.push((scope, reader));
        }
        Cache { parts }
    }
}

fn watch_name<K: Resource<DynamicType = ()>>(config: &watcher::Config, scope: Option<&str>) -> String {
    let labelled = config.label_selector.as_ref().map(|labels| format!(" labelled {labels}"));
    let within = scope.map(|namespace| format!(" in {namespace}"));
    let [labelled, within] = [labelled, within].map(Option::unwrap_or_default);
    format!("the watch of {}{labelled}{within}", K::plural(&()))
}

/// Watches, and once it is asked to begins anew. Who is elected at once lists after that, and need not list again.
async fn follow<K>(
    (api, config): (Api<K>, watcher::Config),
    mut cache: Filling<K>,
    asked: CancellationToken,
    anew: CancellationToken,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let start =
        || watcher(api.clone(), config.clone()).modify(|object: &mut K| object.managed_fields_mut().clear());
    let resumed = cache.so_far.resumed.clone();
    cache.so_far.elected_soon().await;
    if asked.run_until_cancelled(cache.pass_on(healing(start, resumed.clone()))).await.is_none() {
        cache.listed = anew;
        cache.pass_on(healing(start, resumed)).await;
    }
}

/// A cache that is being filled.
struct Filling<K: Resource<DynamicType = ()> + Clone + 'static> {
    writer: Writer<K>,
    changes: Changes,
    tell: Tell,
    /// Told of each complete list.
    listed: CancellationToken,
    so_far: Arc<SoFar>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Filling<K> {
    fn new(writer: Writer<K>, tell: Tell, progress: &Progress) -> Self {
        let (listed, so_far) = (progress.filled.clone(), Arc::clone(&progress.so_far));
        Self { writer, changes: Changes::default(), tell, listed, so_far }
    }

    /// Brings events into the cache and tells what they changed there, in this order. May be dropped between two
    /// events: a list that broke off there changes nothing.
    async fn pass_on(&mut self, events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send) {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take_in(&event),
                Err(error) => {
                    let code = status_of(&error).map_or(0, |status| status.code);
                    self.so_far.failed(code);
                    tracing::warn!(kind = %K::kind(&()), %error, "watch failed, it is started anew");
                }
            }
        }
    }

    fn take_in(&mut self, event: &watcher::Event<K>) {
        self.writer.apply_watcher_event(event);
        self.changes.of(event).into_iter().for_each(&self.tell);
        self.so_far.came(event, !self.listed.is_cancelled());
        if matches!(event, watcher::Event::InitDone) {
            self.listed.cancel();
        }
    }
}

/// Namespace and name of a Proxy.
pub(crate) fn key_of(proxy: &Proxy) -> ProxyKey {
    ProxyKey::new(proxy.namespace().unwrap_or_default(), proxy.name_any())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher::Event;

    use super::super::changes::tests::object;
    use super::*;

    #[tokio::test]
    async fn a_change_is_told_when_the_cache_already_has_it() {
        let (reader, writer) = store();
        let told = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&told);
        let tell: Tell = Box::new(move |change| {
            let object = ObjectRef::<ConfigMap>::new(&change.key.1).within(&change.key.0);
            let cached = reader.get(&object).and_then(|object| object.resource_version());
            note.lock().unwrap().push((change.key.1, change.version, cached));
        });
        let events = [
            Event::Init,
            Event::InitApply(object("a", "1")),
            Event::InitApply(object("b", "2")),
            Event::InitDone,
            Event::Apply(object("a", "3")),
            Event::Init,
            Event::InitApply(object("a", "3")),
            Event::InitApply(object("c", "4")),
            Event::InitDone,
            Event::Delete(object("a", "5")),
        ];
        Filling::new(writer, tell, &Progress::new("a watch".to_owned(), &Leadership::alone()))
            .pass_on(futures::stream::iter(events.map(Ok)))
            .await;
        let mut told = told.lock().unwrap().clone();
        assert!(told.iter().all(|(_, version, cached)| version == cached), "{told:?}");
        told.sort();
        let names = told.iter().map(|(name, version, _)| (name.as_str(), version.as_deref()));
        let expected = [
            ("a", None),
            ("a", Some("1")),
            ("a", Some("3")),
            ("b", None),
            ("b", Some("2")),
            ("c", Some("4")),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }
}
