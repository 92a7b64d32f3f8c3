//! The keys of one provider that wait, in the order in which they are due; and how many of it are being worked on.

use std::collections::BTreeSet;

use egress_proxies_core::ids::ProxyKey;
use egress_proxies_core::time::Moment;

use super::{Lane, Whose};

/// When a key is due in each lane. It may stand in both: news must not delay what was begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) news: Option<Moment>,
    pub(super) begun: Option<Moment>,
}

impl Place {
    pub(super) fn of(lane: Lane, at: Moment) -> Self {
        match lane {
            Lane::News => Self { news: Some(at), begun: None },
            Lane::Begun => Self { news: None, begun: Some(at) },
        }
    }

    /// In each lane the earlier time.
    pub(super) fn with(self, other: Self) -> Self {
        let earlier = |a: Option<Moment>, b: Option<Moment>| a.into_iter().chain(b).min();
        Self { news: earlier(self.news, other.news), begun: earlier(self.begun, other.begun) }
    }

    pub(super) fn first(self) -> Option<Moment> {
        self.news.into_iter().chain(self.begun).min()
    }
}

/// The keys of one provider, or those about which nobody is asked.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) whose: Whose,
    news: BTreeSet<(Moment, ProxyKey)>,
    begun: BTreeSet<(Moment, ProxyKey)>,
    /// Keys of it that are being worked on.
    pub(super) running: usize,
}

impl Group {
    pub(super) fn of(whose: Whose) -> Self {
        Self { whose, news: BTreeSet::new(), begun: BTreeSet::new(), running: 0 }
    }

    pub(super) fn stands(&mut self, key: &ProxyKey, place: Place) {
        if let Some(at) = place.news {
            self.news.insert((at, key.clone()));
        }
        if let Some(at) = place.begun {
            self.begun.insert((at, key.clone()));
        }
    }

    pub(super) fn leaves(&mut self, key: &ProxyKey, place: Place) {
        if let Some(at) = place.news {
            self.news.remove(&(at, key.clone()));
        }
        if let Some(at) = place.begun {
            self.begun.remove(&(at, key.clone()));
        }
    }

    /// The key of this lane that is due first.
    pub(super) fn first_in(&self, lane: Lane) -> Option<&(Moment, ProxyKey)> {
        match lane {
            Lane::News => self.news.first(),
            Lane::Begun => self.begun.first(),
        }
    }

    /// When the first key is due.
    pub(super) fn first(&self) -> Option<Moment> {
        let lanes = [self.news.first(), self.begun.first()];
        lanes.into_iter().flatten().map(|(at, _)| *at).min()
    }
}
