//! One machine that is to go: the last looks, and the delete.
//!
//! Nothing is deleted on the word of a list alone. Whatever cannot be seen for certain right now stays, and
//! the next pass decides anew.

use egress_proxies_core::gc::{MachineKey, Removal, Spared, check_machine, check_proxy};
use egress_proxies_core::provider::{HostFault, InstanceRef, Provider, Reason};
use tokio_util::sync::CancellationToken;

use super::pass::patiently;
use super::{GcSetup, LiveProxy};
use crate::gc::recorder::Removed;

/// What became of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tried {
    /// The delete was accepted.
    Deleted,
    /// It would have been sent.
    DryRun,
    /// There is a reason to leave the machine.
    Spared,
    /// A look or the delete failed.
    Failed,
    /// This process may not act any more.
    NotLeading,
    /// The process ends.
    Ending,
}

/// Why a machine was not deleted.
enum Stopped {
    Spared(Spared),
    Failed(String),
    NotLeading,
}

/// Carries out removals.
pub(super) struct Removals<'a> {
    pub(super) setup: &'a GcSetup,
    pub(super) cancel: &'a CancellationToken,
}

impl Removals<'_> {
    /// All of one provider, in order.
    pub(super) async fn carry_out(
        &self,
        provider: &dyn Provider,
        removals: Vec<Removal>,
    ) -> Vec<(MachineKey, Tried)> {
        let mut done = Vec::new();
        for removal in removals {
            let tried = self.one(provider, &removal).await;
            done.push((removal.machine, tried));
            match tried {
                Tried::NotLeading | Tried::Ending => break,
                Tried::Deleted | Tried::DryRun | Tried::Spared | Tried::Failed => {}
            }
        }
        done
    }

    async fn one(&self, provider: &dyn Provider, removal: &Removal) -> Tried {
        let looked = self.cancel.run_until_cancelled(self.look(provider, removal)).await;
        let (name, id, uid) = (&removal.machine.provider, &removal.machine.id, &removal.uid);
        let finding = removal.finding.as_str();
        let tried = match looked {
            None => return Tried::Ending,
            Some(Err(Stopped::NotLeading)) => return Tried::NotLeading,
            Some(Err(Stopped::Spared(why))) => {
                tracing::warn!(provider = %name, %id, %uid, finding, why = why.as_str(), "garbage collection leaves a machine that was to go");
                Tried::Spared
            }
            Some(Err(Stopped::Failed(why))) => {
                tracing::warn!(provider = %name, %id, %uid, finding, %why, "garbage collection could not look at a machine once more; it stays for now");
                Tried::Failed
            }
            Some(Ok(_)) if self.setup.dry_run => {
                tracing::warn!(provider = %name, %id, %uid, finding, "garbage collection would delete a machine (dry run)");
                Tried::DryRun
            }
            Some(Ok(target)) => self.delete(provider, removal, &target).await,
        };
        // How something failed that met an API server that is away says nothing.
        let in_a_pause = tried == Tried::Failed && !(self.setup.leadership.may_act)();
        let tried = if in_a_pause { Tried::NotLeading } else { tried };
        if let Some(removed) = counted(tried) {
            self.setup.metrics.removed(name, removed);
        }
        tried
    }

    /// The machine first, then its Proxy, then whether this process may act: what is asked last is newest.
    async fn look(&self, provider: &dyn Provider, removal: &Removal) -> Result<InstanceRef, Stopped> {
        // A delete has turns of its own, this look has not: it waits for one as the lists do.
        let seen = patiently(|| provider.get(&removal.target)).await;
        let seen = seen.map_err(|why| Stopped::Failed(why.to_string()))?;
        let target = check_machine(removal, &self.setup.cluster, &seen).map_err(Stopped::Spared)?;
        let live = self.proxy(removal).await.map_err(|why| Stopped::Failed(format!("{why:#}")))?;
        let live = live.as_ref().map(|(uid, proxy)| (uid, proxy));
        check_proxy(removal, live).map_err(Stopped::Spared)?;
        if (self.setup.leadership.may_act)() { Ok(target) } else { Err(Stopped::NotLeading) }
    }

    /// The Proxy as it is now. Where the machine's tags do not hold its whole name, only all Proxies can tell.
    async fn proxy(&self, removal: &Removal) -> anyhow::Result<Option<LiveProxy>> {
        if let Some(key) = &removal.proxy {
            return self.setup.proxies.get(key).await;
        }
        let mut all = self.setup.proxies.list().await?;
        Ok(all.remove_entry(&removal.uid))
    }

    async fn delete(&self, provider: &dyn Provider, removal: &Removal, target: &InstanceRef) -> Tried {
        let (name, id, uid) = (&removal.machine.provider, &removal.machine.id, &removal.uid);
        let finding = removal.finding.as_str();
        tracing::warn!(provider = %name, %id, %uid, finding, again = removal.again, proxy = ?removal.proxy, "GARBAGE COLLECTION DELETES A MACHINE");
        match provider.delete(target).await {
            Ok(_) => Tried::Deleted,
            Err(failure) if failure.reason == Reason::Host(HostFault::HeldBack) => Tried::NotLeading,
            Err(failure) => {
                tracing::warn!(provider = %name, %id, %uid, finding, %failure, "garbage collection could not delete a machine; a later pass tries again");
                Tried::Failed
            }
        }
    }
}

fn counted(tried: Tried) -> Option<Removed> {
    match tried {
        Tried::Deleted => Some(Removed::Deleted),
        Tried::DryRun => Some(Removed::DryRun),
        Tried::Spared => Some(Removed::Spared),
        Tried::Failed => Some(Removed::Failed),
        Tried::NotLeading | Tried::Ending => None,
    }
}
