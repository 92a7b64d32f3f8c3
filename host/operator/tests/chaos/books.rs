//! What users and the administrator did in a world, and when: it explains what becomes of the machines, or
//! nothing does.

use std::collections::BTreeMap;
use std::sync::Mutex;

use egress_proxies_core::crd::Proxy;
use tokio::time::Instant;

use crate::provider::Component;

/// Something that was asked for: at some time from `began` to `ended`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// An edit that may ask for a machine made from something else.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    /// Of this Proxy; none: of the Secret.
    pub(crate) uid: Option<String>,
    pub(crate) span: Span,
}

/// A value of the replace annotation.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) uid: String,
    pub(crate) value: String,
    /// The machine that the status named when the value came; none: whatever comes next serves it.
    pub(crate) machine: Option<String>,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    pub(crate) edits: Vec<Edit>,
    pub(crate) asked: Vec<Asked>,
    /// When the deletion of a Proxy was first asked for.
    pub(crate) deleted: BTreeMap<String, Instant>,
    pub(crate) provider: Vec<(Span, Component)>,
}

/// The books of a world.
#[derive(Debug, Default)]
pub(crate) struct Books {
    done: Mutex<Done>,
}

impl Books {
    pub(crate) fn done(&self) -> Done {
        self.done.lock().unwrap().clone()
    }

    pub(crate) fn edited(&self, uid: Option<String>, began: Instant) {
        let span = Span { began, ended: Instant::now() };
        self.done.lock().unwrap().edits.extend(uid.map(|uid| Edit { uid: Some(uid), span }));
    }

    pub(crate) fn secret_edited(&self, began: Instant) {
        let span = Span { began, ended: Instant::now() };
        self.done.lock().unwrap().edits.push(Edit { uid: None, span });
    }

    /// `proxy` is the object with the value, as it was at that moment.
    pub(crate) fn asked(&self, proxy: &Proxy, value: &str) {
        let status = proxy.status.clone().unwrap_or_default();
        // The request of the test was repeated, and the value is taken up already: it says nothing.
        let is_late = status.replace_nonce.as_deref() == Some(value);
        let asked = Asked {
            uid: proxy.metadata.uid.clone().unwrap_or_default(),
            value: value.to_owned(),
            machine: status.incarnation.filter(|_| !is_late),
        };
        self.done.lock().unwrap().asked.push(asked);
    }

    /// To be said before it is asked for.
    pub(crate) fn deleted(&self, uid: Option<String>) {
        let mut done = self.done.lock().unwrap();
        done.deleted.entry(uid.unwrap_or_default()).or_insert_with(Instant::now);
    }

    /// The provider becomes another one by `put`.
    pub(crate) fn provider(&self, component: Component, put: impl FnOnce()) {
        let began = Instant::now();
        put();
        let span = Span { began, ended: Instant::now() };
        self.done.lock().unwrap().provider.push((span, component));
    }
}

impl Done {
    /// At some time in between nobody could be asked about machines.
    pub(crate) fn was_unavailable_within(&self, from: Instant, to: Instant) -> bool {
        let mut all = self.provider.iter().peekable();
        while let Some((span, component)) = all.next() {
            let ends = all.peek().map(|(next, _)| next.ended);
            if component.is_unavailable() && span.began <= to && ends.is_none_or(|ends| ends >= from) {
                return true;
            }
        }
        false
    }

    /// All the time in between nobody could be asked about machines.
    pub(crate) fn was_unavailable_throughout(&self, from: Instant, to: Instant) -> bool {
        let before = self.provider.iter().rfind(|(span, _)| span.ended <= from);
        let meanwhile = self.provider.iter().filter(|(span, _)| span.ended > from && span.began <= to);
        before.is_some_and(|(_, component)| component.is_unavailable())
            && meanwhile.into_iter().all(|(_, component)| component.is_unavailable())
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_unavailable_from_its_failure_until_it_is_back() {
    let books = Books::default();
    let mut at = Vec::new();
    for component in [Component::Failed, Component::Removed, Component::Loading] {
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        books.provider(component, || {});
        at.push(Instant::now());
    }
    let second = std::time::Duration::from_secs(1);
    let done = books.done();
    let both = |from: Instant, to: Instant| {
        (done.was_unavailable_within(from, to), done.was_unavailable_throughout(from, to))
    };
    assert_eq!(both(at[0] - 2 * second, at[0] - second), (false, false));
    assert_eq!(both(at[0] - second, at[0] + second), (true, false));
    assert_eq!(both(at[0] + second, at[2] - second), (true, true), "from one kind to the other");
    assert_eq!(both(at[1] + second, at[2] + second), (true, false));
    assert_eq!(both(at[2] + second, at[2] + 2 * second), (false, false), "loading: it is waited for");
}
