//! Machines counted by probe URL, and which of these URLs are suspected.
//!
//! Counts are kept up to date change by change: counting a fleet of ten thousand anew per probe would cost more
//! than the probes.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_proxies_core::facts::{Suspicion, Suspicions};
use egress_proxies_core::health::{GroupCount, Hold, Standing, suspect_target};

#[derive(Debug, Default)]
struct Group {
    members: usize,
    count: GroupCount,
    suspicion: Option<Suspicion>,
}

/// What a change of the counts did to the suspicion of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    None,
    /// It began.
    Raised,
    /// It ended.
    Cleared,
}

/// All groups by probe URL.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_url: BTreeMap<String, Group>,
}

impl Groups {
    pub(super) fn enter(&mut self, url: &str, standing: Standing, now: jiff::Timestamp) -> Turn {
        let group = self.by_url.entry(url.to_owned()).or_default();
        group.members = group.members.saturating_add(1);
        group.count.add(standing);
        group.look(url, now)
    }

    pub(super) fn leave(&mut self, url: &str, standing: Standing, now: jiff::Timestamp) -> Turn {
        let Some(group) = self.by_url.get_mut(url) else { return Turn::None };
        group.members = group.members.saturating_sub(1);
        group.count.remove(standing);
        let turn = group.look(url, now);
        if group.members == 0 {
            self.by_url.remove(url);
        }
        turn
    }

    pub(super) fn change(&mut self, url: &str, from: Standing, to: Standing, now: jiff::Timestamp) -> Turn {
        let Some(group) = self.by_url.get_mut(url) else { return Turn::None };
        group.count.remove(from);
        group.count.add(to);
        group.look(url, now)
    }

    pub(super) fn hold(&self, url: &str) -> Hold {
        let suspected = self.by_url.get(url).is_some_and(|group| group.suspicion.is_some());
        if suspected { Hold::Yes } else { Hold::No }
    }

    pub(super) fn suspicions(&self) -> Suspicions {
        let suspected = |(url, group): (&String, &Group)| Some((url.clone(), group.suspicion.clone()?));
        Arc::new(self.by_url.iter().filter_map(suspected).collect())
    }
}

impl Group {
    fn look(&mut self, url: &str, now: jiff::Timestamp) -> Turn {
        let before = self.suspicion.is_some();
        let after = suspect_target(before, self.count);
        match (before, after) {
            (false, true) => {
                tracing::warn!(
                    url,
                    failing = self.count.failing,
                    "the probe target is suspected: verdicts are held"
                );
                self.suspicion = Some(Suspicion { since: now, message: MESSAGE.to_owned() });
                Turn::Raised
            }
            (true, false) => {
                tracing::info!(url, "the probe target is no longer suspected");
                self.suspicion = None;
                Turn::Cleared
            }
            (true, true) | (false, false) => Turn::None,
        }
    }
}

const MESSAGE: &str = "nearly all healthy proxies with this probe URL began to fail at once, so the probe target \
    or the operator's own network is suspected and no proxy is called unhealthy for it; check both";
