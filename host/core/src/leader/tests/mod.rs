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
    let (uid, holder) = ("uid".to_owned(), holder.map(str::to_owned));
    Record { uid, version: version.to_owned(), transitions: 3, holder, duration: seconds(15) }
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

/// A candidate that found this at 100 s, and no change of it since, every 2 s until this moment.
fn having_watched(found: &Record, until: u64) -> Candidate {
    let mut candidate = having_seen(Some(found.clone()));
    for now in (102..=until).step_by(2) {
        candidate.saw(Some(found.clone()), at(now));
    }
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

/// The Lease of a leader after something was done to it.
fn mine(version: &str, edit: impl FnOnce(&mut Record)) -> Record {
    let mut record = record(version, Some(ME));
    edit(&mut record);
    record
}

/// A standby that finds at 103 s that the Lease of the leader is gone.
fn bereft() -> Candidate {
    let mut standby = having_seen(Some(record("1", Some("other"))));
    standby.saw(None, at(103));
    standby
}

/// A leader that paused at 110 s.
fn paused() -> Candidate {
    let mut leader = leader();
    assert_eq!(leader.decide(at(110)).step, Step::Pause);
    leader.pause(at(110));
    leader
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
    a_leader_past_its_deadline_pauses: leader(), 110 => Step::Pause,
    a_paused_leader_does_not_repeat_a_failure_at_once: failed(paused(), at(110)), 111 => Step::Wait(seconds(1)),
    a_paused_leader_looks_at_a_lease_that_changed: conflicted(paused()), 111 => Step::Look,
    a_paused_leader_renews_what_is_still_its_own: paused(), 110 => Step::Renew,
    a_leader_whose_lease_is_gone_stops: leader_having_seen(None), 103 => Step::Stop(Loss::Deleted),
    a_leader_whose_lease_nobody_holds_stops:
        leader_having_seen(Some(record("2", None))), 103 => Step::Stop(Loss::Emptied),
    a_leader_whose_lease_another_holds_stops:
        leader_having_seen(Some(record("2", Some("other")))), 103 => Step::Stop(Loss::Taken("other".to_owned())),
    a_leader_whose_lease_is_another_object_stops:
        leader_having_seen(Some(mine("2", |it| it.uid = "another".to_owned()))), 103 => Step::Stop(Loss::Replaced),
    a_leader_whose_lease_is_in_an_earlier_version_stops:
        leader_having_seen(Some(mine("0", |_| {}))), 103 => Step::Stop(Loss::Restored),
    a_leader_whose_lease_changed_hands_in_between_stops:
        leader_having_seen(Some(mine("2", |it| it.transitions = 4))), 103 => Step::Stop(Loss::ChangedHands),
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
        having_watched(&record("1", Some("other")), 114), 115 => Step::Take,
    a_lease_that_could_not_be_watched_is_looked_at:
        having_watched(&record("1", Some("other")), 104), 115 => Step::Look,
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
    let mut standby = having_watched(&record("1", Some("other")), 114);
    assert_eq!(standby.decide(at(115)).step, Step::Take);
    for now in [115, 122, 129] {
        standby.saw(Some(record("2", Some("other"))), at(now));
    }
    assert!(matches!(standby.decide(at(129)).step, Step::Wait(_)));
    assert_eq!(standby.decide(at(130)).step, Step::Take);
}

#[test]
fn time_in_which_a_standby_could_see_nothing_is_left_out_and_the_holder_has_the_first_try() {
    // It had been unchanged for so long at the last look before; then it is believed for so long after the next.
    for (before, left) in [(0, 13), (4, 9), (12, 7), (14, 7)] {
        let mut standby = having_watched(&record("1", Some("other")), 100 + before);
        standby.failed(at(102 + before));
        assert_eq!(standby.decide(at(1000)).row, "a_lease_that_could_not_be_watched_is_looked_at");
        for now in (1000..1000 + left).step_by(2) {
            standby.saw(Some(record("1", Some("other"))), at(now));
            assert_ne!(standby.decide(at(now)).step, Step::Take, "{before}: {now}");
        }
        assert_eq!(standby.decide(at(1000 + left - 1)).step, Step::Wait(seconds(1)), "{before}");
        assert_eq!(standby.decide(at(1000 + left)).step, Step::Take, "{before}: it has not used it");
    }
}

#[test]
fn a_standby_on_a_bad_line_takes_the_lease_of_a_dead_leader_in_the_end() {
    let mut standby = having_seen(Some(record("1", Some("other"))));
    let taken = (112..1000).step_by(12).find(|now| {
        standby.saw(Some(record("1", Some("other"))), at(*now));
        // Whatever it asks in between has no answer.
        (*now..now + 12).any(|now| standby.decide(at(now)).step == Step::Take)
    });
    assert_eq!(taken, Some(136), "2 s of each 12 s count, and those after the last look");
}

#[test]
fn the_wait_of_a_standby_ends_when_the_lease_does() {
    let standby = having_watched(&record("1", Some("other")), 114);
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
        let emptied = having_watched(&Record { duration: seconds(duration), ..record("2", None) }, 112);
        assert_eq!(emptied.decide(at(114)).step, Step::Look, "{duration}");
        assert_eq!(emptied.decide(at(115)).step, Step::Take, "{duration}");
    }
}

