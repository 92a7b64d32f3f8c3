//! What one listed machine is, by its tags and by the Proxies that exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{InstanceId, MACHINE_PREFIX, ProviderName, ProxyKey, ProxyUid};
use crate::lifecycle::{has_owner_tags, is_made_by, key_of, uid_of};
use crate::provider::{Instance, InstanceState, Listing};

use super::{LivingProxy, Observed, Verdict};

/// As what a machine looks abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// Its Proxy does not exist.
    Orphan,
    /// Its Proxy names other machines.
    Surplus,
}

impl Finding {
    /// Constant word for logs and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::Surplus => "surplus",
        }
    }
}

/// A machine that looks abandoned, and whose it was.
#[derive(Debug)]
pub(super) struct Abandoned<'a> {
    pub(super) machine: &'a Instance,
    pub(super) uid: ProxyUid,
    pub(super) finding: Finding,
    /// Its delete is under way.
    pub(super) going: bool,
    /// Where its Proxy is, or was; none where the tags do not say so for certain.
    pub(super) proxy: Option<ProxyKey>,
}

/// What a machine is.
#[derive(Debug)]
pub(super) enum Standing<'a> {
    /// Not ours to judge.
    NotJudged(Verdict),
    /// Ours, and it stays.
    Stays(Verdict),
    /// Ours, somebody deletes it already, and it does not look abandoned.
    Going,
    /// Ours, and it looks abandoned.
    Abandoned(Abandoned<'a>),
}

/// The machines of one provider, and what they are compared with.
pub(super) struct Survey<'a> {
    pub(super) provider: &'a ProviderName,
    pub(super) observed: &'a Observed,
    pub(super) proxies: &'a BTreeMap<ProxyUid, LivingProxy>,
    /// Those that serve, or are about to.
    there: BTreeSet<(&'a InstanceId, ProxyUid)>,
}

impl<'a> Survey<'a> {
    pub(super) fn new(
        provider: &'a ProviderName,
        observed: &'a Observed,
        proxies: &'a BTreeMap<ProxyUid, LivingProxy>,
        listing: &'a Listing,
    ) -> Self {
        let ours = listing.items.iter().filter(|machine| is_made_by(machine, &observed.cluster, provider));
        let there = ours
            .filter(|machine| is_there(&machine.state))
            .filter_map(|machine| Some((&machine.id, uid_of(machine)?)))
            .collect();
        Self { provider, observed, proxies, there }
    }

    pub(super) fn judge(&self, machine: &'a Instance) -> Standing<'a> {
        if !is_made_by(machine, &self.observed.cluster, self.provider) {
            return Standing::NotJudged(Verdict::NotOurs);
        }
        let Some(uid) = uid_of(machine) else { return Standing::NotJudged(Verdict::NoUid) };
        if !self.observed.view.covers(machine) {
            return Standing::NotJudged(Verdict::OutOfView);
        }
        let going = machine.state == InstanceState::Deleting;
        let stays = |verdict| if going { Standing::Going } else { Standing::Stays(verdict) };
        let (finding, proxy) = match self.proxies.get(&uid) {
            None => (Finding::Orphan, key_of(machine)),
            Some(proxy) if proxy.deleting => return stays(Verdict::ProxyDeleting),
            Some(proxy) if !proxy.disowns(self.provider, &machine.id) => {
                return stays(Verdict::Named);
            }
            Some(proxy) if !self.has(proxy.recorded.as_ref(), &uid) => {
                return stays(Verdict::RecordedUnseen);
            }
            Some(proxy) => (Finding::Surplus, Some(proxy.key.clone())),
        };
        Standing::Abandoned(Abandoned { machine, uid, finding, going, proxy })
    }

    /// One too many means that the other one is there. So a provider that suddenly shows other ids than those
    /// that were written down makes nothing look like too many, and neither does a recorded machine that is going.
    fn has(&self, recorded: Option<&InstanceId>, uid: &ProxyUid) -> bool {
        recorded.is_some_and(|id| self.there.contains(&(id, uid.clone())))
    }
}

fn is_there(state: &InstanceState) -> bool {
    match state {
        InstanceState::Provisioning | InstanceState::Running | InstanceState::Other(_) => true,
        InstanceState::Stopping
        | InstanceState::Stopped
        | InstanceState::Deleting
        | InstanceState::Failed => false,
    }
}

/// How many of the listed machines have the operator's kind of name and say of nobody that they are theirs.
/// They are counted, never touched; those of another cluster say whose they are.
pub fn untagged(listing: &Listing) -> usize {
    let nobodys = |machine: &&Instance| machine.name.starts_with(MACHINE_PREFIX) && !has_owner_tags(machine);
    listing.items.iter().filter(nobodys).count()
}
