//! What a decision asks for: exactly one effect, described in full, so that carrying it out needs no
//! further choice.

use std::time::Duration;

use crate::crd::ProxyStatus;
use crate::ids::InstanceId;
use crate::provider::{CreateRequest, InstanceRef, Tags};

use super::{Ask, StatusIntent};

/// The answer of [`super::decide()`].
#[derive(Debug, Clone)]
pub struct Decision {
    /// The one effect.
    pub action: Action,
    /// When to start the next pass; counts only with [`Action::Wait`].
    pub requeue: Requeue,
    /// What the status should say at this point: what [`Action::WriteStatus`] writes, and [`Action::Wait`] leaves there.
    pub status: StatusIntent,
    /// The row of the decision table in `docs/lifecycle.md`: for logs, metrics and tests.
    pub row: &'static str,
}

/// One effect. Each, except `Wait`, has an [`super::Outcome`] of the same name.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// End of the pass.
    Wait,
    /// Live GET of the object by namespace and name; another uid is `Gone`.
    LookAgain,
    /// One merge patch of the metadata, guarded by `resourceVersion`, with the whole finalizer list.
    PatchMetadata(MetadataPatch),
    /// JSON patch of the status subresource, guarded by `test` on uid and resourceVersion.
    WriteStatus(Box<ProxyStatus>),
    /// Ask the provider whether the request can work. `key` goes back unchanged with the outcome.
    ValidateCreate {
        /// Latch key.
        key: String,
        /// The request.
        request: Box<CreateRequest>,
    },
    /// Ask the provider for a machine.
    Get(InstanceRef),
    /// Ask the provider for all machines with these tags.
    ListOwned(Tags),
    /// Ask the ledger whether a machine may be taken away now. No I/O.
    AskLeave(Ask),
    /// Make the machine. `key` goes back unchanged with the outcome.
    Create {
        /// Latch key.
        key: String,
        /// The request.
        request: Box<CreateRequest>,
    },
    /// Delete a machine that was seen in this pass and is ours.
    Delete {
        /// The machine.
        target: InstanceRef,
        /// Constant words for log and event: `replaced`, `stopped`, `failed`, `surplus`, `too-slow`,
        /// `deleted`, `object-gone`.
        why: &'static str,
    },
    /// Merge patch that removes our finalizer only, guarded by `resourceVersion`.
    RemoveFinalizer(MetadataPatch),
    /// The same although a machine may still be there, because a person said so, or because what is there bears no
    /// tag of ours. The status says it already; it is told in a Warning Event and in the log, with the id, before it is
    /// done. Its outcome is that of `RemoveFinalizer`.
    Abandon {
        /// The patch.
        patch: MetadataPatch,
        /// The machine that is left behind, as far as it is known.
        machine: Option<InstanceId>,
    },
}

/// Target metadata, complete: no reading of the old list is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataPatch {
    /// Guard.
    pub resource_version: String,
    /// The whole list.
    pub finalizers: Vec<String>,
    /// `crawl.example.com/spec-hash`: Some(value) sets it, None leaves it alone.
    pub spec_hash: Option<String>,
    /// `crawl.example.com/planned-id`: Some(Some) sets, Some(None) removes, None leaves it alone.
    pub planned_id: Option<Option<InstanceId>>,
    /// `crawl.example.com/planned-scope`: Some(value) sets it, None leaves it alone.
    pub planned_scope: Option<String>,
}

/// When the next pass starts, watch events apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Only by an event.
    OnChange,
    /// After this long at the latest.
    After(Duration),
    /// Never: the object is gone and nothing of it is left; memory may be dropped.
    Done,
}
