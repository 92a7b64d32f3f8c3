//! What one call may use: memory over all linear memories, tables, and CPU time.
//!
//! wasmtime's own limiter bounds each memory by itself; a component may have dozens, so they are summed
//! here. Refused growth is an error, not `-1`: then it is known for what it is instead of showing up as
//! whatever the guest makes of a failed allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wasmtime::ResourceLimiter;

/// Table elements of one call, over all tables: a pointer each.
pub(crate) const TABLE_ELEMENTS: usize = 200_000;
/// Core instances of one call: a Python component has about seventy.
pub(crate) const INSTANCES: u16 = 256;
/// Memories of one call: a component that was not composed of others has one.
pub(crate) const MEMORIES: u16 = 16;
/// Tables of one call: a component that was not composed of others has two.
pub(crate) const TABLES: u16 = 16;

/// Sums what the memories and tables of one store use.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    most: usize,
    used: usize,
    elements: usize,
    peak: Peak,
    refused: Option<Refused>,
}

/// Most linear memory that a call had at once; clones show the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peak(Arc<AtomicUsize>);

impl Peak {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Which limit ended a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// `limits.memoryMiB`.
    Memory,
    /// Elements of all tables, which no config raises.
    Table,
}

impl MemoryLimiter {
    pub(crate) fn new(mebibytes: u32) -> Self {
        let most = usize::try_from(mebibytes).unwrap_or(usize::MAX).saturating_mul(1 << 20);
        Self { most, used: 0, elements: 0, peak: Peak::default(), refused: None }
    }

    /// Whose growth was refused in this call.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// Most bytes in use at once.
    pub(crate) fn peak(&self) -> Peak {
        self.peak.clone()
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.used.saturating_sub(current).saturating_add(desired);
        if total > self.most {
            self.refused = Some(Refused::Memory);
            wasmtime::bail!("memory limit of {} MiB reached", self.most >> 20);
        }
        self.used = total;
        self.peak.0.fetch_max(total, Ordering::Relaxed);
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.elements.saturating_sub(current).saturating_add(desired);
        if total > TABLE_ELEMENTS {
            self.refused = Some(Refused::Table);
            wasmtime::bail!("limit of {TABLE_ELEMENTS} table elements reached");
        }
        self.elements = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES.into()
    }

    fn tables(&self) -> usize {
        TABLES.into()
    }

    fn memories(&self) -> usize {
        MEMORIES.into()
    }
}

/// CPU time of one call: the time of the thread while the call's future is polled, so that waiting for an
/// answer costs nothing and neighbours on the same thread do not count.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    budget: Duration,
    /// Nanoseconds of finished polls.
    spent: AtomicU64,
    /// Thread time at which the present poll began.
    poll_began: AtomicU64,
    exceeded: AtomicBool,
}

impl CpuMeter {
    pub(crate) fn new(budget: Duration) -> Arc<Self> {
        Arc::new(Self {
            budget,
            spent: AtomicU64::new(0),
            poll_began: AtomicU64::new(thread_nanos()),
            exceeded: AtomicBool::new(false),
        })
    }

    /// Asked from inside a poll: is the budget used up?
    pub(crate) fn over_budget(&self) -> bool {
        let now = thread_nanos().saturating_sub(self.poll_began.load(Ordering::Relaxed));
        let spent = Duration::from_nanos(self.spent.load(Ordering::Relaxed).saturating_add(now));
        let over = spent > self.budget;
        if over {
            self.exceeded.store(true, Ordering::Relaxed);
        }
        over
    }

    /// True once the budget was found to be used up.
    pub(crate) fn was_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }

    /// CPU time of the polls so far.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    /// Runs a future and bills its polls.
    pub(crate) async fn bill<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context: &mut Context<'_>| -> Poll<F::Output> {
            let began = thread_nanos();
            self.poll_began.store(began, Ordering::Relaxed);
            let answer = future.as_mut().poll(context);
            self.spent.fetch_add(thread_nanos().saturating_sub(began), Ordering::Relaxed);
            answer
        })
        .await
    }
}

fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_summed_over_all_memories() {
        let mut limiter = MemoryLimiter::new(1);
        assert!(limiter.memory_growing(0, 600 << 10, None).unwrap());
        assert!(limiter.memory_growing(0, 600 << 10, None).is_err(), "a second memory counts too");
        assert_eq!(limiter.refused(), Some(Refused::Memory));
        assert!(limiter.memory_growing(600 << 10, 1 << 20, None).unwrap(), "growing counts the difference");
    }

    #[tokio::test]
    async fn waiting_costs_nothing_and_working_does() {
        let meter = CpuMeter::new(Duration::from_millis(20));
        meter.bill(tokio::time::sleep(Duration::from_millis(60))).await;
        assert!(meter.spent() < Duration::from_millis(20), "{:?}", meter.spent());
        meter
            .bill(async {
                let mut x = 1_u64;
                while !meter.over_budget() {
                    x = std::hint::black_box(x.wrapping_mul(31));
                }
            })
            .await;
        assert!(meter.was_exceeded());
    }
}
