//! The plan of one pass: which machines go, and what becomes of every other one.

use std::collections::BTreeMap;

use crate::ids::{ProviderName, ProxyKey, ProxyUid};
use crate::lifecycle::Owner;
use crate::provider::{Instance, InstanceRef, Listing};
use crate::time::Now;

use super::machine::{Abandoned, Standing, Survey};
use super::{Finding, LivingProxy, MachineKey, Machines, Observed, Policy, Proxies, Sighting, Sightings};

/// What becomes of a listed machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Another cluster's, or another provider's of ours.
    NotOurs,
    /// It does not say for which Proxy it was made.
    NoUid,
    /// Its Proxy is in a namespace that is not looked at.
    OutOfView,
    /// Somebody deletes it already, and not for long.
    Going,
    /// Its Proxy is being deleted.
    ProxyDeleting,
    /// Its Proxy exists, and does not name two other machines.
    Named,
    /// Its Proxy names two other machines, but the recorded one was not listed.
    RecordedUnseen,
    /// It looks abandoned for the first time.
    FirstSighting,
    /// It is abandoned, but young.
    Young,
    /// Nearly all machines of its provider look abandoned.
    Suspected,
    /// It is abandoned, but as many older ones as a pass may delete come first.
    PutOff,
    /// It goes: its Proxy does not exist.
    DeleteOrphan,
    /// It goes: its Proxy names others.
    DeleteSurplus,
    /// It is abandoned and its delete hangs: it is asked for once more.
    DeleteAgain,
}

impl Verdict {
    /// The row of the table in `docs/gc.md`.
    pub fn row(self) -> &'static str {
        match self {
            Self::NotOurs => "a_machine_of_another_cluster_or_provider_is_never_ours",
            Self::NoUid => "a_machine_without_a_uid_is_never_touched",
            Self::OutOfView => "a_machine_outside_the_watched_namespaces_is_left_alone",
            Self::Going => "a_machine_that_is_being_deleted_is_left_to_it",
            Self::ProxyDeleting => "the_finalizer_owns_the_deletion",
            Self::Named => "a_machine_of_a_living_proxy_stays",
            Self::RecordedUnseen => "the_recorded_machine_is_unseen_so_nothing_is_surplus",
            Self::FirstSighting => "the_first_sighting_is_only_remembered",
            Self::Young => "a_young_machine_waits",
            Self::Suspected => "nearly_all_look_abandoned_so_the_observer_is_suspected",
            Self::PutOff => "beyond_the_limit_it_waits_for_the_next_pass",
            Self::DeleteOrphan => "an_orphan_is_deleted",
            Self::DeleteSurplus => "a_surplus_machine_is_deleted",
            Self::DeleteAgain => "a_delete_that_hangs_is_asked_for_again",
        }
    }
}

/// One machine that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The machine.
    pub machine: MachineKey,
    /// The Proxy that it was made for.
    pub uid: ProxyUid,
    /// Why it goes.
    pub finding: Finding,
    /// Its delete was under way in two passes: a provider forces one that hangs when it is asked again.
    pub again: bool,
    /// Where that Proxy is, or was; none where only a list of all Proxies can tell.
    pub proxy: Option<ProxyKey>,
    /// For the provider: this incarnation, with these owner tags.
    pub target: InstanceRef,
}

/// What is to be known of a provider after a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Machines that are judged, without those that are being deleted.
    pub owned: usize,
    /// Those that look like orphans, however young.
    pub orphans: usize,
    /// Those that look like one too many.
    pub surplus: usize,
    /// Abandoned ones, not among `owned`, whose delete was under way in two passes.
    pub stuck: usize,
    /// Nearly all of them look abandoned: none is deleted.
    pub suspected: bool,
    /// Some of its places could not be listed.
    pub partial: bool,
}

impl Seen {
    /// One that is being deleted already says nothing of the observer, so it is not among those judged.
    fn count(&mut self, found: &Abandoned<'_>) {
        match found.finding {
            Finding::Orphan | Finding::Surplus if found.going => return,
            Finding::Orphan => self.orphans += 1,
            Finding::Surplus => self.surplus += 1,
        }
        self.owned += 1;
    }
}

/// What a pass does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What goes, in order.
    pub removals: Vec<Removal>,
    /// Each provider that could be listed.
    pub seen: BTreeMap<ProviderName, Seen>,
    /// What becomes of each listed machine.
    pub verdicts: BTreeMap<MachineKey, Verdict>,
    /// For the next pass.
    pub sightings: Sightings,
}

/// A machine that may go in this pass.
struct Candidate {
    removal: Removal,
    /// Least tried first, then oldest first.
    order: (u32, jiff::Timestamp, MachineKey),
}

