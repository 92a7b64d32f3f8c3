//! Carries out what was decided: every effect on machines and objects goes through [`Effects`], one at a
//! time, each followed by a new decision. Nothing is chosen here.
//!
//! Requests are boxed, writes by [`while_allowed`]: many passes wait at the same time, most of them for a permit, and
//! each would else have the room of the largest request.
//!
//! Invariant: a process that may no longer act sends nothing ([`Effects::carry_out`] asks before each
//! effect, and a write that waits for its connection or its answer is broken off).

mod metadata;
mod room;
mod written;

use std::sync::Arc;

use egress_proxies_core::crd::{Proxy, ProxyStatus};
use egress_proxies_core::ids::{InstanceId, ProxyKey};
use egress_proxies_core::lifecycle::{
    Action, MetadataPatch, ObjectFacts, Observed, Outcome, ProvisionedReason, Written,
};
use egress_proxies_core::provider::{Failure, Lookup, Provider, Providers, Reason};
use kube::{Api, Client};

use super::events::{Events, news_in, news_of};
use super::observe::OwnWrites;
use super::recorder::{self, LifecycleMetrics, Write};
use super::status;
use crate::clock::SharedClock;
use crate::leadership::while_allowed;

pub(crate) use room::Room;

/// Everything that effects need.
pub(crate) struct Effects {
    pub(crate) client: Client,
    pub(crate) providers: Arc<dyn Providers>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) events: Events,
    pub(crate) room: Room,
    pub(crate) metrics: Arc<dyn LifecycleMetrics>,
    pub(crate) clock: SharedClock,
    pub(crate) may_act: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// What came of an attempt to act.
pub(crate) enum Acted {
    /// The effect was sent; this came of it.
    Outcome(Box<Outcome>),
    /// The decision was to wait: the pass is over.
    Waits,
    /// This process may no longer act.
    Forbidden,
}

impl Effects {
    /// Whether this process may carry anything out now.
    pub(crate) fn allowed(&self) -> bool {
        (self.may_act)()
    }

    /// Carries out one action on the Proxy observed.
    pub(crate) async fn carry_out(&self, action: Action, observed: &Observed) -> Acted {
        if action == Action::Wait {
            return Acted::Waits;
        }
        if !self.allowed() {
            return Acted::Forbidden;
        }
        let object = &observed.object;
        Acted::Outcome(Box::new(match action {
            Action::Wait => return Acted::Waits,
            Action::LookAgain => Outcome::Looked(self.look(object).await),
            Action::PatchMetadata(wanted) => Outcome::MetadataPatched(self.patch(object, &wanted).await),
            Action::AskLeave(ask) => {
                let admission = self.room.ask(&ask, self.clock.now().mono);
                Outcome::Asked { ask, admission }
            }
            Action::Abandon { patch, machine } => {
                self.tell_abandoned(object, machine.as_ref()).await;
                Outcome::FinalizerRemoved(self.patch(object, &patch).await)
            }
            Action::RemoveFinalizer(wanted) => Outcome::FinalizerRemoved(self.patch(object, &wanted).await),
            Action::WriteStatus(asked) => {
                let result = self.write_status(object, &asked).await;
                Outcome::StatusWritten { asked, result }
            }
            Action::ValidateCreate { key, request } => {
                let result = match self.provider(object) {
                    Ok(provider) => provider.validate_create(&request).await,
                    Err(failure) => Err(failure),
                };
                Outcome::Validated { key, result }
            }
            Action::Create { key, request } => {
                let result = match self.provider(object) {
                    Ok(provider) => provider.create(&request).await,
                    Err(failure) => Err(failure),
                };
                Outcome::Created { key, result }
            }
            Action::Get(target) => {
                let result = match self.provider(object) {
                    Ok(provider) => provider.get(&target).await,
                    Err(failure) => Err(failure),
                };
                Outcome::Got { target, result }
            }
            Action::ListOwned(owner) => Outcome::Listed(match self.provider(object) {
                Ok(provider) => provider.list_owned(&owner).await,
                Err(failure) => Err(failure),
            }),
            Action::Delete { target, why } => {
                tracing::info!(proxy = %object.key, uid = %object.uid, machine = %target.id, why, "deleting a machine");
                let result = match self.provider(object) {
                    Ok(provider) => provider.delete(&target).await,
                    Err(failure) => Err(failure),
                };
                Outcome::Deleted { target, result }
            }
        }))
    }

