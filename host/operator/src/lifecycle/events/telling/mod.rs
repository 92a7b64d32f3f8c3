//! Writes Events behind the work on Proxies: they wait in a queue of their own, from which one at a time is sent, so
//! that of a busy API server the statuses have the most.
//!
//! Bounded: who finds [`MOST_WAITING`] in the queue sends its own at once, a single time. An Event carries the time
//! of its news, which may be another order than that of the writing. One that a pause breaks off, or that a busy
//! server refuses, is sent again under the same name. What waits when the process is killed is lost; the status says
//! the same.
//!
//! kube's own `Recorder` is not used: it repeats a known event as a further write.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::ids::{ProxyKey, ProxyUid};
use egress_proxies_core::lifecycle::ObjectFacts;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::core::Status;
use kube::{Api, Client, Resource};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::News;
use crate::leadership::while_allowed;
use crate::lifecycle::recorder::{LifecycleMetrics, Outcome, Write};

/// What the events say who wrote them.
const CONTROLLER: &str = "egress-proxies-operator";
/// Longest text that the API server takes.
const NOTE_BYTES: usize = 1024;
/// Most Events in the queue: about a third of a KiB each, with the longest note 1.3 KiB.
const MOST_WAITING: usize = 2048;
/// Between two looks whether this process may act again.
const LOOK: Duration = Duration::from_millis(250);
/// Before an Event that a busy server refused is sent again. Short and few: the others wait behind it.
const BUSY: [Duration; 3] = [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(4)];

/// Where Events are sent, and by whom.
pub(crate) struct Sender {
    pub(crate) client: Client,
    /// Names this process, such as its pod.
    pub(crate) instance: String,
    pub(crate) metrics: Arc<dyn LifecycleMetrics>,
    pub(crate) may_act: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// News about an object, of a time.
struct Letter {
    key: ProxyKey,
    uid: ProxyUid,
    news: News,
    at: jiff::Timestamp,
}

enum Waiting {
    Letter(Box<Letter>),
    /// Answered when all before it was sent.
    Mark(oneshot::Sender<()>),
}

/// Takes news.
pub(crate) struct Events {
    sender: Arc<Sender>,
    queue: mpsc::Sender<Waiting>,
    /// Of the last news about each object, its hash.
    told: Mutex<HashMap<ProxyUid, u64>>,
}

/// Empties the queue.
pub(crate) struct Telling {
    sender: Arc<Sender>,
    queue: mpsc::Receiver<Waiting>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("instance", &self.sender.instance).finish_non_exhaustive()
    }
}

impl Events {
    /// With what has to run beside it.
    pub(crate) fn new(sender: Sender) -> (Self, Telling) {
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        let sender = Arc::new(sender);
        let telling = Telling { sender: Arc::clone(&sender), queue: waiting };
        (Self { sender, queue, told: Mutex::default() }, telling)
    }

    /// Tells the news, soon, unless it was the last told about this Proxy. Never fails; a refusal is logged.
    pub(crate) async fn tell(&self, object: &ObjectFacts, news: News, now: jiff::Timestamp) {
        let Some(letter) = self.letter(object, news, now) else { return };
        match self.queue.try_send(Waiting::Letter(Box::new(letter))) {
            Ok(()) => {}
            Err(TrySendError::Full(refused) | TrySendError::Closed(refused)) => match refused {
                Waiting::Letter(letter) => {
                    let _logged = self.sender.send(&letter).await;
                }
                Waiting::Mark(_) => {}
            },
        }
    }

    /// As [`Events::tell`], and done when it is told: what comes next must not be known before.
    pub(crate) async fn tell_at_once(&self, object: &ObjectFacts, news: News, now: jiff::Timestamp) {
        let Some(letter) = self.letter(object, news, now) else { return };
        match self.sender.insist(&letter).await {
            Sent::Done | Sent::Busy | Sent::Refused => {}
            // Whoever was met by a pause comes again with the same news.
            Sent::HeldBack => self.forget(&letter.uid),
        }
    }

    /// Resolves when everything that waits now was sent.
    pub(crate) async fn all_told(&self) {
        let (mark, reached) = oneshot::channel();
        if self.queue.send(Waiting::Mark(mark)).await.is_ok() {
            let _gone_if_nobody_tells = reached.await;
        }
    }

