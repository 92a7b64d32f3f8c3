//! One pass: list the machines, then the Proxies, decide, delete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::gc::{
    MachineKey, Machines, Observed, Plan, Proxies, Removal, Seen, Sightings, View, plan, untagged,
};
use egress_proxies_core::ids::{MACHINE_PREFIX, ProviderName};
use egress_proxies_core::lifecycle::cluster_tags;
use egress_proxies_core::provider::{Call, Failure, FailureClass, Lookup, Provider, Reason, Tags};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use super::GcSetup;
use super::removal::{Removals, Tried};
use crate::gc::recorder::PassOutcome;

/// How often a list or a look is asked for that finds all permits of its provider in use.
const ASKED: u32 = 5;
/// Between two of these.
const PAUSE: Duration = Duration::from_secs(2);

/// A provider that is ready, for one pass.
pub(super) type Ready = BTreeMap<ProviderName, Arc<dyn Provider>>;

/// What a pass leaves behind.
pub(super) struct Passed {
    /// What the next one remembers.
    pub(super) sightings: Sightings,
    /// It failed as a whole, or was not allowed to begin or to end.
    pub(super) came_to_nothing: bool,
}

/// What the lists of the providers gave.
#[derive(Default)]
struct Listed {
    machines: BTreeMap<ProviderName, Machines>,
    /// Machines without our tags, where the provider can tell.
    untagged: BTreeMap<ProviderName, usize>,
}

/// Carries out passes.
pub(super) struct Collector {
    setup: GcSetup,
    cancel: CancellationToken,
}

impl Collector {
    pub(super) fn new(setup: GcSetup, cancel: CancellationToken) -> Self {
        Self { setup, cancel }
    }

    /// One pass.
    pub(super) async fn pass(&self, sightings: Sightings) -> Passed {
        if !(self.setup.leadership.may_act)() {
            return self.end(PassOutcome::NotLeading, sightings);
        }
        let ready = self.ready();
        let looked = async {
            // The order matters, see `egress_proxies_core::gc`.
            let listed = self.list_machines(&ready).await;
            (listed, self.setup.proxies.list().await)
        };
        let Some((listed, proxies)) = self.cancel.run_until_cancelled(looked).await else {
            return Passed { sightings, came_to_nothing: false };
        };
        let proxies = match proxies {
            Ok(proxies) => Proxies::All(proxies),
            Err(error) => {
                let why = format!("{error:#}");
                tracing::warn!(%why, "garbage collection: the Proxies could not be listed; nothing is deleted");
                return self.end(PassOutcome::Failed, sightings);
            }
        };
        let observed = Observed {
            cluster: self.setup.cluster.clone(),
            view: self.setup.view.clone(),
            machines: listed.machines,
            proxies,
            sightings,
        };
        let plan = plan(&observed, &self.setup.policy, self.setup.clock.now());
        self.report(&observed, &plan, &listed.untagged);
        let whole =
            observed.machines.keys().all(|name| plan.seen.get(name).is_some_and(|seen| !seen.partial));
        self.carry_out(plan, &ready, whole).await
    }

    async fn carry_out(&self, plan: Plan, ready: &Ready, whole: bool) -> Passed {
        let Plan { removals, mut sightings, .. } = plan;
        let mut by_provider = BTreeMap::<ProviderName, Vec<Removal>>::new();
        for removal in removals {
            by_provider.entry(removal.machine.provider.clone()).or_default().push(removal);
        }
        let hand = Removals { setup: &self.setup, cancel: &self.cancel };
        let work = by_provider.into_iter().filter_map(|(name, removals)| {
            let provider = ready.get(&name)?;
            let hand = &hand;
            // One after the other for a provider, and providers side by side: a slow one holds up nobody else.
            Some(async move { hand.carry_out(provider.as_ref(), removals).await })
        });
        let mut leading = true;
        for (machine, tried) in join_all(work).await.into_iter().flatten() {
            remember(&mut sightings, &machine, tried);
            leading &= tried != Tried::NotLeading;
        }
        let outcome = match (leading, whole) {
            (false, _) => PassOutcome::NotLeading,
            (true, true) => PassOutcome::Complete,
            (true, false) => PassOutcome::Incomplete,
        };
        self.end(outcome, sightings)
    }

    fn end(&self, outcome: PassOutcome, sightings: Sightings) -> Passed {
        let remembered = sightings.len();
        tracing::debug!(outcome = outcome.as_str(), remembered, "garbage collection: a pass ended");
        self.setup.metrics.pass(outcome);
        let came_to_nothing = match outcome {
            PassOutcome::NotLeading | PassOutcome::Failed => true,
            PassOutcome::Complete | PassOutcome::Incomplete => false,
        };
        Passed { sightings, came_to_nothing }
    }

