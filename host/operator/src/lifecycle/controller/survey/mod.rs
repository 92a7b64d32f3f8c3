//! Surveys: now and then one list of all machines of a provider, so that those that run as before need not be asked
//! for one by one. Nothing follows from a list but that; what it does not show is asked for by the pass of that Proxy.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::ids::ProviderName;
use egress_proxies_core::lifecycle::{Policy, Surveyed, Turns, provider_tags};
use egress_proxies_core::provider::{Lookup, Provider, Providers};
use egress_proxies_core::time::Moment;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock::SharedClock;
use crate::leadership::Leadership;
use crate::lifecycle::memory::Memories;

/// What surveys need.
#[derive(Clone)]
pub(super) struct Survey {
    pub(super) providers: Arc<dyn Providers>,
    pub(super) memories: Arc<Memories>,
    pub(super) leadership: Leadership,
    pub(super) clock: SharedClock,
    pub(super) policy: Policy,
    /// Identity of this cluster.
    pub(super) cluster: String,
}

/// Whose turn it was, and which lists are under way.
#[derive(Default)]
struct UnderWay {
    turns: HashMap<ProviderName, Turns>,
    asked: JoinSet<Option<Surveyed>>,
    names: HashMap<Id, ProviderName>,
}

impl Survey {
    /// For ever. Providers do not wait for each other, and none is asked again before it has answered.
    pub(super) async fn run(self) {
        let each = self.policy.survey_poll();
        let mut ticks = tokio::time::interval_at(Instant::now() + each, each);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut under_way = UnderWay::default();
        loop {
            tokio::select! {
                _ = ticks.tick() => self.turn(&mut under_way),
                Some(answered) = under_way.asked.join_next_with_id() => {
                    under_way.answered(answered, &self.policy);
                }
            }
        }
    }

    fn turn(&self, under_way: &mut UnderWay) {
        if !(self.leadership.may_act)() {
            return;
        }
        for (name, machines) in self.memories.surveyed() {
            let Lookup::Ready(provider) = self.providers.lookup(&name) else { continue };
            let info = provider.info();
            let is_of_use = machines >= self.policy.list_from && info.list_lag <= self.policy.survey_slack();
            let busy = under_way.names.values().any(|asked| *asked == name);
            if is_of_use && !busy && under_way.turns.entry(name.clone()).or_default().comes() {
                let handle = under_way.asked.spawn(self.clone().list(provider, name.clone()));
                under_way.names.insert(handle.id(), name);
            }
        }
    }

    /// None: this process may not act by now.
    async fn list(self, provider: Arc<dyn Provider>, name: ProviderName) -> Option<Surveyed> {
        tokio::time::sleep(offset(&name, self.policy.survey_poll() / 4)).await;
        if !(self.leadership.may_act)() {
            return None;
        }
        let began = self.clock.now().mono.since_start();
        let as_of = Moment::after_start(began.saturating_sub(provider.info().list_lag));
        Some(match provider.list_owned(&provider_tags(&self.cluster, &name)).await {
            Ok(listing) => {
                let (shown, of) = self.memories.listed(&name, &listing.items, as_of, &self.policy);
                tracing::debug!(provider = %name, shown, of, "looked at the machines by a list");
                Surveyed::Shown(shown, of)
            }
            Err(failure) => Surveyed::Failed(failure),
        })
    }
}

impl UnderWay {
    fn answered(&mut self, answered: Result<(Id, Option<Surveyed>), JoinError>, policy: &Policy) {
        let id = answered.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(name) = self.names.remove(&id) else { return };
        let surveyed = match answered {
            Ok((_, Some(surveyed))) => surveyed,
            Ok((_, None)) => return,
            Err(error) => {
                tracing::error!(provider = %name, %error, "a list of the machines was broken off");
                return;
            }
        };
        let turns = self.turns.entry(name.clone()).or_default();
        if turns.answered(&surveyed, policy) {
            tracing::info!(provider = %name, ?surveyed, "a list of the machines saves nothing, each is asked for by itself; lists are tried more rarely");
        }
    }
}

/// Providers are not all asked at once.
fn offset(name: &ProviderName, most: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    name.as_str().hash(&mut hasher);
    let permille = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    most * permille / 1000
}

#[cfg(test)]
mod tests;