    /// Forgets an object that is no more.
    pub(crate) fn forget(&self, uid: &ProxyUid) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn letter(&self, object: &ObjectFacts, news: News, at: jiff::Timestamp) -> Option<Letter> {
        let mut hasher = DefaultHasher::new();
        news.hash(&mut hasher);
        let hash = hasher.finish();
        let before =
            self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(object.uid.clone(), hash);
        let news = News { note: cut(news.note), ..news };
        (before != Some(hash)).then(|| Letter { key: object.key.clone(), uid: object.uid.clone(), news, at })
    }
}

impl Telling {
    /// Sends what waits, one after the other, until nobody has news any more.
    pub(crate) async fn run(mut self) {
        while let Some(waiting) = self.queue.recv().await {
            match waiting {
                Waiting::Letter(letter) => self.deliver(&letter).await,
                Waiting::Mark(reached) => {
                    let _nobody_waits_any_more = reached.send(());
                }
            }
        }
    }

    async fn deliver(&self, letter: &Letter) {
        loop {
            match self.sender.insist(letter).await {
                Sent::Done | Sent::Busy | Sent::Refused => return,
                Sent::HeldBack => tokio::time::sleep(LOOK).await,
            }
        }
    }
}

/// What came of a sending.
enum Sent {
    Done,
    /// This process may not act, or a pause broke it off: it may have been written all the same.
    HeldBack,
    /// The server has too much to do, cannot do it now, or is not there.
    Busy,
    /// It would do the same again.
    Refused,
}

impl Sender {
    /// As [`Sender::send`], and a few times more where the server is busy.
    async fn insist(&self, letter: &Letter) -> Sent {
        for wait in BUSY {
            match self.send(letter).await {
                Sent::Busy => tokio::time::sleep(wait).await,
                sent @ (Sent::Done | Sent::HeldBack | Sent::Refused) => return sent,
            }
        }
        self.send(letter).await
    }

    async fn send(&self, letter: &Letter) -> Sent {
        let api = Api::<Event>::namespaced(self.client.clone(), &letter.key.namespace);
        let event = self.event(letter);
        let write = async { api.create(&PostParams::default(), &event).await };
        let Some(answer) = while_allowed(&*self.may_act, write).await else { return Sent::HeldBack };
        let sent = match &answer {
            Ok(_) => Sent::Done,
            Err(error) => match refusal(error) {
                // The first of two sendings had come through.
                Some(status) if status.is_already_exists() => Sent::Done,
                Some(status) if status.code != 429 && status.code < 500 => Sent::Refused,
                Some(_) | None => Sent::Busy,
            },
        };
        let outcome = if matches!(sent, Sent::Done) { Outcome::Done } else { Outcome::Failed };
        if let (Outcome::Failed, Err(error)) = (outcome, &answer) {
            tracing::info!(proxy = %letter.key, reason = %letter.news.reason, %error, "event not written");
        }
        self.metrics.wrote(Write::Event, outcome);
        sent
    }

    fn event(&self, letter: &Letter) -> Event {
        let Letter { key, news, at, .. } = letter;
        Event {
            metadata: ObjectMeta {
                namespace: Some(key.namespace.clone()),
                name: Some(event_name(&key.name, *at)),
                ..ObjectMeta::default()
            },
            action: Some(news.action.to_owned()),
            reason: Some(news.reason.clone()),
            note: Some(news.note.clone()),
            type_: Some(news.kind.as_str().to_owned()),
            regarding: Some(reference_to(letter)),
            event_time: Some(MicroTime(*at)),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// What the API server said, if it did.
fn refusal(error: &kube::Error) -> Option<&Status> {
    if let kube::Error::Api(status) = error { Some(status) } else { None }
}

fn reference_to(letter: &Letter) -> ObjectReference {
    ObjectReference {
        api_version: Some(Proxy::api_version(&()).into_owned()),
        kind: Some(Proxy::kind(&()).into_owned()),
        namespace: Some(letter.key.namespace.clone()),
        name: Some(letter.key.name.clone()),
        uid: Some(letter.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// A name that is new for each news and valid whatever the length of the Proxy's.
fn event_name(proxy: &str, at: jiff::Timestamp) -> String {
    let end = proxy.floor_char_boundary(200);
    let stem = proxy.get(..end).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{stem}.{:x}", at.as_nanosecond())
}

fn cut(mut note: String) -> String {
    note.truncate(note.floor_char_boundary(NOTE_BYTES));
    note
}

#[cfg(test)]
mod tests;
