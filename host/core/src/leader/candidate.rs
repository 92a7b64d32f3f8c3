//! One process in the election: what it knows of the Lease, and what it does next.

use std::time::Duration;

use super::{Decision, GIVEN_UP, Loss, MOST_DURATION, REQUEST, Record, Step, Timing};
use crate::time::Moment;

/// What is known of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum View {
    /// Not read yet, or changed since by somebody else.
    Unknown,
    /// There is none, and has been none since that moment at the latest.
    Absent { since: Moment },
    /// There is one, in this version since that moment at the latest. Time in which it could not be watched does
    /// not count.
    Present { record: Record, since: Moment },
}

/// The lead, as this process has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// It does not lead.
    None,
    /// It leads until then, or led and has not heard yet that this is over.
    Held { renewed: Moment, until: Moment },
    /// It led, may no longer act, and does not know of anybody who led since.
    Paused,
}

/// The Lease as it was when this process began to lead.
#[derive(Debug, Clone)]
struct Term {
    uid: String,
    transitions: i32,
    /// The latest version that this process has seen since.
    latest: Option<u64>,
}

impl Term {
    fn of(record: &Record) -> Self {
        Self { uid: record.uid.clone(), transitions: record.transitions, latest: number(record) }
    }

    /// Why a Lease that names this process is not the one that it held.
    fn lost(&self, record: &Record) -> Option<Decision> {
        if record.uid != self.uid {
            Some(row("a_leader_whose_lease_is_another_object_stops", Step::Stop(Loss::Replaced)))
        } else if number(record).zip(self.latest).is_some_and(|(now, before)| now < before) {
            Some(row("a_leader_whose_lease_is_in_an_earlier_version_stops", Step::Stop(Loss::Restored)))
        } else if record.transitions != self.transitions {
            Some(row("a_leader_whose_lease_changed_hands_in_between_stops", Step::Stop(Loss::ChangedHands)))
        } else {
            None
        }
    }
}

/// One process in the election.
#[derive(Debug, Clone)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    view: View,
    /// There was a Lease once.
    seen: bool,
    looked: Moment,
    not_before: Moment,
    lead: Lead,
    /// Of the time since it began to lead.
    term: Option<Term>,
    /// When the lead was last found to be over, whether or not it goes on since: what was under way was broken off.
    interrupted: Option<Moment>,
}

impl Candidate {
    /// A process that knows nothing yet. No other one has this identity, an earlier life of this one included.
    pub fn new(identity: String, timing: Timing) -> Self {
        let never = Moment::default();
        let view = View::Unknown;
        let lead = Lead::None;
        let (term, interrupted) = (None, None);
        Self {
            identity,
            timing,
            view,
            seen: false,
            looked: never,
            not_before: never,
            lead,
            term,
            interrupted,
        }
    }

    /// Until when this process leads; none if it does not.
    pub fn leads_until(&self) -> Option<Moment> {
        match self.lead {
            Lead::Held { until, .. } => Some(until),
            Lead::None | Lead::Paused => None,
        }
    }

    /// It led, and will go on as soon as a renewal succeeds, unless somebody else led meanwhile.
    pub fn is_paused(&self) -> bool {
        self.lead == Lead::Paused
    }

    /// It led, its time is over, and it does not lead again yet.
    pub fn is_interrupted(&self, now: Moment) -> bool {
        match self.lead {
            Lead::None => false,
            Lead::Held { until, .. } => now >= until,
            Lead::Paused => true,
        }
    }

    /// True if this process leads, and nothing of it may still be at work upstream: for as long after an
    /// interruption as a Lease lasts, what was broken off then may.
    pub fn may_give_up(&self, now: Moment) -> bool {
        let is_over = |at: Moment| now >= at + self.timing.lease;
        self.leads_until().is_some_and(|until| now < until) && self.interrupted.is_none_or(is_over)
    }

    /// Who holds the Lease, as far as is known.
    pub fn holder(&self) -> Option<&str> {
        match &self.view {
            View::Present { record, .. } => record.holder.as_deref(),
            View::Unknown | View::Absent { .. } => None,
        }
    }

