//! What must be true of a world when all is calm again, from what the cloud, the books, the clients and the
//! witness wrote down. Pure, so that each account is shown to find what it is there for.

mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use egress_proxies_core::provider::Instance;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::books::Done;
use crate::clients::Held;
use crate::record::{Birth, Record, Taken, uid_of};
use crate::schedule::{NAMES, Terms};
use crate::witness::{Life, Seen};

/// A Secret or an edit may be this old before the operator makes a machine without having heard of it.
const HEARS_WITHIN: Duration = Duration::from_secs(2);
/// A call that was under way when a deletion was asked for has landed after this long, and a cache knows that an
/// object is gone.
const LANDS_WITHIN: Duration = Duration::from_secs(1);

/// All that is known of a world.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    pub(crate) record: Record,
    pub(crate) done: Done,
    pub(crate) held: Vec<Held>,
    pub(crate) seen: Seen,
    pub(crate) terms: Terms,
    /// Writes that may have landed when the next operator had looked around.
    pub(crate) torn: u64,
    /// The same moment by both clocks.
    pub(crate) now: (Instant, Timestamp),
}

impl Evidence {
    /// What must hold whatever happened, and how much of it did.
    pub(crate) fn accounts(&self) -> Result<BTreeMap<&'static str, u64>, String> {
        let mut counts = BTreeMap::new();
        self.room()?;
        self.each_value_one_machine()?;
        self.each_machine_a_cause()?;
        counts.insert("deletes of a machine with a lease, for a cause", self.leases()?);
        self.left_machines_stay()?;
        let taken_up = self.seen.lives.values().map(|life| life.went_for.len()).sum::<usize>();
        let drains = self.seen.lives.values().map(|life| life.drains.len()).sum::<usize>();
        let number = |count: usize| u64::try_from(count).unwrap();
        counts.insert("replace values that a machine went for", number(taken_up));
        counts.insert("drains", number(drains));
        counts.insert("leases", number(self.held.len()));
        let full = u64::from(self.as_many_away_as_may_be());
        counts.insert("worlds with as many away as may be", full);
        counts.insert("fair worlds with as many away as may be", full * u64::from(self.terms.fair));
        Ok(counts)
    }

    /// Never more away than may be; one more for each write that may have landed unseen.
    fn room(&self) -> Result<(), String> {
        let most = self.terms.replacement.max_unavailable.of(self.seen.lives.len());
        let torn = usize::try_from(self.torn).unwrap_or(usize::MAX);
        if self.seen.most_away > most.saturating_add(torn) {
            return Err(format!("{:?} were away, and {most} may be; {torn} writes torn", self.seen.away));
        }
        Ok(())
    }

    fn as_many_away_as_may_be(&self) -> bool {
        self.seen.most_away == self.terms.replacement.max_unavailable.of(0)
    }

    /// A value of the replace annotation takes at most one machine away.
    fn each_value_one_machine(&self) -> Result<(), String> {
        let all = self.seen.lives.values().flat_map(|life| &life.went_for);
        match all.into_iter().find(|(_, machines)| machines.len() > 1) {
            Some((value, machines)) => Err(format!("for the value {value} went {machines:?}")),
            None => Ok(()),
        }
    }

    /// Whatever was asked for of a living Proxy is there: none of the machines from before a value is left, and
    /// the value is settled. Not yet, as long as this says so.
    pub(crate) fn values_are_settled(&self) -> Result<(), String> {
        for (uid, life) in self.seen.lives.iter().filter(|(_, life)| life.gone.is_none()) {
            if life.asks.is_some() && life.asks != life.took_up || life.replacing.is_some() {
                return Err(format!("a value is not settled: {life:?}"));
            }
            let asked = self.done.asked.iter().filter(|asked| asked.uid == *uid && asked.machine.is_some());
            for asked in asked {
                if asked.machine == life.machine {
                    return Err(format!(
                        "after the value {} machine {:?} is still there",
                        asked.value, asked.machine
                    ));
                }
            }
        }
        Ok(())
    }

    /// No machine is made for nothing.
    fn each_machine_a_cause(&self) -> Result<(), String> {
        let mut before: BTreeMap<&str, &Birth> = BTreeMap::new();
        for birth in &self.record.births {
            if let Some(last) = before.insert(&birth.uid, birth)
                && !self.has_cause(last, birth)
            {
                return Err(format!("{birth:?} after {last:?}: nobody asked for another one"));
            }
        }
        Ok(())
    }

    fn has_cause(&self, last: &Birth, next: &Birth) -> bool {
        let done = &self.done;
        let went_for_a_value = || {
            let life = self.seen.lives.get(&next.uid);
            life.is_some_and(|life| life.went_for.values().any(|it| it.contains(last.machine.as_str())))
        };
        // A create that was under way may land while the Proxy is being deleted.
        let deleted = done.deleted.get(&next.uid).is_some_and(|at| *at < next.at);
        last.spec != next.spec
            || self.record.harmed.contains(&last.machine)
            || self.edited_between(last, next)
            || deleted
            || went_for_a_value()
            || self.seen.has_gaps()
    }

    fn edited_between(&self, last: &Birth, next: &Birth) -> bool {
        self.done.edits.iter().any(|edit| {
            let concerns = edit.uid.as_ref().map_or_else(|| uses_secret(&next.name), |uid| *uid == next.uid);
            concerns && edit.span.ended + HEARS_WITHIN > last.at && edit.span.began < next.at
        })
    }

    /// A machine with a lease goes only when it has drained for its time, or of itself, or with its Proxy. How
    /// many did.
    fn leases(&self) -> Result<u64, String> {
        let mut count = 0;
        for taken in &self.record.taken {
            let leased = self.held.iter().any(|held| {
                held.machine == taken.machine.as_str() && held.ended.is_none_or(|at| at >= taken.at)
            });
            if !leased {
                continue;
            }
            count += 1;
            if !self.may_cut(taken) {
                let drains = self.seen.lives.get(&taken.uid).map(|life| &life.drains);
                return Err(format!("{taken:?} with a lease, at {} of {drains:?}", self.wall(taken.at)));
            }
        }
        Ok(count)
    }

    fn may_cut(&self, taken: &Taken) -> bool {
        let with_its_proxy = self.done.deleted.get(&taken.uid).is_some_and(|at| *at <= taken.at);
        let by_itself = !taken.ran || self.record.harmed.contains(&taken.machine);
        let drain = self.terms.replacement.drain;
        let life = self.seen.lives.get(&taken.uid);
        let since = life.and_then(|life| life.drains.get(taken.machine.as_str()));
        let drained = since.is_some_and(|since| self.wall(taken.at) >= *since + drain);
        with_its_proxy || by_itself || drain.is_zero() || drained || self.seen.has_gaps()
    }

    fn wall(&self, at: Instant) -> Timestamp {
        let (mono, wall) = self.now;
        wall - mono.duration_since(at)
    }

    /// The machine of this Proxy may be there although the Proxy is gone: a person said so, while nobody could be
    /// asked about it.
    pub(crate) fn may_be_left(&self, machine: &Instance) -> bool {
        self.abandoned(&uid_of(machine))
            .is_some_and(|(deleted, gone)| self.done.was_unavailable_within(deleted, gone))
    }

    /// What was left behind on purpose is left alone ever after.
    fn left_machines_stay(&self) -> Result<(), String> {
        for taken in &self.record.taken {
            let late = |(deleted, gone)| {
                self.done.was_unavailable_throughout(deleted, gone) && taken.at > deleted + LANDS_WITHIN
            };
            if self.abandoned(&taken.uid).is_some_and(late) {
                return Err(format!("{taken:?} although it was left behind on purpose"));
            }
        }
        Ok(())
    }

    /// When its deletion was asked for and when it was gone, if its last word was that it may be abandoned.
    fn abandoned(&self, uid: &str) -> Option<(Instant, Instant)> {
        let life: &Life = self.seen.lives.get(uid)?;
        let (deleted, gone) = (self.done.deleted.get(uid)?, life.gone?);
        life.abandon.then_some((*deleted, gone))
    }
}

/// Some Proxies are made from the Secret too.
pub(crate) fn uses_secret(name: &str) -> bool {
    name == NAMES[1] || name == NAMES[2]
}
