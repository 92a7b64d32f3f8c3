//! One pass over one Proxy: observe, decide, act, learn, until the decision is to wait. Decisions bound
//! the number of effects of a pass.

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::ids::{ProxyKey, ProxyUid};
use egress_proxies_core::lifecycle::{
    Action, ObjectFacts, Observed, Outcome, Policy, Requeue, Written, absorb, decide, sending,
};
use egress_proxies_core::provider::{Failure, HostFault, Reason};
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
        let writes = &self.effects.own_writes;
        let is_left = |it: &ObjectFacts| writes.is_finished(key, it.uid.as_str(), &it.resource_version);
        if let Some(object) = current.filter(|object| !is_left(object)) {
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
        self.effects.events.forget(&object.uid);
        if object.deleting && !missing {
            self.effects.own_writes.finish(&object.key, uid);
        } else {
            self.effects.own_writes.forget(uid);
        }
    }

    /// Nothing is learned from what was held back, even if the pause is over by now, nor from what failed in one,
    /// since the API server is away.
    fn says_nothing(&self, went: Went) -> bool {
        match went {
            Went::Well => false,
            Went::HeldBack => true,
            Went::Failed => !self.effects.allowed(),
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
            if self.says_nothing(went(&looked)) {
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
                Acted::Outcome(outcome) => {
                    let went = went(&outcome);
                    if self.says_nothing(went) {
                        return not_allowed(&observed);
                    }
                    if went != Went::Well {
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

/// How an effect went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    Well,
    /// It may have happened all the same; whoever comes back to the object sees.
    HeldBack,
    Failed,
}

fn went(outcome: &Outcome) -> Went {
    match outcome {
        Outcome::Looked(answer) | Outcome::MetadataPatched(answer) | Outcome::FinalizerRemoved(answer) => {
            write_went(answer)
        }
        Outcome::StatusWritten { result, .. } => write_went(result),
        Outcome::Asked { .. } => Went::Well,
        Outcome::Validated { result, .. } => call_went(result),
        Outcome::Got { result, .. } => call_went(result),
        Outcome::Listed(result) => call_went(result),
        Outcome::Created { result, .. } => call_went(result),
        Outcome::Deleted { result, .. } => call_went(result),
    }
}

fn write_went(answer: &Written) -> Went {
    match answer {
        Written::Done(_) | Written::Conflict | Written::Gone => Went::Well,
        Written::HeldBack => Went::HeldBack,
        Written::Failed(_) => Went::Failed,
    }
}

fn call_went<T>(result: &Result<T, Failure>) -> Went {
    match result {
        Ok(_) => Went::Well,
        Err(failure) if failure.reason == Reason::Host(HostFault::HeldBack) => Went::HeldBack,
        Err(_) => Went::Failed,
    }
}