/// Decides one pass.
pub fn plan(observed: &Observed, policy: &Policy, now: Now) -> Plan {
    let proxies = match &observed.proxies {
        Proxies::All(proxies) => proxies,
        Proxies::Unknown => return Plan { sightings: observed.sightings.clone(), ..Plan::default() },
    };
    let mut pass = Pass { observed, policy, now, plan: Plan::default(), candidates: Vec::new() };
    for (provider, machines) in &observed.machines {
        match machines {
            Machines::Unlisted => pass.keep_sightings(provider),
            Machines::Listed(listing) => pass.provider(provider, listing, proxies),
        }
    }
    pass.finish()
}

struct Pass<'a> {
    observed: &'a Observed,
    policy: &'a Policy,
    now: Now,
    plan: Plan,
    candidates: Vec<Candidate>,
}

impl<'a> Pass<'a> {
    /// What was not listed is neither seen nor gone.
    fn keep_sightings(&mut self, provider: &ProviderName) {
        for (machine, sighting) in self.observed.sightings.of(provider) {
            self.plan.sightings.remember(machine.clone(), sighting.clone());
        }
    }

    fn provider(
        &mut self,
        provider: &'a ProviderName,
        listing: &'a Listing,
        proxies: &'a BTreeMap<ProxyUid, LivingProxy>,
    ) {
        let mut seen = Seen { partial: !listing.is_complete(), ..Seen::default() };
        if seen.partial {
            self.keep_sightings(provider);
        }
        let survey = Survey::new(provider, self.observed, proxies, listing);
        let mut abandoned = Vec::new();
        for machine in &listing.items {
            let key = MachineKey::of(provider, machine);
            self.plan.sightings.forget(&key);
            match survey.judge(machine) {
                Standing::NotJudged(verdict) => self.settle(key, verdict),
                Standing::Going => self.settle(key, Verdict::Going),
                Standing::Stays(verdict) => {
                    seen.owned += 1;
                    self.settle(key, verdict);
                }
                Standing::Abandoned(found) => {
                    seen.count(&found);
                    abandoned.push((key, found));
                }
            }
        }
        seen.suspected = is_suspect(&seen, self.policy);
        for (key, found) in abandoned {
            let is_stuck = self.abandoned(key, found, seen.suspected);
            seen.stuck += usize::from(is_stuck);
        }
        self.plan.seen.insert(provider.clone(), seen);
    }

    /// True if its delete hangs.
    fn abandoned(&mut self, key: MachineKey, found: Abandoned<'_>, suspected: bool) -> bool {
        let before = self.observed.sightings.get(&key);
        let sighting = Sighting::again(before, found.finding, found.going, self.now);
        let again = sighting.is_stuck();
        self.plan.sightings.remember(key.clone(), sighting.clone());
        if found.going && !again {
            self.settle(key, Verdict::Going);
        } else if suspected {
            self.settle(key, Verdict::Suspected);
        } else if sighting.passes < 2 {
            self.settle(key, Verdict::FirstSighting);
        } else if !sighting.is_older_than(found.machine.created_at, self.policy.min_age, self.now) {
            self.settle(key, Verdict::Young);
        } else {
            let born = found.machine.created_at.unwrap_or(sighting.first.wall);
            let order = (sighting.tries, born, key.clone());
            let target = reference(&self.observed.cluster, &found.uid, found.machine);
            let Abandoned { uid, finding, proxy, .. } = found;
            let removal = Removal { machine: key, uid, finding, again, proxy, target };
            self.candidates.push(Candidate { removal, order });
        }
        again
    }

    fn settle(&mut self, machine: MachineKey, verdict: Verdict) {
        self.plan.verdicts.insert(machine, verdict);
    }

    fn finish(mut self) -> Plan {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.sort_by(|a, b| a.order.cmp(&b.order));
        for (place, Candidate { removal, .. }) in candidates.into_iter().enumerate() {
            let goes = place < self.policy.max_deletes;
            let verdict = match removal.finding {
                Finding::Orphan | Finding::Surplus if goes && removal.again => Verdict::DeleteAgain,
                Finding::Orphan if goes => Verdict::DeleteOrphan,
                Finding::Surplus if goes => Verdict::DeleteSurplus,
                Finding::Orphan | Finding::Surplus => Verdict::PutOff,
            };
            self.settle(removal.machine.clone(), verdict);
            if goes {
                self.plan.removals.push(removal);
            }
        }
        self.plan
    }
}

/// Nearly all of many: more likely that the Proxies were not seen than that they are gone.
fn is_suspect(seen: &Seen, policy: &Policy) -> bool {
    let abandoned = seen.orphans + seen.surplus;
    let limit = usize::from(policy.suspect_percent).saturating_mul(seen.owned);
    abandoned >= policy.suspect_from && abandoned.saturating_mul(100) > limit
}

fn reference(cluster: &str, uid: &ProxyUid, machine: &Instance) -> InstanceRef {
    InstanceRef {
        id: machine.id.clone(),
        incarnation: machine.incarnation.clone(),
        owner: Owner::new(uid, cluster).tags(),
    }
}