#[test]
fn a_duration_that_somebody_wrote_is_believed_within_bounds() {
    let decide = |duration, now| {
        let found = Record { duration, ..record("1", Some("other")) };
        having_watched(&found, now - 2).decide(at(now)).step
    };
    assert_eq!(decide(seconds(1), 114), Step::Look, "never shorter than our own");
    assert_eq!(decide(seconds(40), 139), Step::Look);
    assert_eq!(decide(seconds(40), 140), Step::Take);
    assert_eq!(decide(seconds(1_000_000), 160), Step::Take);
}

#[test]
fn a_lead_counts_from_the_start_of_the_renewal_and_not_from_its_answer() {
    assert_eq!(leader().leads_until(), Some(at(110)));
}

#[test]
fn a_renewal_that_is_answered_after_the_deadline_counts_from_its_start() {
    let mut leader = leader();
    leader.wrote(record("2", Some(ME)), at(108), at(111));
    assert_eq!((leader.leads_until(), leader.is_paused()), (Some(at(118)), false));
    // Answered when its own time is over as well: the process was stopped in between.
    leader.wrote(record("3", Some(ME)), at(113), at(123));
    assert_eq!(leader.decide(at(123)).step, Step::Pause);
    leader.pause(at(123));
    leader.wrote(record("4", Some(ME)), at(123), at(133));
    assert_eq!((leader.leads_until(), leader.decide(at(133)).step), (None, Step::Renew));
}

#[test]
fn a_leader_whose_lead_was_interrupted_gives_it_up_when_what_was_broken_off_has_had_its_time() {
    let mut steady = leader();
    assert!(steady.may_give_up(at(109)) && !steady.may_give_up(at(110)));
    // A renewal whose answer waited while the process was stopped: there was no pause that anybody noticed.
    steady.wrote(record("2", Some(ME)), at(108), at(112));
    let mut resumed = paused();
    assert!(!resumed.may_give_up(at(111)));
    resumed.wrote(record("2", Some(ME)), at(112), at(112));
    for (mut leader, until) in [(steady, 127), (resumed, 125)] {
        for began in (114..=until).step_by(2) {
            leader.wrote(record("3", Some(ME)), at(began), at(began));
        }
        assert!(!leader.may_give_up(at(until - 1)) && leader.may_give_up(at(until)));
    }
}

#[test]
fn a_take_that_is_answered_too_late_gives_no_lead_and_no_pause() {
    let mut standby = having_seen(Some(given_up()));
    standby.wrote(record("3", Some(ME)), at(100), at(110));
    assert_eq!((standby.leads_until(), standby.is_paused()), (None, false));
    assert_eq!(standby.decide(at(110)).step, Step::Renew, "it is ours all the same");
}

