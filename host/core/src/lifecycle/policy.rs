//! Durations and limits of the lifecycle. Four are flags of the operator: the polls while a machine is made,
//! deleted, running, and after a lack of quota; so are the two caps per minute. The others are fixed.

use std::time::Duration;

use super::Caps;

/// Durations and limits. `Default` has the documented values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Between two looks at a machine that is being made.
    pub provisioning_poll: Duration,
    /// The shortest such time: looks at a new machine begin with it and become rarer with its age, see
    /// [`Policy::next_look`].
    pub young_poll: Duration,
    /// Between two looks at a machine that is being deleted.
    pub deletion_poll: Duration,
    /// Between two looks at a running machine.
    pub drift_poll: Duration,
    /// So many running machines of a provider are looked at by one list of them; fewer are asked for one by one: a
    /// list may need a request for each zone, and 50 machines 55 a minute.
    pub list_from: usize,
    /// A running machine is asked for by itself when it was not for this long, whatever lists show.
    pub asked_within: Duration,
    /// Until the next try after a lack of quota or capacity.
    pub quota_poll: Duration,
    /// Until the next try after what only an administrator can fix; the longest wait of any retry.
    pub slow_poll: Duration,
    /// First wait of an exponential back-off.
    pub backoff_first: Duration,
    /// Longest wait of an exponential back-off for calls without a class of their own.
    pub backoff_most: Duration,
    /// Longest wait of a call that gets no permit again and again: it has taken nobody's time, but its pass has.
    pub permit_most: Duration,
    /// Longest wait before a machine that vanishes again and again is made anew.
    pub vanish_most: Duration,
    /// A machine that ran this long ends the counting of vanished ones.
    pub settled_after: Duration,
    /// A machine that does not run after this long is deleted and made anew.
    pub provisioning_deadline: Duration,
    /// A delete is repeated after this long without an effect.
    pub delete_repeat: Duration,
    /// How long a live look at the object allows effects.
    pub fresh_for: Duration,
    /// How long a running machine waits for its first verdict before the status says that it runs.
    pub verdict_wait: Duration,
    /// A drain lasts at least this long if there is one: the pool must have heard of it before its count of
    /// leases says anything.
    pub drain_floor: Duration,
    /// An answer of validate-create that allowed a request is good for this long.
    pub checked_for: Duration,
    /// How much may be taken away at once.
    pub caps: Caps,
    /// Most effects of one pass; the rest is left to the next.
    pub most_steps: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            provisioning_poll: Duration::from_secs(5),
            young_poll: Duration::from_secs(1),
            deletion_poll: Duration::from_secs(5),
            drift_poll: Duration::from_mins(1),
            list_from: 50,
            asked_within: Duration::from_mins(30),
            quota_poll: Duration::from_mins(5),
            slow_poll: Duration::from_mins(10),
            backoff_first: Duration::from_secs(2),
            backoff_most: Duration::from_mins(5),
            permit_most: Duration::from_mins(1),
            vanish_most: Duration::from_mins(5),
            settled_after: Duration::from_mins(10),
            provisioning_deadline: Duration::from_mins(15),
            delete_repeat: Duration::from_mins(2),
            fresh_for: Duration::from_secs(10),
            verdict_wait: Duration::from_secs(3),
            drain_floor: Duration::from_secs(3),
            checked_for: Duration::from_mins(10),
            caps: Caps::default(),
            most_steps: 64,
        }
    }
}

impl Policy {
    /// Between two lists of the fleet. Machines are due for a look four fifths of the drift poll after the last one at
    /// the earliest: a list that takes a while still comes before that.
    pub fn survey_poll(&self) -> Duration {
        self.drift_poll * 2 / 3
    }

    /// From the time for a list until the first look that would be due without it. Lists of a provider that shows its
    /// machines later than that are of no use.
    pub fn survey_slack(&self) -> Duration {
        (self.drift_poll * 4 / 5).saturating_sub(self.survey_poll())
    }

    /// Until the next look at a machine that has been in the making for so long: two fifths of that, so that it is
    /// late by little beside what it took. A pod is up in some seconds, a virtual machine is not.
    pub(super) fn next_look(&self, making: Duration) -> Duration {
        let most = self.provisioning_poll;
        (making * 2 / 5).clamp(self.young_poll.min(most), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a machine is looked at that is up after so long, from its making on.
    fn looks(policy: &Policy, up: Duration) -> Vec<Duration> {
        let mut ages = vec![policy.next_look(Duration::ZERO)];
        while let Some(last) = ages.last().copied().filter(|last| *last < up) {
            ages.push(last + policy.next_look(last));
        }
        ages
    }

    #[test]
    fn looks_at_a_new_machine_follow_its_age() {
        let policy = Policy::default();
        for (up, seen, looked) in [
            (500, 1000, 1),
            (1900, 2000, 2),
            (3000, 3000, 3),
            (5000, 5880, 5),
            (8000, 8232, 6),
            (16_000, 16_134, 8),
            (60_000, 61_134, 17),
            (300_000, 301_134, 65),
        ] {
            let ages = looks(&policy, Duration::from_millis(up));
            let last = ages.last().map(Duration::as_millis);
            assert_eq!((last, ages.len()), (Some(seen), looked), "{ages:?}");
        }
    }

    #[test]
    fn a_fleet_asks_by_a_fifth_more_than_with_looks_after_twice_the_age() {
        let policy = Policy::default();
        let doubling = |up: Duration| {
            let mut ages = vec![Duration::from_secs(1)];
            while let Some(last) = ages.last().copied().filter(|last| *last < up) {
                ages.push(last + last.min(policy.provisioning_poll));
            }
            ages.len()
        };
        let fleet = || (1..=90).map(Duration::from_secs);
        // The create asks too.
        let now: usize = fleet().map(|up| 1 + looks(&policy, up).len()).sum();
        let before: usize = fleet().map(|up| 1 + doubling(up)).sum();
        assert!(now * 5 <= before * 6, "{now}, and {before} before");
    }

    #[test]
    fn a_poll_that_is_shorter_than_the_shortest_holds() {
        let policy = Policy { provisioning_poll: Duration::from_millis(200), ..Policy::default() };
        for making in [0, 1, 10, 1000].map(Duration::from_secs) {
            assert_eq!(policy.next_look(making), Duration::from_millis(200));
        }
    }
}
