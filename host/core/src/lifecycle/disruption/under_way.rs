//! What the ledger knows of one machine that goes, or went, so that another one comes.

use crate::ids::{Incarnation, InstanceId};
use crate::time::Moment;

use super::Ask;

/// A machine: id and identity.
pub(super) type Target = (InstanceId, Option<Incarnation>);

/// A machine that goes, or went, so that another one comes.
#[derive(Debug, Clone)]
pub(super) struct UnderWay {
    pub(super) target: Target,
    pub(super) cause: Cause,
    /// When a machine that served went for another one: until its Proxy serves again the change that asked for
    /// it has not proven itself, whatever becomes of the machines after it.
    pub(super) tried: Option<Moment>,
    /// The machine itself may go: a place was given.
    pub(super) may_go: bool,
    /// Since when it should be coming back.
    pub(super) since: Moment,
    /// The fleet has shown what it was admitted on. A fleet may be older than the ask: of one that became Ready just
    /// now, it first shows that it was away before, and then that it serves, which is not that it came back.
    pub(super) shown: bool,
    /// It was seen not to serve since it was admitted.
    pub(super) was_down: bool,
}

/// What began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It served, and had room.
    Exchange,
    /// It looked broken, or of no use: a look may be wrong.
    Look,
}

pub(super) fn target_of(ask: &Ask) -> Target {
    (ask.machine.clone(), ask.incarnation.clone())
}
