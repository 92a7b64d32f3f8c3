//! How much may be taken away at once: the ledger that stands between a decision to take a machine away and
//! the deed. One per process, asked by all reconciles one after the other, so that many that decide at the same
//! moment cannot overshoot together.
//!
//! Pure: the fleet and the time are parameters. Kept nowhere: after a restart it begins empty, which only ever
//! means doing less. What it knew of replacements under way stands in the statuses, as Proxies that do not
//! serve, and its caps begin without a burst.

mod bucket;
mod census;
mod queue;
mod share;
#[cfg(test)]
mod tests;
mod under_way;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Incarnation, InstanceId, ProviderName, ProxyUid};
use crate::provider::Replacement;
use crate::time::Moment;

use share::Share;

pub use census::Census;

/// What a machine is to be taken away for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It serves, and another one is wanted: its leases are going to run out.
    Exchange,
    /// Another one is wanted, and this one serves nobody, or nobody any more.
    Removal,
    /// It looks broken, or absent.
    Repair,
    /// It shows no tags of ours any more: it is only taken from clients, and nothing is made in its place.
    Disowned,
    /// It is one too many.
    Surplus,
    /// Somebody deleted its object.
    Deletion,
}

/// Asks to take a machine away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Whose machine.
    pub uid: ProxyUid,
    /// Of which provider.
    pub provider: ProviderName,
    /// Which machine.
    pub machine: InstanceId,
    /// Which one under this id.
    pub incarnation: Option<Incarnation>,
    /// What for.
    pub purpose: Purpose,
    /// What the providers config allows.
    pub replacement: Replacement,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Go on.
    Granted,
    /// Not now.
    Refused {
        /// Why not.
        why: Refusal,
        /// When to ask again.
        retry: Duration,
    },
}

/// Why a machine may not be taken away now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// As many as may be away are away; replacements make progress.
    Pending,
    /// Those that were replaced do not come back: the next one would not either.
    Paused,
    /// As many as may be away have been for long, whatever for.
    Standstill,
    /// As many as may go in a minute went.
    Capped,
    /// So many look broken at once that whoever looks is suspected.
    Suspect,
}

/// Limits. `Default` has the documented values; the two caps are flags of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// Machines of one provider that may be replaced or made anew in a minute, for whatever reason.
    pub replacements_per_minute: u32,
    /// Machines of one provider that may be deleted in a minute because their objects were.
    pub deletions_per_minute: u32,
    /// A replacement that is not ready this long after its machine was taken away stops further ones.
    pub ready_within: Duration,
    /// Between two asks for room.
    pub room_poll: Duration,
    /// Between two asks while the fleet is suspect.
    pub suspect_poll: Duration,
    /// Machines that looked broken within this time look broken at once; longer than the longest back-off, so
    /// that whoever is held by one is still counted when it asks again.
    pub at_once: Duration,
    /// A machine that serves nobody for less than this may serve again in a moment.
    pub blip: Duration,
    /// This long after the start the ledger suspects sooner.
    pub warm_up: Duration,
    /// Room that was given and not used for this long is free again; longer than a watch may lag.
    pub unused_after: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            replacements_per_minute: 60,
            deletions_per_minute: 900,
            ready_within: Duration::from_mins(10),
            room_poll: Duration::from_secs(10),
            suspect_poll: Duration::from_secs(15),
            at_once: Duration::from_mins(6),
            blip: Duration::from_mins(2),
            warm_up: Duration::from_mins(2),
            unused_after: Duration::from_secs(90),
        }
    }
}

/// The ledger of all providers.
#[derive(Debug, Clone)]
pub struct Ledger {
    caps: Caps,
    born: Moment,
    shares: BTreeMap<ProviderName, Share>,
}

impl Ledger {
    /// Empty; `now` is when this process began to act.
    pub fn new(caps: Caps, now: Moment) -> Self {
        Self { caps, born: now, shares: BTreeMap::new() }
    }

    /// May it go? `census` is that of the ask's provider, the same one as long as no other fleet was published.
    pub fn ask(&mut self, ask: &Ask, census: &Arc<Census>, now: Moment) -> Admission {
        let (caps, born) = (&self.caps, self.born);
        let share = self.shares.entry(ask.provider.clone()).or_insert_with(|| Share::new(caps, born));
        share.refresh(census, caps, now);
        share.ask(ask, caps, now)
    }

    /// True while so many machines of this provider look broken that nobody trusts the look.
    pub fn suspects(&self, provider: &ProviderName) -> bool {
        self.shares.get(provider).is_some_and(Share::is_suspect)
    }
}