#[test]
fn a_paused_leader_leads_again_when_it_replaced_the_version_that_was_its_own() {
    for lost_answer in [false, true] {
        let mut leader = paused();
        if lost_answer {
            // A renewal before the pause did arrive.
            leader.conflicted();
            leader.saw(Some(record("2", Some(ME))), at(200));
        }
        assert_eq!(leader.leads_until(), None);
        assert_eq!(leader.patience(seconds(5), at(200)), seconds(5), "there is no lead left to be over");
        assert_eq!(leader.decide(at(200)).step, Step::Renew, "however long that took");
        leader.wrote(record("3", Some(ME)), at(200), at(201));
        assert_eq!((leader.leads_until(), leader.is_paused()), (Some(at(210)), false));
        assert_eq!(leader.decide(at(201)).step, Step::Wait(seconds(1)));
    }
}

#[test]
fn a_paused_leader_stops_when_somebody_else_may_have_led() {
    for (found, loss) in [
        (None, Loss::Deleted),
        (Some(record("2", None)), Loss::Emptied),
        (Some(given_up()), Loss::Emptied),
        (Some(record("2", Some("other"))), Loss::Taken("other".to_owned())),
        (Some(mine("2", |it| it.uid = "another".to_owned())), Loss::Replaced),
        (Some(mine("0", |_| {})), Loss::Restored),
        (Some(mine("2", |it| it.transitions = 4)), Loss::ChangedHands),
    ] {
        let mut leader = failed(paused(), at(110));
        leader.saw(found, at(111));
        assert_eq!(leader.decide(at(111)).step, Step::Stop(loss));
    }
}

#[test]
fn an_earlier_version_is_noticed_after_a_conflict_and_only_where_versions_are_numbers() {
    for (renewed, found, stops) in
        [("9", "10", false), ("10", "9", true), ("10", "a9", false), ("b", "a", false)]
    {
        let mut leader = leader();
        leader.wrote(record(renewed, Some(ME)), at(102), at(102));
        leader.conflicted();
        leader.saw(Some(record(found, Some(ME))), at(104));
        let step = leader.decide(at(104)).step;
        assert_eq!(step == Step::Stop(Loss::Restored), stops, "{renewed}, {found}: {step:?}");
    }
}

#[test]
fn a_standby_takes_a_lease_whose_versions_went_back_like_any_other() {
    let mut standby = having_watched(&record("5000", Some("other")), 104);
    standby.conflicted();
    for now in (106..=121).step_by(2) {
        standby.saw(Some(record("4000", Some("other"))), at(now));
    }
    assert_eq!(standby.decide(at(121)).step, Step::Take);
    standby.wrote(record("4001", Some(ME)), at(121), at(121));
    assert_eq!(standby.decide(at(123)).step, Step::Renew, "its lead began after that");
}

#[test]
fn a_paused_leader_asks_every_two_seconds_for_as_long_as_it_takes() {
    let mut leader = paused();
    for began in (110..1000).step_by(2) {
        assert_eq!(leader.decide(at(began)).step, Step::Renew);
        leader.failed(at(began));
        assert_eq!(leader.decide(at(began + 1)).step, Step::Wait(seconds(1)));
    }
}

#[test]
fn a_leader_that_gets_no_answers_tries_again_at_once_and_pauses_in_time() {
    let mut leader = leader();
    assert_eq!(leader.patience(seconds(5), at(102)), seconds(5));
    leader.failed(at(102));
    assert_eq!(leader.decide(at(107)).step, Step::Renew, "5 s without an answer are pause enough");
    assert_eq!(leader.patience(seconds(5), at(107)), seconds(3), "no longer than the lead");
    leader.failed(at(107));
    assert_eq!(leader.decide(at(110)).step, Step::Pause);
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