    /// Before the object is let go, so that it is told even if this process ends right after. In the words of the
    /// status, which the write of it may have told before.
    async fn tell_abandoned(&self, object: &ObjectFacts, machine: Option<&InstanceId>) {
        let machine = machine.map_or("of unknown id", InstanceId::as_str);
        tracing::warn!(
            proxy = %object.key, uid = %object.uid, machine,
            "the object goes, its machine was not deleted and may go on and cost money"
        );
        if let Some(news) = news_in(&object.status) {
            self.events.tell_at_once(object, news, self.clock.now().wall).await;
        }
    }

    /// Reads the object live. An object of the same name with another uid is no news of ours: nobody has
    /// decided on it yet, so the event that announces it must count.
    pub(crate) async fn look(&self, object: &ObjectFacts) -> Written {
        let key = &object.key;
        let answer = Box::pin(self.api(key).get(&key.name)).await;
        written::sort(answer, |found| {
            if found.metadata.uid.as_deref() == Some(object.uid.as_str()) {
                self.own_writes.keep(found);
            }
        })
    }

    async fn patch(&self, object: &ObjectFacts, wanted: &MetadataPatch) -> Written {
        let api = self.api(&object.key);
        let write = metadata::patch(&api, &object.key.name, &object.uid, wanted);
        match while_allowed(&*self.may_act, write).await {
            Some(answer) => self.sorted(object, Write::Metadata, answer),
            None => Written::HeldBack,
        }
    }

    async fn write_status(&self, object: &ObjectFacts, asked: &ProxyStatus) -> Written {
        let api = self.api(&object.key);
        let write = status::write(&api, object, asked);
        let Some(answer) = while_allowed(&*self.may_act, write).await else { return Written::HeldBack };
        let result = self.sorted(object, Write::Status, answer);
        if let (Written::Done(_), Some(news)) = (&result, news_of(&object.status, asked)) {
            let now = self.clock.now().wall;
            let foreign = news.action == "Delete" && news.reason == ProvisionedReason::NameConflict.as_str();
            if foreign || news.reason == ProvisionedReason::Abandoned.as_str() {
                self.events.tell_at_once(object, news, now).await; // the object goes next
            } else {
                self.events.tell(object, news, now).await;
            }
        }
        result
    }

    fn sorted(&self, object: &ObjectFacts, what: Write, answer: Result<Proxy, kube::Error>) -> Written {
        let result = written::sort(answer, |object| self.own_writes.keep(object));
        let outcome = match &result {
            Written::Done(_) => recorder::Outcome::Done,
            Written::Conflict | Written::Gone | Written::HeldBack => recorder::Outcome::Stale,
            Written::Failed(error) => {
                tracing::warn!(proxy = %object.key, what = what.as_str(), %error, "write refused or unanswered");
                recorder::Outcome::Failed
            }
        };
        self.metrics.wrote(what, outcome);
        result
    }

    fn provider(&self, object: &ObjectFacts) -> Result<Arc<dyn Provider>, Failure> {
        let unavailable = |why: String| Err(Failure::new(Reason::Transient, why));
        let Some(name) = object.provider() else {
            return unavailable("spec.provider is not a valid name".to_owned());
        };
        match self.providers.lookup(&name) {
            Lookup::Ready(provider) => Ok(provider),
            Lookup::Loading => unavailable(format!("provider {name} is being loaded")),
            Lookup::Failed { stage, reason } => {
                unavailable(format!("provider {name} failed to load ({stage}): {reason}"))
            }
            Lookup::Unknown { .. } => unavailable(format!("provider {name} is not in the providers config")),
        }
    }

    fn api(&self, key: &ProxyKey) -> Api<Proxy> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

#[cfg(test)]
mod tests;
