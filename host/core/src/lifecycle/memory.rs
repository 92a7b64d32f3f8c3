//! What this process remembers of one Proxy between passes. Lost with the process, so nothing may depend
//! on it for safety, except in the direction of doing less.
//!
//! Changed only by [`super::absorb`], [`super::sending`] and [`super::seen_in_list`]; kept by the loop per uid and pruned when the object is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::facts::Machine;
use crate::ids::{Incarnation, InstanceId};
use crate::provider::{Failure, Instance};
use crate::time::Moment;

/// Memory of one uid.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Random, given at birth: spreads retries and makes attempt keys.
    pub seed: u64,
    /// No provider call before this.
    pub not_before: Option<NotBefore>,
    /// Failures of provider calls in a row.
    pub failures: u32,
    /// Calls in a row that got no permit, and of which kind the last one was, until one of that kind gets one.
    pub turned_away: Option<(Call, u32)>,
    /// The last provider call that failed, until one of its kind succeeds.
    pub trouble: Option<Trouble>,
    /// Calls to the API server that failed in a row.
    pub api_failures: u32,
    /// This process put the finalizer on an object that no machine was ever made for, or has since seen
    /// twice, far enough apart, that there is none.
    pub first_touch: bool,
    /// A create was sent whose answer never came, or does not tell whether it landed.
    pub unanswered_create: bool,
    /// A create was sent and no outcome of it was taken in.
    pub create_in_flight: bool,
    /// Creates that were answered: each further one gets an attempt key of its own.
    pub attempts: u32,
    /// When the machine and the complete owned list were first seen to be absent, with nothing found and
    /// nothing sent since.
    pub absent_since: Option<Moment>,
    /// A machine that this process made or adopted and that status does not name yet.
    pub unrecorded: Option<Unrecorded>,
    /// Deletes that were sent, or seen under way, by id.
    pub deletes: BTreeMap<InstanceId, DeleteSent>,
    /// Machines that vanished without our doing, in a row.
    pub vanished: u32,
    /// The last answer about the recorded machine.
    pub last_seen: Option<LastSeen>,
    /// The recorded machine whose absence was counted: while its status goes on naming it, it counts once.
    pub counted_absent: Option<InstanceId>,
    /// The drain that the status shows.
    pub drain: Option<DrainSeen>,
    /// The latch key that validate-create allowed last, and when.
    pub checked: Option<(String, Moment)>,
}

impl Memory {
    /// A new memory; `seed` is random.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// True if every create for the uid was sent by this process and answered.
    pub fn saw_all_creates_answered(&self) -> bool {
        self.first_touch && !self.unanswered_create && !self.create_in_flight
    }

    /// The machine that was last seen to run, for probes that start before the status says so.
    pub fn running_machine(&self) -> Option<Machine> {
        let seen = self.last_seen.as_ref()?;
        seen.running_since?;
        let endpoint = seen.instance.endpoints.first()?;
        Some(Machine {
            incarnation: incarnation_of(&seen.instance)?,
            address: endpoint.address.clone(),
            port: endpoint.port,
        })
    }
}

/// Identity of a machine: the upstream's, or its id where the upstream has none.
pub(super) fn incarnation_of(instance: &Instance) -> Option<Incarnation> {
    instance.incarnation.clone().or_else(|| Incarnation::parse(instance.id.as_str()).ok())
}

/// A back-off. Watch events do not shorten it; an edit or the deletion of the object ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotBefore {
    /// The end of the wait.
    pub at: Moment,
    /// It holds for this generation only.
    pub generation: i64,
    /// And only while the object is, or is not, being deleted.
    pub deleting: bool,
}

/// Kinds of provider calls, as far as their failures are treated apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// validate-create.
    Validate,
    /// create.
    Create,
    /// get.
    Get,
    /// delete.
    Delete,
    /// list-by-tag.
    List,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which call.
    pub call: Call,
    /// How it failed.
    pub failure: Failure,
}

/// A machine that exists and is not in status yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecorded {
    /// Its id.
    pub id: InstanceId,
    /// Its identity.
    pub incarnation: Option<Incarnation>,
    /// The scope it was made in: elsewhere its absence proves nothing.
    pub scope: Option<String>,
}

/// A delete under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteSent {
    /// When it was sent, or first seen.
    pub at: Moment,
    /// Which machine.
    pub incarnation: Option<Incarnation>,
    /// When the provider wants to be asked again.
    pub ask_after: Option<Duration>,
    /// How it came to be.
    pub cause: DeleteCause,
}

/// How a delete came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteCause {
    /// This process wanted the machine away.
    Wanted,
    /// This process sent it because the machine was of no use: it counts like one that vanished.
    Useless,
    /// Nobody here sent it: the machine was seen being deleted. It counts like one that vanished, and the delete
    /// ends with that sight.
    Sighted,
}

/// A machine whose leases run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSeen {
    /// Which machine.
    pub incarnation: String,
    /// When this process saw it first.
    pub at: Moment,
    /// How long it had drained before.
    pub before: Duration,
}

/// The last answer about a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct LastSeen {
    /// What it looked like; its problem is that of the whole time before it ran, and of its tags those that decisions
    /// need are there.
    pub instance: Instance,
    /// When that was. The answer may be that of a list of the fleet, see [`super::seen_in_list`].
    pub at: Moment,
    /// When the provider last answered, or failed to answer, about this machine alone.
    pub asked: Moment,
    /// Since when it is being made: first seen by this process in a state before running.
    pub making_since: Option<Moment>,
    /// Since when it runs with an address.
    pub running_since: Option<Moment>,
    /// It ran at some time.
    pub ever_ran: bool,
}
