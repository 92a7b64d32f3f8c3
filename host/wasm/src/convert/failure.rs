//! A guest's failure in our words: bounded, without secrets, with a retry time that makes sense.

use std::time::Duration;

use egress_proxies_core::provider::{Failure, Reason};

use super::MOST_MESSAGE;
use crate::bindings::egress_proxies::provider::model;
use crate::call::Op;
use crate::call::mask::Mask;

const MOST_WORD: usize = 128;

/// Between one second and one hour.
pub(super) fn clamp(milliseconds: u32) -> Duration {
    Duration::from_millis(milliseconds.into()).clamp(Duration::from_secs(1), Duration::from_hours(1))
}

pub(crate) fn failure(given: model::Failure, op: Op, mask: &Mask) -> Failure {
    let hide = |text: &str, most: usize| mask.line(text, most);
    let reason = match given.reason {
        // Listing looks at a stale cursor before it comes here; elsewhere it has no meaning.
        model::Reason::Transient | model::Reason::StaleCursor => Reason::Transient,
        model::Reason::Throttled => Reason::Throttled,
        model::Reason::Quota => Reason::Quota,
        model::Reason::Capacity => Reason::Capacity,
        model::Reason::Denied => Reason::Denied,
        model::Reason::Missing => Reason::Missing,
        model::Reason::Invalid(pointer) => Reason::Invalid(hide(&pointer, MOST_WORD)),
        model::Reason::NameTaken if op == Op::Create => Reason::NameTaken,
        model::Reason::NameTaken => Reason::Other("name-taken".to_owned()),
        model::Reason::Busy => Reason::Busy,
        model::Reason::OutOfScope => Reason::OutOfScope,
        model::Reason::Permanent => Reason::Permanent,
        model::Reason::Unsupported => Reason::Unsupported,
        model::Reason::Other(word) => Reason::Other(hide(&word, MOST_WORD)),
    };
    let message = hide(&given.message, MOST_MESSAGE);
    Failure {
        reason,
        message: if message.is_empty() { "the provider gave no message".to_owned() } else { message },
        retry_after: given.retry_after_ms.map(clamp),
        upstream_status: given.upstream_status,
        upstream_code: given.upstream_code.map(|code| hide(&code, MOST_WORD)).filter(|code| !code.is_empty()),
    }
}
