//! The last look, right before a delete: what was true when the lists were read may no longer be.

use crate::ids::ProxyUid;
use crate::lifecycle::{Owner, is_made_by};
use crate::provider::{Instance, InstanceRef, InstanceState, Observation};

use super::{Finding, LivingProxy, Removal};

/// Why a machine that was to go stays after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Spared {
    /// It is not there any more.
    Gone,
    /// Somebody deletes it by now.
    Going,
    /// Its tags do not prove any more that it is ours, or it is another machine under the same id.
    NotOurs,
    /// Its Proxy exists after all, or names it now, or is being deleted.
    ProxyChanged,
}

impl Spared {
    /// Constant word for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "it is gone",
            Self::Going => "it is being deleted already",
            Self::NotOurs => "its tags or its incarnation are no longer those that were listed",
            Self::ProxyChanged => "its Proxy exists after all, or has changed",
        }
    }
}

/// Judges the machine as `get` shows it now; answers with whom to delete, bound to the incarnation seen.
///
/// # Errors
/// If it is to stay.
pub fn check_machine(removal: &Removal, cluster: &str, seen: &Observation) -> Result<InstanceRef, Spared> {
    let machine = match seen {
        Observation::Absent(_) => return Err(Spared::Gone),
        Observation::Found(machine) => machine.as_ref(),
    };
    if !is_same(removal, machine) || !is_ours(removal, cluster, machine) {
        return Err(Spared::NotOurs);
    }
    if machine.state == InstanceState::Deleting && !removal.again {
        return Err(Spared::Going);
    }
    let incarnation = machine.incarnation.clone().or_else(|| removal.target.incarnation.clone());
    Ok(InstanceRef { incarnation, ..removal.target.clone() })
}

fn is_same(removal: &Removal, machine: &Instance) -> bool {
    let incarnation = match (&removal.target.incarnation, &machine.incarnation) {
        (Some(listed), Some(seen)) => listed == seen,
        (Some(_) | None, None) | (None, Some(_)) => true,
    };
    incarnation && machine.id == removal.target.id
}

fn is_ours(removal: &Removal, cluster: &str, machine: &Instance) -> bool {
    Owner::new(&removal.uid, cluster).owns(machine) && is_made_by(machine, cluster, &removal.machine.provider)
}

/// Judges the Proxy with the machine's uid as the API server shows it now. `None`: there certainly is none.
///
/// # Errors
/// If the machine is to stay.
pub fn check_proxy(removal: &Removal, live: Option<(&ProxyUid, &LivingProxy)>) -> Result<(), Spared> {
    // Another Proxy under the same name is another Proxy.
    let live = live.filter(|(uid, _)| **uid == removal.uid).map(|(_, proxy)| proxy);
    let goes = match removal.finding {
        Finding::Orphan => live.is_none(),
        Finding::Surplus => {
            live.is_some_and(|proxy| proxy.disowns(&removal.machine.provider, &removal.machine.id))
        }
    };
    if goes { Ok(()) } else { Err(Spared::ProxyChanged) }
}
