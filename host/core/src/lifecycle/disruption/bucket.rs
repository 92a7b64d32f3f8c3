//! A cap per minute, kept as the time of the next free place: nothing is counted, nothing is swept.
//!
//! Whoever asks gets a place in a queue, now or later, so that many who wait come one after the other instead
//! of all at once. A new bucket is empty but for one place: a restart hands out no second burst.

use std::time::Duration;

use crate::time::Moment;

const MINUTE: Duration = Duration::from_mins(1);

/// At most so many per minute, a quarter of them at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bucket {
    /// Between two places in the long run.
    interval: Duration,
    /// How far ahead of that places are given when nobody came for a while.
    slack: Duration,
    /// Where the next place would be without that.
    next: Moment,
}

impl Bucket {
    /// Empty at `now`. In no minute more than `per_minute` places are given.
    pub(super) fn empty(per_minute: u32, now: Moment) -> Self {
        let per_minute = per_minute.max(1);
        let burst = (per_minute / 4).max(1);
        let steady = per_minute - (burst - 1);
        let interval = MINUTE / steady + Duration::from_nanos(1); // rounded up: never one too many
        let slack = interval.saturating_mul(burst - 1);
        Self { interval, slack, next: now + slack }
    }

    /// The next place.
    pub(super) fn place(&mut self, now: Moment) -> Moment {
        let next = self.next.max(now);
        self.next = next + self.interval;
        let early = next.since_start().saturating_sub(self.slack);
        Moment::after_start(early).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(1000 + seconds))
    }

    /// Most places within any minute.
    fn most(places: &[Moment]) -> usize {
        assert!(places.is_sorted());
        let within = |first: usize| places.partition_point(|at| at.since(places[first]) < MINUTE) - first;
        (0..places.len()).map(within).max().unwrap_or_default()
    }

    #[test]
    fn no_minute_has_more_places_than_the_cap() {
        for cap in [1, 2, 3, 4, 5, 60, 900] {
            let mut bucket = Bucket::empty(cap, at(0));
            let many = cap.saturating_mul(4);
            let mut places: Vec<Moment> = (0..many).map(|_| bucket.place(at(0))).collect();
            let idle = at(10_000);
            places.extend((0..many).map(|_| bucket.place(idle)));
            let cap_count = usize::try_from(cap).unwrap();
            assert!(most(&places) <= cap_count, "{} for a cap of {cap}", most(&places));
            assert!(most(&places) * 10 >= cap_count * 9, "{} for a cap of {cap}", most(&places));
        }
    }

    #[test]
    fn a_new_bucket_gives_one_place_at_once_and_no_burst() {
        let mut bucket = Bucket::empty(60, at(0));
        assert_eq!(bucket.place(at(0)), at(0));
        assert!(bucket.place(at(0)) > at(0));
        let mut rested = Bucket::empty(60, at(0));
        let burst = (0..60).filter(|_| rested.place(at(600)) == at(600)).count();
        assert_eq!(burst, 15);
    }

    #[test]
    fn a_thousand_deletions_take_at_most_two_minutes() {
        let mut bucket = Bucket::empty(900, at(0));
        let last = (0..1000).map(|_| bucket.place(at(0))).max().unwrap();
        assert!(last.since(at(0)) <= Duration::from_mins(2), "{:?}", last.since(at(0)));
    }
}
