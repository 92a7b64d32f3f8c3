//! How long to wait after a failure. Pure arithmetic; `docs/lifecycle.md` has the table.

use std::time::Duration;

use crate::provider::{Failure, FailureClass};

use super::Policy;
use super::memory::Call;

/// `first * 2^(failures - 1)`, at most `most`, minus up to a fifth by `seed` so that a fleet spreads out.
pub(super) fn exponential(first: Duration, most: Duration, failures: u32, seed: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    let full = first.saturating_mul(1 << doublings).min(most);
    spread(full, seed, failures)
}

/// Takes off up to a fifth, the same for the same seed and count.
pub(super) fn spread(full: Duration, seed: u64, salt: u32) -> Duration {
    let mut mixed = seed ^ u64::from(salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^= mixed >> 30;
    mixed = mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^= mixed >> 27;
    let permille = u32::try_from(mixed % 201).unwrap_or(0);
    full.saturating_sub(full.saturating_mul(permille) / 1000)
}

/// The wait after this failure of this call, the `failures`-th in a row (of those without a permit if it got none). None: the failure latches.
pub(super) fn wait_after(
    call: Call,
    failure: &Failure,
    failures: u32,
    seed: u64,
    policy: &Policy,
) -> Option<Duration> {
    let asked = failure.retry_after.unwrap_or_default();
    let slow = || exponential(policy.backoff_first * 15, policy.slow_poll, failures, seed);
    let wait = match failure.class() {
        FailureClass::Retry => exponential(policy.backoff_first, policy.backoff_most, failures, seed),
        FailureClass::Throttle => exponential(policy.backoff_first * 5, policy.backoff_most, failures, seed),
        FailureClass::Quota => spread(policy.quota_poll, seed, failures),
        FailureClass::Slow | FailureClass::NameConflict => slow(),
        FailureClass::Latch => match call {
            Call::Validate | Call::Create => return None,
            Call::Get | Call::Delete | Call::List => slow(),
        },
        FailureClass::Soon => {
            if failure.got_no_permit() {
                exponential(policy.backoff_first, policy.permit_most, failures, seed)
            } else {
                spread(policy.provisioning_poll, seed, failures)
            }
        }
        FailureClass::HandsOff => policy.slow_poll,
    };
    Some(wait.max(asked))
}