    fn ready(&self) -> Ready {
        let names = (self.setup.names)();
        let mut ready = Ready::new();
        for name in names {
            match self.setup.providers.lookup(&name) {
                Lookup::Ready(provider) => drop(ready.insert(name, provider)),
                Lookup::Loading | Lookup::Failed { .. } | Lookup::Unknown { .. } => {
                    self.setup.metrics.seen(&name, None);
                }
            }
        }
        ready
    }

    async fn list_machines(&self, ready: &Ready) -> Listed {
        let owner = cluster_tags(&self.setup.cluster);
        let lists = ready.iter().map(|(name, provider)| {
            let owner = &owner;
            async move { (name.clone(), list(name, provider.as_ref(), owner).await) }
        });
        let mut listed = Listed::default();
        for (name, (machines, untagged)) in join_all(lists).await {
            if let Some(untagged) = untagged {
                listed.untagged.insert(name.clone(), untagged);
            }
            listed.machines.insert(name, machines);
        }
        listed
    }

    fn report(&self, observed: &Observed, plan: &Plan, untagged: &BTreeMap<ProviderName, usize>) {
        for name in observed.machines.keys() {
            let seen = plan.seen.get(name);
            let untagged = untagged.get(name).copied();
            self.setup.metrics.seen(name, seen.map(|seen| (seen, untagged)));
            if let Some(seen) = seen {
                self.say(name, seen, untagged.unwrap_or_default());
            }
        }
        for (MachineKey { provider, id, .. }, verdict) in &plan.verdicts {
            tracing::trace!(%provider, %id, row = verdict.row(), "garbage collection");
        }
    }

    fn say(&self, provider: &ProviderName, seen: &Seen, untagged: usize) {
        let Seen { owned, orphans, surplus, stuck, suspected, partial: _ } = *seen;
        if suspected {
            tracing::error!(%provider, owned, orphans, surplus, "garbage collection: nearly all machines of the provider look abandoned, so what is wrong is more likely the list of Proxies or the provider; none is deleted. See docs/operations.md");
        } else if orphans + surplus > 0 {
            tracing::info!(%provider, owned, orphans, surplus, "garbage collection: machines look abandoned");
        }
        if stuck > 0 {
            tracing::warn!(%provider, stuck, "garbage collection: abandoned machines whose delete hangs; it is asked for again");
        }
        if untagged > 0 {
            tracing::info!(%provider, untagged, "garbage collection: machines named {MACHINE_PREFIX}... say of nobody that they are theirs; they are left alone");
        }
        if let View::Namespaces(names) = &self.setup.view {
            tracing::debug!(?names, "garbage collection judges machines of these namespaces only");
        }
    }
}

/// What the next pass has to know of a removal.
fn remember(sightings: &mut Sightings, machine: &MachineKey, tried: Tried) {
    match tried {
        Tried::Deleted | Tried::Failed => sightings.tried(machine),
        Tried::Spared => sightings.forget(machine),
        Tried::DryRun | Tried::NotLeading | Tried::Ending => {}
    }
}

/// Both lists of one provider. Neither failure stops anybody else.
async fn list(name: &ProviderName, provider: &dyn Provider, owner: &Tags) -> (Machines, Option<usize>) {
    let machines = match patiently(|| provider.list_owned(owner)).await {
        Ok(listing) => {
            if !listing.is_complete() {
                let unreachable = listing.unreachable.join(", ");
                tracing::warn!(provider = %name, %unreachable, "garbage collection: a part of the machines could not be listed");
            }
            Machines::Listed(listing)
        }
        Err(failure) => {
            tracing::warn!(provider = %name, %failure, "garbage collection: the machines could not be listed");
            return (Machines::Unlisted, None);
        }
    };
    let untagged = match patiently(|| provider.list_untagged(owner, MACHINE_PREFIX)).await {
        Ok(listing) => Some(untagged(&listing)),
        Err(Failure { reason: Reason::Unsupported, .. }) => None,
        Err(failure) => {
            tracing::debug!(provider = %name, %failure, "garbage collection: machines without tags could not be counted");
            None
        }
    };
    (machines, untagged)
}

/// Permits of a busy provider come free within seconds; a pass comes once in minutes.
pub(super) async fn patiently<'a, T>(ask: impl Fn() -> Call<'a, T>) -> Result<T, Failure> {
    for _ in 1..ASKED {
        match ask().await {
            Err(failure) if failure.class() == FailureClass::Soon => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
    ask().await
}
