//! Decisions about a Proxy and its machine. Pure: the operator's lifecycle loop gathers an [`Observed`],
//! asks [`decide()`], carries out the one [`Action`], feeds the [`Outcome`] back with [`absorb`], and asks
//! again until the answer is [`Action::Wait`]. `docs/lifecycle.md` has the tables.
//!
//! The loop, in full:
//!
//! ```text
//! observed = Observed::begin(object from the store, surroundings, memory of the uid)
//! loop {
//!     observed.surroundings = look up provider, Secrets and verdict anew (no I/O)
//!     decision = decide(&observed, &policy, now)
//!     sending(&mut observed, &decision.action); keep observed.memory
//!     outcome = carry out decision.action          // Wait: keep observed.memory, requeue, leave the loop
//!     absorb(&mut observed, outcome, &policy, now)
//! }
//! ```
//!
//! Never does anything itself, and never decides from what it does not know: an unknown is an own case of
//! an enum, not an absence.

mod action;
mod backoff;
mod disruption;
mod facts;
mod hash;
mod memory;
mod observed;
mod outcome;
mod pass;
mod policy;
mod tags;
mod turns;

mod decide;
mod status;
#[cfg(test)]
mod tests;

pub use action::{Action, Decision, MetadataPatch, Requeue};
pub use decide::decide;
pub use disruption::{Admission, Ask, Caps, Census, Ledger, Purpose, Refusal};
pub use facts::{FactsInput, facts_of, probe_url};
pub use hash::{SpecHash, latch_key, spec_hash};
pub use memory::{
    Call, DeleteCause, DeleteSent, DrainSeen, LastSeen, Memory, NotBefore, Trouble, Unrecorded,
};
pub use observed::{CloudInitView, ObjectFacts, Observed, ProviderFacts, ProviderView, Surroundings};
pub use outcome::{Outcome, Written, absorb, is_surveyed, seen_in_list, sending};
pub use pass::{ApiState, ListSeen, MachineSeen, Pass, Presence};
pub use policy::Policy;
pub use status::{
    HealthView, NOT_PROBED_YET, ProvisionedReason, RecordedMachine, Stage, StatusIntent, needs_write, render,
};
pub use tags::{
    Owner, cluster_tags, has_owner_tags, is_in_namespace, is_made_by, key_of, machine_name_of, machine_tags,
    owner_tags_of, provider_tags, spec_tag_of, uid_of,
};
pub use turns::{Surveyed, Turns};
