//! Kubernetes Events about a Proxy, for `kubectl describe`.
//!
//! Invariants: an Event that cannot be written changes nothing else; the same news about a Proxy is told
//! once as long as it stays the last of its kind; texts are those of conditions, which never hold secrets.
//! kube's own `Recorder` is not used: it repeats a known event as a further write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use egress_proxies_core::crd::{ConditionType, Phase, Proxy, ProxyStatus};
use egress_proxies_core::lifecycle::ObjectFacts;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Resource};

use super::recorder::{LifecycleMetrics, Outcome, Write};

/// What the events say who wrote them.
const CONTROLLER: &str = "egress-proxies-operator";
/// Longest text that the API server takes.
const NOTE_BYTES: usize = 1024;

/// Good or bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// All is as it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct News {
    /// Good or bad.
    pub(crate) kind: Kind,
    /// Constant word, as in conditions.
    pub(crate) reason: String,
    /// What the operator did or tried, a constant word.
    pub(crate) action: &'static str,
    /// For people: no times, counters or secrets.
    pub(crate) note: String,
}

/// Writes Events.
pub(crate) struct Events {
    client: Client,
    instance: String,
    metrics: Arc<dyn LifecycleMetrics>,
    told: Mutex<HashMap<String, News>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Events {
    /// `instance` names this process, such as its pod.
    pub(crate) fn new(client: Client, instance: String, metrics: Arc<dyn LifecycleMetrics>) -> Self {
        Self { client, instance, metrics, told: Mutex::default() }
    }

    /// Tells the news unless it was the last told about this Proxy. Never fails; a refusal is logged.
    pub(crate) async fn tell(&self, object: &ObjectFacts, news: News, now: jiff::Timestamp) {
        if !self.is_new(object.uid.as_str(), &news) {
            return;
        }
        let api = Api::<Event>::namespaced(self.client.clone(), &object.key.namespace);
        let answer = api.create(&PostParams::default(), &self.event(object, &news, now)).await;
        let outcome = if answer.is_ok() { Outcome::Done } else { Outcome::Failed };
        self.metrics.wrote(Write::Event, outcome);
        if let Err(error) = answer {
            tracing::info!(proxy = %object.key, reason = %news.reason, %error, "event not written");
        }
    }

    /// Forgets an object that is no more.
    pub(crate) fn forget(&self, uid: &str) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn is_new(&self, uid: &str, news: &News) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(uid.to_owned(), news.clone()).as_ref() != Some(news)
    }

    fn event(&self, object: &ObjectFacts, news: &News, now: jiff::Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                namespace: Some(object.key.namespace.clone()),
                name: Some(event_name(&object.key.name, now)),
                ..ObjectMeta::default()
            },
            action: Some(news.action.to_owned()),
            reason: Some(news.reason.clone()),
            note: Some(cut(&news.note)),
            type_: Some(news.kind.as_str().to_owned()),
            regarding: Some(reference_to(object)),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

fn reference_to(object: &ObjectFacts) -> ObjectReference {
    ObjectReference {
        api_version: Some(Proxy::api_version(&()).into_owned()),
        kind: Some(Proxy::kind(&()).into_owned()),
        namespace: Some(object.key.namespace.clone()),
        name: Some(object.key.name.clone()),
        uid: Some(object.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// The news that a status write is worth: a new phase or a new reason, in the words of the condition that
/// explains it. On the way to Ready these are two.
pub(crate) fn news_of(before: &ProxyStatus, after: &ProxyStatus) -> Option<News> {
    if before.phase == after.phase && before.reason == after.reason {
        return news_beside(before, after);
    }
    news_in(after)
}

/// What a status says, as news.
pub(crate) fn news_in(status: &ProxyStatus) -> Option<News> {
    let explains = |reason: &str| status.conditions.iter().find(|condition| condition.reason == reason);
    let condition = status.reason.as_deref().and_then(explains).or_else(|| status.conditions.first());
    let reason = status.reason.clone().or_else(|| condition.map(|it| it.reason.clone()))?;
    let (kind, action) = match status.phase {
        Phase::Ready => (Kind::Normal, "Provision"),
        Phase::Unhealthy => (Kind::Warning, "Probe"),
        Phase::Failed => (Kind::Warning, "Provision"),
        Phase::Deleting => (kind_of(&reason), "Delete"),
        Phase::Replacing => (kind_of(&reason), "Replace"),
        Phase::Pending | Phase::Provisioning => (kind_of(&reason), "Provision"),
    };
    let note = condition.map(|it| it.message.clone()).unwrap_or_default();
    Some(News { kind, reason, action, note })
}

/// What changed about the machine of a Proxy that goes on as it was.
fn news_beside(before: &ProxyStatus, after: &ProxyStatus) -> Option<News> {
    let provisioned = |status: &ProxyStatus| {
        let name = ConditionType::Provisioned.as_str();
        status.conditions.iter().find(|condition| condition.type_ == name).cloned()
    };
    let (old, new) = (provisioned(before)?, provisioned(after)?);
    (old.reason != new.reason).then(|| News {
        kind: kind_of(&new.reason),
        reason: new.reason,
        action: "Provision",
        note: new.message,
    })
}

/// Reasons of ordinary progress; any other deserves a look.
fn kind_of(reason: &str) -> Kind {
    match reason {
        "Creating" | "Provisioning" | "Created" | "ExternalEndpoint" | "Draining" | "Replacing"
        | "Deleting" | "ReplacementPending" => Kind::Normal,
        _ => Kind::Warning,
    }
}

/// A name that is new each time and valid whatever the length of the Proxy's.
fn event_name(proxy: &str, now: jiff::Timestamp) -> String {
    let end = proxy.floor_char_boundary(200);
    let stem = proxy.get(..end).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{stem}.{:x}", now.as_nanosecond())
}

fn cut(note: &str) -> String {
    let end = note.floor_char_boundary(NOTE_BYTES);
    note.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use egress_proxies_core::crd::ProxyStatus;
    use serde_json::json;

    use super::*;

    fn status(reason: &str) -> ProxyStatus {
        let condition = |kind: &str, reason: &str| {
            json!({
                "type": kind, "status": "True", "reason": reason, "message": format!("about {reason}"),
                "lastTransitionTime": "2026-01-01T00:00:00Z"
            })
        };
        let conditions = [condition("Provisioned", reason), condition("Ready", "ProbeSucceeded")];
        serde_json::from_value(
            json!({"phase": "Ready", "reason": "ProbeSucceeded", "conditions": conditions}),
        )
        .unwrap()
    }

    #[test]
    fn a_proxy_that_goes_on_tells_what_is_new_about_its_machine() {
        let told = |before: &str, after: &str| news_of(&status(before), &status(after));
        for (reason, kind) in [
            ("ReplacementPending", Kind::Normal),
            ("ReplacementPaused", Kind::Warning),
            ("FleetSuspect", Kind::Warning),
            ("ProviderUnavailable", Kind::Warning),
        ] {
            let news = told("Created", reason).unwrap();
            assert_eq!((news.kind, news.reason.as_str()), (kind, reason));
            assert_eq!(news.note, format!("about {reason}"));
            assert_eq!(told(reason, reason), None);
        }
        assert_eq!(told("FleetSuspect", "Created").unwrap().kind, Kind::Normal);
    }
}
