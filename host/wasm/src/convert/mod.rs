//! Between the contract's types and ours. Everything a guest returns is checked here, before anybody uses
//! it: lengths, ids, addresses, counts. A broken answer is a fault of the guest, never a panic of ours.

mod description;
mod failure;
mod instance;
mod page;
mod to_guest;

#[cfg(test)]
mod tests;

pub(crate) use description::{Description, Report, description, plan, report};
pub(crate) use failure::failure;
pub(crate) use instance::{Place, created, deletion, observation};
pub(crate) use page::{Page, page};
pub(crate) use to_guest::{Wanted, create_request, instance_ref, list_request};

use egress_proxies_core::provider::{Failure, HostFault, Reason};

use crate::call::mask::one_line;

/// Longest text of a failure.
const MOST_MESSAGE: usize = 1024;

/// The answer breaks the contract; says how.
pub(crate) fn bad_answer(what: impl Into<String>) -> Failure {
    Failure::new(Reason::Host(HostFault::BadAnswer), one_line(&what.into(), MOST_MESSAGE))
}