    /// What to do next.
    pub fn decide(&self, now: Moment) -> Decision {
        match self.lead {
            Lead::None => self.stand_by(now),
            Lead::Held { until, .. } if now >= until => row("a_leader_past_its_deadline_pauses", Step::Pause),
            Lead::Held { renewed, .. } => self.lost().unwrap_or_else(|| self.lead(renewed, now)),
            Lead::Paused => self.lost().unwrap_or_else(|| self.pause_on(now)),
        }
    }

    /// Whoever led and sees that the Lease is not its own any more has lost it: somebody else may have led.
    fn lost(&self) -> Option<Decision> {
        match &self.view {
            View::Unknown => None,
            View::Absent { .. } => Some(row("a_leader_whose_lease_is_gone_stops", Step::Stop(Loss::Deleted))),
            View::Present { record, .. } => match record.holder.as_deref() {
                None => Some(row("a_leader_whose_lease_nobody_holds_stops", Step::Stop(Loss::Emptied))),
                Some(holder) if holder != self.identity => {
                    let loss = Loss::Taken(holder.to_owned());
                    Some(row("a_leader_whose_lease_another_holds_stops", Step::Stop(loss)))
                }
                Some(_) => self.term.as_ref().and_then(|term| term.lost(record)),
            },
        }
    }

    fn lead(&self, renewed: Moment, now: Moment) -> Decision {
        let due = match self.view {
            View::Unknown => self.not_before,
            View::Absent { .. } | View::Present { .. } => (renewed + self.timing.retry).max(self.not_before),
        };
        if now < due {
            return row("a_leader_rests_until_its_next_renewal", Step::Wait(due.since(now)));
        }
        match self.view {
            View::Unknown => row("a_leader_looks_at_a_lease_that_changed", Step::Look),
            View::Absent { .. } | View::Present { .. } => row("a_leader_renews", Step::Renew),
        }
    }

    /// The Lease is still this process's own as far as is known. A renewal replaces the version that is known:
    /// if it succeeds, nobody else was in the Lease since that version, so nobody else has led.
    fn pause_on(&self, now: Moment) -> Decision {
        if now < self.not_before {
            return row(
                "a_paused_leader_does_not_repeat_a_failure_at_once",
                Step::Wait(self.not_before.since(now)),
            );
        }
        match self.view {
            View::Unknown => row("a_paused_leader_looks_at_a_lease_that_changed", Step::Look),
            View::Absent { .. } | View::Present { .. } => {
                row("a_paused_leader_renews_what_is_still_its_own", Step::Renew)
            }
        }
    }

    fn stand_by(&self, now: Moment) -> Decision {
        if now < self.not_before {
            return row("a_failure_is_not_repeated_at_once", Step::Wait(self.not_before.since(now)));
        }
        match &self.view {
            View::Unknown => row("an_unknown_lease_is_looked_at", Step::Look),
            View::Absent { .. } if !self.seen => row("a_lease_that_is_not_there_is_made", Step::Create),
            View::Absent { since } => self
                .until(*since + self.timing.lease, now)
                .unwrap_or_else(|| row("a_lease_that_stays_away_is_made_anew", Step::Create)),
            View::Present { record, since } => self.facing(record, *since, now),
        }
    }

    fn facing(&self, record: &Record, since: Moment, now: Moment) -> Decision {
        match record.holder.as_deref() {
            None if record.duration == GIVEN_UP => {
                return row("a_lease_that_was_given_up_is_taken", Step::Take);
            }
            Some(holder) if holder == self.identity => {
                return row("a_lease_taken_without_an_answer_is_renewed", Step::Renew);
            }
            Some(_) | None => {}
        }
        let expires = since + self.lasts(record);
        if now >= expires && self.is_blind(now) {
            return row("a_lease_that_could_not_be_watched_is_looked_at", Step::Look);
        }
        self.until(expires, now)
            .unwrap_or_else(|| row("a_lease_that_did_not_change_for_its_duration_is_taken", Step::Take))
    }

