//! One test per row of the table in `docs/leader.md`, of the same name; and many elections by chance.

mod chance;

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Candidate, GIVEN_UP, Loss, Record, Step, Timing};
use crate::time::Moment;

const ME: &str = "me";

fn at(seconds: u64) -> Moment {
    Moment::after_start(Duration::from_secs(seconds))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn record(version: &str, holder: Option<&str>) -> Record {
    Record { version: version.to_owned(), holder: holder.map(str::to_owned), duration: seconds(15) }
}

fn given_up() -> Record {
    Record { duration: GIVEN_UP, ..record("2", None) }
}

fn candidate() -> Candidate {
    Candidate::new(ME.to_owned(), Timing::default())
}

/// A candidate that found this at 100 s.
fn having_seen(found: Option<Record>) -> Candidate {
    let mut candidate = candidate();
    candidate.saw(found, at(100));
    candidate
}

/// A leader whose last renewal was sent at 100 s and answered at 101 s.
fn leader() -> Candidate {
    let mut candidate = candidate();
    candidate.wrote(record("1", Some(ME)), at(100), at(101));
    candidate
}

/// A leader that found this at 103 s.
fn leader_having_seen(found: Option<Record>) -> Candidate {
    let mut leader = leader();
    leader.saw(found, at(103));
    leader
}

/// A standby that finds at 103 s that the Lease of the leader is gone.
fn bereft() -> Candidate {
    let mut standby = having_seen(Some(record("1", Some("other"))));
    standby.saw(None, at(103));
    standby
}

fn conflicted(mut leader: Candidate) -> Candidate {
    leader.conflicted();
    leader
}

fn failed(mut candidate: Candidate, started: Moment) -> Candidate {
    candidate.failed(started);
    candidate
}

/// Makes a test of each row: who, when, and the step.
macro_rules! rows {
    ($($row:ident: $who:expr, $now:expr => $step:expr,)*) => {
        $(#[test]
        fn $row() {
            let decision = $who.decide(at($now));
            assert_eq!((decision.row, decision.step), (stringify!($row), $step));
        })*

        const ROWS: &[&str] = &[$(stringify!($row)),*];
    };
}

rows! {
    a_leader_past_its_deadline_stops: leader(), 110 => Step::Stop(Loss::Deadline),
    a_leader_whose_lease_is_gone_stops: leader_having_seen(None), 103 => Step::Stop(Loss::Deleted),
    a_leader_whose_lease_nobody_holds_stops:
        leader_having_seen(Some(record("2", None))), 103 => Step::Stop(Loss::Emptied),
    a_leader_whose_lease_another_holds_stops:
        leader_having_seen(Some(record("2", Some("other")))), 103 => Step::Stop(Loss::Taken("other".to_owned())),
    a_leader_rests_until_its_next_renewal: leader(), 101 => Step::Wait(seconds(1)),
    a_leader_looks_at_a_lease_that_changed: conflicted(leader()), 102 => Step::Look,
    a_leader_renews: leader(), 102 => Step::Renew,
    a_failure_is_not_repeated_at_once: failed(having_seen(None), at(100)), 101 => Step::Wait(seconds(1)),
    an_unknown_lease_is_looked_at: candidate(), 0 => Step::Look,
    a_lease_that_is_not_there_is_made: having_seen(None), 100 => Step::Create,
    a_lease_that_was_given_up_is_taken: having_seen(Some(given_up())), 100 => Step::Take,
    a_lease_that_stays_away_is_made_anew: bereft(), 118 => Step::Create,
    a_lease_taken_without_an_answer_is_renewed: having_seen(Some(record("1", Some(ME)))), 100 => Step::Renew,
    a_lease_that_did_not_change_for_its_duration_is_taken:
        having_seen(Some(record("1", Some("other")))), 115 => Step::Take,
    the_lease_of_another_is_looked_at: having_seen(Some(record("1", Some("other")))), 102 => Step::Look,
    the_lease_of_another_is_respected:
        having_seen(Some(record("1", Some("other")))), 101 => Step::Wait(seconds(1)),
}

#[test]
fn the_document_has_exactly_the_rows_that_are_tested_and_the_code_has_no_other() {
    let document = include_str!("../../../../../docs/leader.md");
    let documented: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .collect();
    let tested: BTreeSet<&str> = ROWS.iter().copied().collect();
    assert_eq!(documented, tested);
    let is_row = |text: &&str| {
        text.matches('_').count() > 1 && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let code: BTreeSet<&str> = include_str!("../candidate.rs").split('"').filter(is_row).collect();
    assert_eq!(code, tested);
}

#[test]
fn a_change_of_the_lease_begins_its_duration_anew_and_a_look_alone_does_not() {
    let mut standby = having_seen(Some(record("1", Some("other"))));
    standby.saw(Some(record("1", Some("other"))), at(114));
    assert_eq!(standby.decide(at(115)).step, Step::Take);
    standby.saw(Some(record("2", Some("other"))), at(115));
    assert_eq!(standby.decide(at(129)).step, Step::Look);
    assert_eq!(standby.decide(at(130)).step, Step::Take);
}

#[test]
fn the_wait_of_a_standby_ends_when_the_lease_does() {
    let mut standby = having_seen(Some(record("1", Some("other"))));
    standby.saw(Some(record("1", Some("other"))), at(114));
    let Step::Wait(wait) = standby.decide(at(114)).step else { panic!("it does not wait") };
    assert_eq!(wait, seconds(1));
}

#[test]
fn a_lease_that_somebody_deleted_or_emptied_is_left_alone_for_as_long_as_its_holder_may_not_know() {
    for now in [103, 117] {
        assert!(!matches!(bereft().decide(at(now)).step, Step::Create), "gone, {now}");
    }
    // The last one is what a Lease without a spec says.
    for duration in [15, 2, 0] {
        let emptied = having_seen(Some(Record { duration: seconds(duration), ..record("2", None) }));
        assert_eq!(emptied.decide(at(114)).step, Step::Look, "{duration}");
        assert_eq!(emptied.decide(at(115)).step, Step::Take, "{duration}");
    }
}

#[test]
fn a_duration_that_somebody_wrote_is_believed_within_bounds() {
    let with = |duration| having_seen(Some(Record { duration, ..record("1", Some("other")) }));
    assert_eq!(with(seconds(1)).decide(at(114)).step, Step::Look, "never shorter than our own");
    assert_eq!(with(seconds(40)).decide(at(139)).step, Step::Look);
    assert_eq!(with(seconds(40)).decide(at(140)).step, Step::Take);
    assert_eq!(with(seconds(1_000_000)).decide(at(160)).step, Step::Take);
}

#[test]
fn a_lead_counts_from_the_start_of_the_renewal_and_not_from_its_answer() {
    assert_eq!(leader().leads_until(), Some(at(110)));
}

#[test]
fn a_renewal_that_is_answered_after_the_deadline_does_not_bring_the_lead_back() {
    let mut leader = leader();
    leader.wrote(record("2", Some(ME)), at(108), at(111));
    assert_eq!(leader.decide(at(111)).step, Step::Stop(Loss::Deadline));
}

#[test]
fn a_leader_that_gets_no_answers_tries_again_at_once_and_stops_in_time() {
    let mut leader = leader();
    assert_eq!(leader.patience(seconds(5), at(102)), seconds(5));
    leader.failed(at(102));
    assert_eq!(leader.decide(at(107)).step, Step::Renew, "5 s without an answer are pause enough");
    assert_eq!(leader.patience(seconds(5), at(107)), seconds(3), "no longer than the lead");
    leader.failed(at(107));
    assert_eq!(leader.decide(at(110)).step, Step::Stop(Loss::Deadline));
}

#[test]
fn a_renewal_whose_answer_was_lost_is_found_and_the_lead_goes_on() {
    let mut leader = leader();
    leader.failed(at(102));
    assert_eq!(leader.decide(at(104)).step, Step::Renew);
    leader.conflicted();
    assert_eq!(leader.decide(at(104)).step, Step::Look);
    leader.saw(Some(record("2", Some(ME))), at(104));
    assert_eq!(leader.decide(at(104)).step, Step::Renew);
    leader.wrote(record("3", Some(ME)), at(104), at(104));
    assert_eq!(leader.leads_until(), Some(at(114)));
}
