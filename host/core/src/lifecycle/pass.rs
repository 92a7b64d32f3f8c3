//! What one pass has learned by its effects. Starts empty; changed only by [`super::absorb`].

use std::collections::BTreeMap;

use crate::crd::ProxyStatus;
use crate::ids::InstanceId;
use crate::provider::{CreatePlan, Failure, Instance};
use crate::time::Moment;

use super::{Admission, Ask};

/// Facts of this pass.
#[derive(Debug, Clone, Default)]
pub struct Pass {
    /// What the latest look or write said of the object's existence.
    pub presence: Presence,
    /// When the object was last read or written live in this pass; effects need a fresh look.
    pub looked_at: Option<Moment>,
    /// How the latest call to the API server went.
    pub api: ApiState,
    /// The version of the object to which a guarded write was refused.
    pub refused_at: Option<String>,
    /// Our finalizer was put there by this pass, so no create can have come before it. False again as soon as
    /// a create of this pass may have landed without an answer.
    pub added_finalizer: bool,
    /// The status that this pass wrote last.
    pub written: Option<ProxyStatus>,
    /// Answer of validate-create, and the latch key that it was asked for.
    pub plan: Option<(String, Result<CreatePlan, Failure>)>,
    /// Machines asked for or made in this pass, by id. Missing = not asked.
    pub machines: BTreeMap<InstanceId, MachineSeen>,
    /// The owned listing. None = not asked.
    pub list: Option<ListSeen>,
    /// Answers of the ledger.
    pub answers: Vec<(Ask, Admission)>,
    /// Effects of this pass so far.
    pub steps: u32,
}

/// How the latest call to the API server went, as far as it matters for the next effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApiState {
    /// Nothing stands in the way.
    #[default]
    Fine,
    /// A guarded write met a newer object: look before anything else.
    Conflict,
    /// It failed, with an unknown effect: end the pass, try again after a back-off.
    Trouble,
    /// It removed our finalizer: done.
    FinalizerRemoved,
}

/// What is known of the object's existence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Presence {
    /// As the store has it.
    #[default]
    FromStore,
    /// Seen live.
    Live,
    /// The API server has no object of this uid.
    Gone,
}

/// What `get`, or the create of this pass, said of a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineSeen {
    /// It exists.
    Found(Box<Instance>),
    /// It certainly does not; why, if known.
    Absent(Option<Failure>),
    /// Could not tell.
    CouldNotTell(Failure),
}

/// What the owned listing said.
#[derive(Debug, Clone, PartialEq)]
pub enum ListSeen {
    /// All machines with our tags.
    Complete(Vec<Instance>),
    /// Some; what was unreachable.
    Partial(Vec<Instance>, Vec<String>),
    /// Nothing could be listed.
    Failed(Failure),
}
