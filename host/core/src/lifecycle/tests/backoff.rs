use std::time::Duration;

use proptest::prelude::*;

use crate::lifecycle::Policy;
use crate::lifecycle::backoff::{exponential, wait_after};
use crate::lifecycle::memory::Call;
use crate::provider::{Failure, HostFault, Reason};

fn waits(call: Call, reason: &Reason) -> [Option<Duration>; 3] {
    [1, 2, 30].map(|failures| {
        wait_after(call, &Failure::new(reason.clone(), "no"), failures, 3, &Policy::default())
    })
}

/// Seconds without the spread: each wait is at most this and at least four fifths of it.
fn about(got: Option<Duration>, seconds: u64) -> bool {
    let full = Duration::from_secs(seconds);
    got.is_some_and(|got| got <= full && got >= full * 4 / 5)
}

#[test]
fn each_row_of_the_back_off_table_holds() {
    let fault = Reason::Host;
    for (reason, [first, second, most]) in [
        (Reason::Transient, [2, 4, 300]),
        (Reason::Other("x".to_owned()), [2, 4, 300]),
        (fault(HostFault::Trap), [2, 4, 300]),
        (fault(HostFault::Deadline), [2, 4, 300]),
        (fault(HostFault::Cpu), [2, 4, 300]),
        (fault(HostFault::Memory), [2, 4, 300]),
        (fault(HostFault::BadAnswer), [2, 4, 300]),
        (Reason::Throttled, [10, 20, 300]),
        (Reason::Quota, [300, 300, 300]),
        (Reason::Capacity, [300, 300, 300]),
        (Reason::Denied, [30, 60, 600]),
        (Reason::Missing, [30, 60, 600]),
        (Reason::NameTaken, [30, 60, 600]),
        (Reason::Busy, [5, 5, 5]),
        (fault(HostFault::NoPermit), [2, 4, 60]),
        (Reason::OutOfScope, [600, 600, 600]),
    ] {
        let got = waits(Call::Create, &reason);
        let holds = about(got[0], first) && about(got[1], second) && about(got[2], most);
        assert!(holds, "{reason:?}: {got:?}");
    }
}

#[test]
fn only_validate_and_create_latch() {
    for reason in [Reason::Permanent, Reason::Unsupported, Reason::Invalid("/port".to_owned())] {
        for call in [Call::Validate, Call::Create] {
            assert_eq!(waits(call, &reason), [None, None, None], "{call:?}");
        }
        for call in [Call::Get, Call::Delete, Call::List] {
            let got = waits(call, &reason);
            assert!(about(got[0], 30) && about(got[2], 600), "{call:?}: {got:?}");
        }
    }
}

#[test]
fn a_retry_after_lengthens_a_wait_and_never_shortens_it() {
    let asked = |seconds| Failure {
        retry_after: Some(Duration::from_secs(seconds)),
        ..Failure::new(Reason::Throttled, "slow down")
    };
    let wait = |failure: &Failure| wait_after(Call::Get, failure, 1, 3, &Policy::default()).unwrap();
    assert_eq!(wait(&asked(120)), Duration::from_mins(2));
    assert!(wait(&asked(1)) >= Duration::from_secs(8));
}

proptest! {
    #[test]
    fn waits_stay_in_their_bounds_and_are_the_same_for_the_same_seed(failures in 0..u32::MAX, seed in any::<u64>()) {
        let (first, most) = (Duration::from_secs(2), Duration::from_mins(5));
        let wait = exponential(first, most, failures, seed);
        prop_assert!(wait >= first * 4 / 5 && wait <= most);
        prop_assert_eq!(wait, exponential(first, most, failures, seed));
    }
}

#[test]
fn a_fleet_does_not_come_back_at_once() {
    let waits: std::collections::BTreeSet<Duration> =
        (0..100).map(|seed| exponential(Duration::from_secs(2), Duration::from_mins(5), 5, seed)).collect();
    assert!(waits.len() > 50, "{} different waits", waits.len());
}
