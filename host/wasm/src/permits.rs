//! How many calls may run at once: per provider, and by the memory of all of them together. A call waits
//! for its turn for a moment and then gives up, so that a slow cloud holds up only its own Proxies, and those not
//! for long. Loading waits for as long as it takes.
//!
//! Memory is common, and providers that hang must not have all of it: one call of each that was loaded has memory of
//! its own, as long as half is left for all. What one call is told by a rate limit holds for all calls of the instance.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::call::Op;
use crate::config::{LEAST_MEMORY_MIB, Limits};

/// What the host itself may hold for one call besides the guest's memory: answers (16 MiB), bodies of
/// requests (16 MiB), resources (1,024 of up to 24 KiB) and what is being copied (8 MiB).
pub(crate) const HOST_MIB: u32 = 64;

/// How long a call waits for its permits. Long enough for a provider that answers to get through a fleet that is
/// due at once, whose reconciles would otherwise begin anew with all their questions; short enough that one that
/// hangs does not keep a Proxy from being looked at in other ways.
pub(crate) const TURN: Duration = Duration::from_secs(5);

/// For how long no call begins after one that was throttled and not told for how long.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest time for which one call may hold up the others.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Memory of all calls in flight, over all providers. Deletes have a share of their own, so that a busy
/// operator can always clean up.
#[derive(Debug, Clone)]
pub(crate) struct MemoryPool {
    calls: Arc<Semaphore>,
    deletes: Arc<Semaphore>,
    /// What may still be set aside for single providers.
    to_keep: Arc<Mutex<u32>>,
}

/// Calls that may be under way at once in so many mebibytes, whatever their providers are configured to.
pub(crate) fn most_calls(mebibytes: u32) -> u32 {
    (mebibytes / (LEAST_MEMORY_MIB + HOST_MIB)).max(1)
}

impl MemoryPool {
    /// `mebibytes` in all; a quarter is for deletes.
    pub(crate) fn new(mebibytes: u32) -> Self {
        let deletes = mebibytes / 4;
        let calls = mebibytes - deletes;
        let [for_calls, for_deletes] = [calls, deletes]
            .map(|share| Arc::new(Semaphore::new(usize::try_from(share).unwrap_or(usize::MAX))));
        Self { calls: for_calls, deletes: for_deletes, to_keep: Arc::new(Mutex::new(calls / 2)) }
    }

    /// Memory for the calls that loading a provider makes, as soon as there is enough. None if the host is
    /// going away.
    pub(crate) async fn wait(&self, mebibytes: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.calls).acquire_many_owned(mebibytes.saturating_add(HOST_MIB)).await.ok()
    }

    /// Sets memory for one call aside, for good; false if others have all that may be.
    async fn keep(&self, mebibytes: u32) -> bool {
        {
            let mut left = self.to_keep.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(rest) = left.checked_sub(mebibytes.saturating_add(HOST_MIB)) else { return false };
            *left = rest;
        }
        let kept = self.wait(mebibytes).await;
        kept.map(OwnedSemaphorePermit::forget).is_some()
    }
}

/// Permits of one instance.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    calls: Arc<Semaphore>,
    deletes: Arc<Semaphore>,
    /// Memory for one call that no other provider uses, or none.
    kept: Arc<Semaphore>,
    memory: MemoryPool,
    /// Memory of one call.
    mebibytes: u32,
    /// Until when no call begins.
    paused: Arc<Mutex<Option<Instant>>>,
}

/// Permits that are taken, given back when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    _both: Arc<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

/// Why a call has to come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// As many are under way as may be.
    Busy,
    /// The provider was throttled; for so long yet.
    Paused(Duration),
}

impl Permits {
    /// Of an instance that was loaded, as soon as there is memory to be kept for it.
    pub(crate) async fn new(limits: &Limits, memory: MemoryPool) -> Self {
        let count = usize::try_from(limits.concurrency).unwrap_or(1);
        let kept = memory.keep(limits.memory_mib).await;
        let [calls, deletes, kept] =
            [count, count, usize::from(kept)].map(|count| Arc::new(Semaphore::new(count)));
        Self { calls, deletes, kept, memory, mebibytes: limits.memory_mib, paused: Arc::default() }
    }

    /// Whether its calls have memory that no other provider uses.
    pub(crate) fn has_memory_of_its_own(&self) -> bool {
        self.kept.available_permits() > 0
    }

    /// Both permits within [`TURN`], or none. Whoever waits longest comes first.
    pub(crate) async fn take(&self, op: Op) -> Result<Taken, Refused> {
        let left = self.paused_for();
        if left >= TURN {
            return Err(Refused::Paused(left));
        }
        let (calls, memory) = match op {
            Op::Delete => (&self.deletes, &self.memory.deletes),
            Op::Describe | Op::ValidateConfig | Op::ValidateCreate | Op::Create | Op::Get | Op::List => {
                (&self.calls, &self.memory.calls)
            }
        };
        let (calls, kept, memory) = (Arc::clone(calls), Arc::clone(&self.kept), Arc::clone(memory));
        let mebibytes = self.mebibytes.saturating_add(HOST_MIB);
        let both = async {
            let call = calls.acquire_owned().await.ok()?;
            while !self.paused_for().is_zero() {
                tokio::time::sleep(self.paused_for()).await;
            }
            let memory = tokio::select! {
                biased;
                own = kept.acquire_owned() => own,
                shared = memory.acquire_many_owned(mebibytes) => shared,
            };
            Some(Taken { _both: Arc::new((call, memory.ok()?)) })
        };
        let taken = tokio::time::timeout(TURN, both).await.ok().flatten();
        taken.ok_or_else(|| match self.paused_for() {
            Duration::ZERO => Refused::Busy,
            left => Refused::Paused(left),
        })
    }

