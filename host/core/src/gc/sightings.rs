//! What is remembered from pass to pass of machines that look abandoned: one sighting proves nothing.
//!
//! Only memory: a new leader starts with none, so it deletes nothing before its second pass.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{Incarnation, InstanceId, ProviderName};
use crate::provider::Instance;
use crate::time::Now;

use super::Finding;

/// One machine: made anew under the same id it is another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineKey {
    /// Whose machine.
    pub provider: ProviderName,
    /// Its id.
    pub id: InstanceId,
    /// Its identity upstream.
    pub incarnation: Option<Incarnation>,
}

impl MachineKey {
    /// The key of a listed machine.
    pub fn of(provider: &ProviderName, machine: &Instance) -> Self {
        Self { provider: provider.clone(), id: machine.id.clone(), incarnation: machine.incarnation.clone() }
    }
}

/// A machine that looks abandoned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// As what.
    pub finding: Finding,
    /// When it did so for the first time.
    pub first: Now,
    /// In how many passes it was seen as this.
    pub passes: u32,
    /// In how many passes in a row, up to this one, its delete was under way.
    pub going: u32,
    /// How often its delete was begun.
    pub tries: u32,
}

impl Sighting {
    /// Seen once more, or for the first time. Seen as something else it counts anew.
    pub(super) fn again(before: Option<&Self>, finding: Finding, going: bool, now: Now) -> Self {
        let times = before.map_or(0, |before| before.going).saturating_add(1);
        let going = if going { times } else { 0 };
        match before {
            None => Self { finding, first: now, passes: 1, going, tries: 0 },
            Some(before) if before.finding == finding => {
                Self { passes: before.passes.saturating_add(1), going, ..before.clone() }
            }
            Some(before) => Self { finding, passes: 1, going, ..before.clone() },
        }
    }

    /// True if a delete was under way in this pass and in the one before: it hangs.
    pub(super) fn is_stuck(&self) -> bool {
        self.going > 1
    }

    /// True if the machine has existed for this long. Without a known time of birth, its age counts from the
    /// first sighting.
    pub(super) fn is_older_than(&self, born: Option<jiff::Timestamp>, age: Duration, now: Now) -> bool {
        match born {
            // A birth in the future is a clock that is wrong: not old.
            Some(born) => Duration::try_from(now.wall.duration_since(born)).is_ok_and(|since| since >= age),
            None => now.mono.since(self.first.mono) >= age,
        }
    }
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sightings(BTreeMap<MachineKey, Sighting>);

impl Sightings {
    /// What is remembered of a machine.
    pub fn get(&self, machine: &MachineKey) -> Option<&Sighting> {
        self.0.get(machine)
    }

    /// How many machines are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its delete was begun: the next time others come first.
    pub fn tried(&mut self, machine: &MachineKey) {
        if let Some(sighting) = self.0.get_mut(machine) {
            sighting.tries = sighting.tries.saturating_add(1);
        }
    }

    /// The last look showed that it is no longer what it was taken for.
    pub fn forget(&mut self, machine: &MachineKey) {
        self.0.remove(machine);
    }

    pub(super) fn remember(&mut self, machine: MachineKey, sighting: Sighting) {
        self.0.insert(machine, sighting);
    }

    /// Those of one provider.
    pub(super) fn of<'a>(
        &'a self,
        provider: &'a ProviderName,
    ) -> impl Iterator<Item = (&'a MachineKey, &'a Sighting)> {
        self.0.iter().filter(move |(machine, _)| machine.provider == *provider)
    }
}
