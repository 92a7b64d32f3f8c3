//! How many calls may run at once: per provider, and by the memory of all of them together. A call waits
//! for its turn for a moment and then gives up, so that a slow cloud holds up only its own Proxies, and those not
//! for long. Loading waits for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::Op;
use crate::config::LEAST_MEMORY_MIB;

/// What the host itself may hold for one call besides the guest's memory: answers (16 MiB), bodies of
/// requests (16 MiB), resources (1,024 of up to 24 KiB) and what is being copied (8 MiB).
pub(crate) const HOST_MIB: u32 = 64;

/// How long a call waits for its permits. Long enough for a provider that answers to get through a fleet that is
/// due at once, whose reconciles would otherwise begin anew with all their questions; short enough that one that
/// hangs does not keep a Proxy from being looked at in other ways.
pub(crate) const TURN: Duration = Duration::from_secs(5);

/// Memory of all calls in flight, over all providers. Deletes have a share of their own, so that a busy
/// operator can always clean up.
#[derive(Debug, Clone)]
pub(crate) struct MemoryPool {
    calls: Arc<Semaphore>,
    deletes: Arc<Semaphore>,
}

/// Calls that may be under way at once in so many mebibytes, whatever their providers are configured to.
pub(crate) fn most_calls(mebibytes: u32) -> u32 {
    (mebibytes / (LEAST_MEMORY_MIB + HOST_MIB)).max(1)
}

impl MemoryPool {
    /// `mebibytes` in all; a quarter is for deletes.
    pub(crate) fn new(mebibytes: u32) -> Self {
        let all = usize::try_from(mebibytes).unwrap_or(usize::MAX);
        let deletes = all / 4;
        Self { calls: Arc::new(Semaphore::new(all - deletes)), deletes: Arc::new(Semaphore::new(deletes)) }
    }

    /// Memory for the calls that loading a provider makes, as soon as there is enough. None if the host is
    /// going away.
    pub(crate) async fn wait(&self, mebibytes: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.calls).acquire_many_owned(mebibytes.saturating_add(HOST_MIB)).await.ok()
    }
}

/// Permits of one instance.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    calls: Arc<Semaphore>,
    deletes: Arc<Semaphore>,
    memory: MemoryPool,
}

/// Permits that are taken, given back when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    _both: Arc<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

impl Permits {
    pub(crate) fn new(concurrency: u32, memory: MemoryPool) -> Self {
        let count = usize::try_from(concurrency).unwrap_or(1);
        Self { calls: Arc::new(Semaphore::new(count)), deletes: Arc::new(Semaphore::new(count)), memory }
    }

    /// Both permits within [`TURN`], or none. Whoever waits longest comes first.
    pub(crate) async fn take(&self, op: Op, mebibytes: u32) -> Option<Taken> {
        let (calls, memory) = match op {
            Op::Delete => (&self.deletes, &self.memory.deletes),
            Op::Describe | Op::ValidateConfig | Op::ValidateCreate | Op::Create | Op::Get | Op::List => {
                (&self.calls, &self.memory.calls)
            }
        };
        let (calls, memory) = (Arc::clone(calls), Arc::clone(memory));
        let mebibytes = mebibytes.saturating_add(HOST_MIB);
        let both = async move {
            let call = calls.acquire_owned().await.ok()?;
            let memory = memory.acquire_many_owned(mebibytes).await.ok()?;
            Some(Taken { _both: Arc::new((call, memory)) })
        };
        tokio::time::timeout(TURN, both).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_counts_with_what_the_host_holds_for_it_and_loading_waits() {
        let pool = MemoryPool::new(4 * (128 + HOST_MIB));
        let permits = Permits::new(8, pool.clone());
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(permits.take(Op::Get, 128).await.unwrap());
        }
        let before = tokio::time::Instant::now();
        assert!(permits.take(Op::Get, 128).await.is_none(), "three quarters are for calls");
        assert_eq!(before.elapsed(), TURN);
        let delete = permits.take(Op::Delete, 128).await.unwrap();
        assert!(permits.take(Op::Delete, 128).await.is_none());
        let clone = delete.clone();
        drop(delete);
        assert!(permits.take(Op::Delete, 128).await.is_none(), "held as long as anybody holds it");
        let turn = permits.take(Op::Delete, 128);
        assert!(tokio::join!(turn, async { drop(clone) }).0.is_some(), "its turn came");
        let waiting = pool.wait(128);
        let free = async { drop(taken) };
        assert!(tokio::join!(waiting, free).0.is_some());
    }
}