    /// A call was throttled: none begins for as long as its provider asked for, within bounds.
    pub(crate) fn pause(&self, asked: Option<Duration>) {
        let until = Instant::now() + asked.unwrap_or(PAUSE).min(LONGEST_PAUSE);
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        *paused = paused.max(Some(until));
    }

    fn paused_for(&self) -> Duration {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory for one call, with what the host holds for it.
    const ONE: u32 = 128 + HOST_MIB;

    async fn provider(concurrency: u32, pool: &MemoryPool) -> Permits {
        Permits::new(&Limits { concurrency, memory_mib: 128, ..Limits::default() }, pool.clone()).await
    }

    /// As many permits as there are.
    async fn all(permits: &Permits, op: Op) -> Vec<Taken> {
        let mut taken = Vec::new();
        while let Ok(one) = permits.take(op).await {
            taken.push(one);
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_counts_with_what_the_host_holds_for_it_and_loading_waits() {
        let pool = MemoryPool::new(4 * ONE);
        let permits = provider(8, &pool).await;
        let taken = all(&permits, Op::Get).await;
        assert_eq!(taken.len(), 3, "three quarters are for calls");
        let before = Instant::now();
        assert_eq!(permits.take(Op::Get).await.unwrap_err(), Refused::Busy);
        assert_eq!(before.elapsed(), TURN);
        let delete = permits.take(Op::Delete).await.unwrap();
        assert!(permits.take(Op::Delete).await.is_err());
        let clone = delete.clone();
        drop(delete);
        assert!(permits.take(Op::Delete).await.is_err(), "held as long as anybody holds it");
        let turn = permits.take(Op::Delete);
        assert!(tokio::join!(turn, async { drop(clone) }).0.is_ok(), "its turn came");
        let waiting = pool.wait(128);
        let free = async { drop(taken) };
        assert!(tokio::join!(waiting, free).0.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn providers_that_hang_leave_a_call_to_each_other_one() {
        let pool = MemoryPool::new(2304);
        let (slow, slower, quick) =
            (provider(8, &pool).await, provider(8, &pool).await, provider(8, &pool).await);
        let hang = [all(&slow, Op::Get).await, all(&slower, Op::Get).await].map(|held| held.len());
        assert_eq!(hang, [7, 1]);
        let (_held, _too) = (all(&slow, Op::Get).await, all(&slower, Op::Get).await);
        let _deletes = (all(&slow, Op::Delete).await, all(&slower, Op::Delete).await);
        let before = Instant::now();
        for op in [Op::Get, Op::Create, Op::Delete, Op::List] {
            let taken = quick.take(op).await;
            assert!(taken.is_ok(), "{op:?}");
        }
        assert_eq!(before.elapsed(), Duration::ZERO, "it waits for nobody");
        let one = quick.take(Op::Get).await;
        assert!(one.is_ok() && quick.take(Op::Get).await.is_err(), "the others have the rest");
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_memory_is_kept_for_nobody() {
        let pool = MemoryPool::new(2304);
        let mut providers = Vec::new();
        for _ in 0..6 {
            providers.push(provider(8, &pool).await);
        }
        let own = providers.iter().filter(|permits| permits.has_memory_of_its_own()).count();
        assert_eq!(own, 4);
        assert_eq!(all(&providers[5], Op::Get).await.len(), 5);
        assert_eq!(all(&providers[0], Op::Get).await.len(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_call_is_told_by_a_rate_limit_holds_for_all_of_its_provider_and_for_no_other() {
        let pool = MemoryPool::new(2304);
        let (limited, other) = (provider(8, &pool).await, provider(8, &pool).await);
        let seconds = Duration::from_secs;
        for (asked, waits) in [(Some(seconds(3)), seconds(3)), (None, PAUSE)] {
            limited.pause(asked);
            let before = Instant::now();
            assert!(limited.take(Op::Get).await.is_ok());
            assert_eq!(before.elapsed(), waits);
        }
        for (asked, left) in [(seconds(20), seconds(20)), (seconds(3600), LONGEST_PAUSE)] {
            limited.pause(Some(asked));
            limited.pause(Some(seconds(1)));
            let before = Instant::now();
            assert_eq!(limited.take(Op::Delete).await.unwrap_err(), Refused::Paused(left), "never shortened");
            assert!(other.take(Op::Get).await.is_ok());
            assert_eq!(before.elapsed(), Duration::ZERO, "nobody waits for what is not to come in time");
            tokio::time::sleep(left).await;
            assert!(limited.take(Op::Get).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_turn_waits_for_the_end_of_the_pause_too() {
        let pool = MemoryPool::new(2304);
        let permits = provider(1, &pool).await;
        let first = permits.take(Op::Get).await.unwrap();
        let throttled = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            permits.pause(Some(Duration::from_secs(2)));
            drop(first);
        };
        let before = Instant::now();
        let (second, ()) = tokio::join!(permits.take(Op::Get), throttled);
        assert!(second.is_ok());
        assert_eq!(before.elapsed(), Duration::from_secs(3));
    }
}
