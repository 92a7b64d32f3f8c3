//! One pass over one Proxy: observe, decide, act, learn, until the decision is to wait. Decisions bound
//! the number of effects of a pass.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::ids::{ProxyKey, ProxyUid};
use egress_proxies_core::lifecycle::{
    Action, ObjectFacts, Observed, Outcome, Policy, Requeue, Written, absorb, decide, sending,
};
use tracing::Instrument;

use crate::clock::SharedClock;
use crate::lifecycle::apply::{Acted, Effects};
use crate::lifecycle::memory::Memories;
use crate::lifecycle::observe::Sources;
use crate::lifecycle::recorder::{self, LifecycleMetrics};

/// About so long after a pause met it a pass comes again, less or more by up to a half, or when the pause is over.
const NOT_ALLOWED: Duration = Duration::from_secs(5);

/// What passes need.
pub(crate) struct Reconciler {
    pub(crate) sources: Sources,
    pub(crate) effects: Effects,
    pub(crate) memories: Arc<Memories>,
    pub(crate) policy: Policy,
    pub(crate) clock: SharedClock,
    pub(crate) metrics: Arc<dyn LifecycleMetrics>,
}

impl Reconciler {
    /// Works on whatever is, or was, under this key; answers after how long to come again.
    pub(crate) async fn reconcile(&self, key: &ProxyKey) -> Option<Duration> {
        let current = self.stored(key);
        let uid = current.as_ref().map(|object| object.uid.clone());
        self.effects.own_writes.store_has(key, uid.as_ref().map(ProxyUid::as_str));
        let mut waits = Vec::new();
        for gone in self.memories.left_behind(key, uid.as_ref()) {
            waits.push(Box::pin(self.timed_pass(gone, true)).await);
        }
        if let Some(object) = current {
            waits.push(Box::pin(self.timed_pass(object, false)).await);
        }
        waits.into_iter().flatten().min()
    }

    /// The object in the cache, or our own write of it if that is newer.
    fn stored(&self, key: &ProxyKey) -> Option<ObjectFacts> {
        let stored = self.sources.stores.proxies.get(&key.namespace, &key.name)?;
        let newest = self.effects.own_writes.newest(stored);
        ObjectFacts::of(&newest)
            .inspect_err(|error| tracing::error!(proxy = %key, %error, "object of no use"))
            .ok()
    }

    async fn timed_pass(&self, object: ObjectFacts, missing: bool) -> Option<Duration> {
        let span = tracing::info_span!("reconcile", proxy = %object.key, uid = %object.uid);
        let started = self.clock.now().mono;
        let (requeue, outcome) = self.pass(object.clone(), missing).instrument(span).await;
        self.metrics.reconciled(outcome, self.clock.now().mono.since(started));
        match requeue {
            Requeue::OnChange => None,
            Requeue::After(wait) => Some(wait),
            Requeue::Done => {
                self.forget(&object, missing);
                None
            }
        }
    }

    /// The store of a deleted object may be behind: a pass on what it has must not begin anew with a machine that
    /// was left behind.
    fn forget(&self, object: &ObjectFacts, missing: bool) {
        let uid = object.uid.as_str();
        self.memories.forget(object);
        self.effects.events.forget(uid);
        if object.deleting && !missing {
            self.effects.own_writes.finish(&object.key, uid);
        } else {
            self.effects.own_writes.forget(uid);
        }
    }

    async fn pass(&self, object: ObjectFacts, missing: bool) -> (Requeue, recorder::Outcome) {
        let surroundings = self.sources.surroundings(&object);
        let memory = self.memories.of(&object);
        let mut observed = Box::new(Observed::begin(object, surroundings, memory));
        if !self.effects.allowed() {
            return not_allowed(&observed);
        }
        if missing {
            let looked = Outcome::Looked(self.effects.look(&observed.object).await);
            if failed(&looked) && !self.effects.allowed() {
                return not_allowed(&observed);
            }
            absorb(&mut observed, looked, &self.policy, self.clock.now());
        }
        let mut ended = recorder::Outcome::Done;
        loop {
            observed.surroundings = self.sources.surroundings(&observed.object);
            let decision = decide(&observed, &self.policy, self.clock.now());
            tracing::debug!(row = decision.row, "decided");
            if decision.action != Action::Wait && !self.effects.allowed() {
                self.memories.keep(&observed);
                return not_allowed(&observed);
            }
            sending(&mut observed, &decision.action);
            self.memories.keep(&observed); // before the effect: a panic in it must not forget that it was sent
            match self.effects.carry_out(decision.action, &observed).await {
                Acted::Waits => return (decision.requeue, ended),
                Acted::Forbidden => return not_allowed(&observed),
                // It was held back or broken off, or the API server is away: nothing is learned from that.
                Acted::Outcome(outcome) if failed(&outcome) && !self.effects.allowed() => {
                    return not_allowed(&observed);
                }
                Acted::Outcome(outcome) => {
                    if failed(&outcome) {
                        ended = recorder::Outcome::Failed;
                    }
                    absorb(&mut observed, *outcome, &self.policy, self.clock.now());
                    self.memories.keep(&observed);
                }
            }
        }
    }
}

/// The pass ends here and comes again by itself: nothing may have changed when this process may act again.
fn not_allowed(observed: &Observed) -> (Requeue, recorder::Outcome) {
    let permille = u32::try_from(observed.memory.seed % 1001).unwrap_or_default();
    let wait = NOT_ALLOWED / 2 + NOT_ALLOWED * permille / 1000;
    (Requeue::After(wait), recorder::Outcome::Stale)
}

fn failed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Looked(answer) | Outcome::MetadataPatched(answer) | Outcome::FinalizerRemoved(answer) => {
            matches!(answer, Written::Failed(_))
        }
        Outcome::StatusWritten { result, .. } => matches!(result, Written::Failed(_)),
        Outcome::Asked { .. } => false,
        Outcome::Validated { result, .. } => result.is_err(),
        Outcome::Got { result, .. } => result.is_err(),
        Outcome::Listed(result) => result.is_err(),
        Outcome::Created { result, .. } => result.is_err(),
        Outcome::Deleted { result, .. } => result.is_err(),
    }
}
