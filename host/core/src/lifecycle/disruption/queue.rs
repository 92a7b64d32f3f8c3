//! One queue under a cap: who asks gets a place, and keeps it. A place outlasts the slowest look at a machine, for
//! whoever comes a little late would else start again at the end, and nobody would ever get through. So many may
//! have a place whose time has come; what goes in a minute is therefore counted as well.
//!
//! Replacements and deletions have a queue each: a place in one says nothing about the other.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::ids::ProxyUid;
use crate::time::Moment;

use super::bucket::Bucket;
use super::share::refused;
use super::under_way::Target;
use super::{Admission, Refusal};

/// How long a place may be used after its time: a look at a machine, its deadline, and what stands before it.
const PLACE_HOLDS: Duration = Duration::from_mins(2);
const MINUTE: Duration = Duration::from_mins(1);

/// Places, and what went lately.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    bucket: Bucket,
    per_minute: usize,
    places: BTreeMap<(ProxyUid, Target), Place>,
    /// When the last ones went.
    went: VecDeque<Moment>,
    swept: Moment,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    at: Moment,
    used: bool,
}

impl Queue {
    /// Nobody waits.
    pub(super) fn empty(per_minute: u32, now: Moment) -> Self {
        Self {
            bucket: Bucket::empty(per_minute, now),
            per_minute: usize::try_from(per_minute.max(1)).unwrap_or(usize::MAX),
            places: BTreeMap::new(),
            went: VecDeque::new(),
            swept: now,
        }
    }

    /// May this one go now? It pays once, however often it asks.
    pub(super) fn ask(&mut self, uid: &ProxyUid, target: Target, now: Moment) -> Admission {
        self.sweep(now);
        let key = (uid.clone(), target);
        let known = self.places.get(&key).copied().filter(|place| now <= place.at + PLACE_HOLDS);
        let mut place = known.unwrap_or_else(|| Place { at: self.bucket.place(now), used: false });
        let answer = self.admit(place, now);
        place.used |= answer == Admission::Granted;
        self.places.insert(key, place);
        answer
    }

    fn admit(&mut self, place: Place, now: Moment) -> Admission {
        if place.used {
            return Admission::Granted;
        }
        if now < place.at {
            return refused(Refusal::Capped, place.at.since(now));
        }
        while self.went.front().is_some_and(|went| now.since(*went) >= MINUTE) {
            self.went.pop_front();
        }
        if let Some(first) = self.went.front().filter(|_| self.went.len() >= self.per_minute) {
            return refused(Refusal::Capped, (*first + MINUTE).since(now));
        }
        self.went.push_back(now);
        Admission::Granted
    }

    fn sweep(&mut self, now: Moment) {
        if now.since(self.swept) > PLACE_HOLDS {
            self.places.retain(|_, place| now <= place.at + PLACE_HOLDS);
            self.swept = now;
        }
    }
}
