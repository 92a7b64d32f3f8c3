//! Machines counted by probe URL, and which of these URLs are suspected.
//!
//! Counts are kept up to date change by change: counting a fleet of ten thousand anew per probe would cost more
//! than the probes. What a change does to a suspicion is kept here until it is taken, so that none is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egress_proxies_core::facts::{Suspicion, Suspicions};
use egress_proxies_core::health::{GroupCount, Hold, Standing, suspect_target};

use crate::health::probe::shown_url;

#[derive(Debug, Default)]
struct Group {
    members: usize,
    count: GroupCount,
    suspicion: Option<Suspicion>,
}

/// All groups by probe URL.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_url: BTreeMap<String, Group>,
    /// Suspicions that began and were not taken yet.
    raised: BTreeSet<String>,
    /// A suspicion began, changed or ended since this was taken.
    changed: bool,
}

impl Groups {
    pub(super) fn enter(&mut self, url: &str, standing: Standing, now: jiff::Timestamp) {
        let group = self.by_url.entry(url.to_owned()).or_default();
        group.members = group.members.saturating_add(1);
        group.count.add(standing);
        self.look(url, now);
    }

    pub(super) fn leave(&mut self, url: &str, standing: Standing, now: jiff::Timestamp) {
        let Some(group) = self.by_url.get_mut(url) else { return };
        group.members = group.members.saturating_sub(1);
        group.count.remove(standing);
        let empty = group.members == 0;
        self.look(url, now);
        if empty {
            self.by_url.remove(url);
        }
    }

    pub(super) fn change(&mut self, url: &str, from: Standing, to: Standing, now: jiff::Timestamp) {
        let Some(group) = self.by_url.get_mut(url) else { return };
        group.count.remove(from);
        group.count.add(to);
        self.look(url, now);
    }

    pub(super) fn hold(&self, url: &str) -> Hold {
        let suspected = self.by_url.get(url).is_some_and(|group| group.suspicion.is_some());
        if suspected { Hold::Yes } else { Hold::No }
    }

    /// URLs whose suspicion began since the last call, and lasts.
    pub(super) fn take_raised(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.raised)
    }

    /// Whether a suspicion began, changed or ended since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Says in a suspicion what most of the group fail with; an unusable URL or CA shows nowhere else.
    pub(super) fn explain(&mut self, url: &str, cause: &str) {
        let Some(group) = self.by_url.get_mut(url) else { return };
        let failing = group.count.failing;
        let Some(suspicion) = &mut group.suspicion else { return };
        tracing::warn!(
            url = shown_url(url),
            failing,
            cause,
            "the probe target is suspected: verdicts are held"
        );
        suspicion.message = format!("{MESSAGE}; most of them fail with {cause}");
        self.changed = true;
    }

    /// What is suspected, under names that may be shown.
    pub(super) fn suspicions(&self) -> Suspicions {
        let suspected = |(url, group): (&String, &Group)| Some((shown_url(url), group.suspicion.clone()?));
        Arc::new(self.by_url.iter().filter_map(suspected).collect())
    }

    fn look(&mut self, url: &str, now: jiff::Timestamp) {
        let Some(group) = self.by_url.get_mut(url) else { return };
        let before = group.suspicion.is_some();
        let after = suspect_target(before, group.count);
        if before == after {
            return;
        }
        self.changed = true;
        if after {
            group.suspicion = Some(Suspicion { since: now, message: MESSAGE.to_owned() });
            self.raised.insert(url.to_owned());
        } else {
            tracing::info!(url = shown_url(url), "the probe target is no longer suspected");
            group.suspicion = None;
            self.raised.remove(url);
        }
    }
}

const MESSAGE: &str = "nearly all healthy proxies with this probe URL began to fail at once, so the probe target \
    or the operator's own network is suspected and no proxy is called unhealthy for it; check both";