    /// For so long a Lease of another is believed.
    fn lasts(&self, record: &Record) -> Duration {
        record.duration.min(MOST_DURATION).max(self.timing.lease)
    }

    /// How much of the time since then does not count, of a Lease that is found as it was after it could not be
    /// seen: the time after the next look was due. The Lease may not have changed because nobody could change it, so
    /// its holder has the first try now.
    fn left_out(&self, record: &Record, since: Moment, now: Moment) -> Duration {
        let unchanged = now.since(since);
        let unseen = now.since(self.looked).saturating_sub(self.timing.retry);
        let first_try = REQUEST + self.timing.retry;
        let counts = unchanged.saturating_sub(unseen).min(self.lasts(record).saturating_sub(first_try));
        unchanged.saturating_sub(counts)
    }

    /// For so long since the last look, nothing is known of the Lease.
    fn is_blind(&self, now: Moment) -> bool {
        now.since(self.looked) > self.timing.renew
    }

    /// Another one may still lead until then; none if nobody does.
    fn until(&self, expires: Moment, now: Moment) -> Option<Decision> {
        let look = self.looked + self.timing.retry;
        if now >= expires {
            None
        } else if now >= look {
            Some(row("the_lease_of_another_is_looked_at", Step::Look))
        } else {
            Some(row("the_lease_of_another_is_respected", Step::Wait(look.min(expires).since(now))))
        }
    }

    /// The Lease was read, none if there is no such object. `now` is after the answer.
    pub fn saw(&mut self, found: Option<Record>, now: Moment) {
        let blind = self.is_blind(now);
        self.seen |= found.is_some();
        if let (Some(term), Some(record)) = (&mut self.term, &found) {
            term.latest = term.latest.max(number(record));
        }
        self.view = match (found, &self.view) {
            (None, View::Absent { since }) => View::Absent { since: *since },
            (None, View::Present { .. } | View::Unknown) => View::Absent { since: now },
            (Some(record), View::Present { record: known, since }) if known.version == record.version => {
                let since = if blind { *since + self.left_out(&record, *since, now) } else { *since };
                View::Present { record, since }
            }
            (Some(record), View::Present { .. } | View::Absent { .. } | View::Unknown) => {
                View::Present { record, since: now }
            }
        };
        self.looked = now;
    }

    /// A write of this process succeeded that was sent at `started`. The lead counts from then: an answer that
    /// comes when that time is over gives none, and what was a pause stays one.
    pub fn wrote(&mut self, record: Record, started: Moment, now: Moment) {
        let until = started + self.timing.renew;
        if let Lead::Held { until: over, .. } = self.lead
            && now >= over
        {
            self.interrupted = Some(now);
        }
        if now < until {
            self.lead = Lead::Held { renewed: started, until };
            self.term.get_or_insert_with(|| Term::of(&record));
        }
        self.saw(Some(record), now);
    }

    /// A write met another version of the Lease than the one it was made from.
    pub fn conflicted(&mut self) {
        self.seen = true;
        self.view = View::Unknown;
    }

    /// A step that began at `started` failed, or was never answered: perhaps it happened all the same.
    pub fn failed(&mut self, started: Moment) {
        self.not_before = started + self.timing.retry;
    }

    /// This process may no longer act, and remembers that it led.
    pub fn pause(&mut self, now: Moment) {
        self.lead = Lead::Paused;
        self.interrupted = Some(now);
    }

    /// This process gives up the lead, or has lost it.
    pub fn stand_down(&mut self) {
        self.lead = Lead::None;
        self.term = None;
        self.interrupted = None;
    }

    /// Time that a step may take: `longest`, or what is left of the lead.
    pub fn patience(&self, longest: Duration, now: Moment) -> Duration {
        self.leads_until().map_or(longest, |until| until.since(now).min(longest))
    }
}

/// The version as a number, if it is one.
fn number(record: &Record) -> Option<u64> {
    record.version.parse().ok()
}

fn row(row: &'static str, step: Step) -> Decision {
    Decision { row, step }
}
