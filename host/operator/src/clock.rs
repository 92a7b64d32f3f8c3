//! The one place that reads the real clock. Everything else is given [`Now`].

use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::time::{Moment, Now};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Where the loops get the time from.
pub trait Clock: Send + Sync + 'static {
    /// Both times, read together.
    fn now(&self) -> Now;
}

/// A clock to hand around.
pub type SharedClock = Arc<dyn Clock>;

/// The real clock. Its monotonic half follows Tokio's clock, so that tests can pause it.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts counting now.
    pub fn start() -> Arc<Self> {
        Arc::new(Self { start: Instant::now() })
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the wall clock")]
    fn now(&self) -> Now {
        Now { wall: jiff::Timestamp::now(), mono: Moment::after_start(self.start.elapsed()) }
    }
}

/// The clock of the election. Its monotonic half goes on while the machine is suspended (`CLOCK_BOOTTIME`), so
/// that a leader that sleeps finds its lead over when it wakes up.
#[derive(Debug)]
pub struct BootClock {
    start: Duration,
}

impl BootClock {
    /// Starts counting now.
    pub fn start() -> Arc<Self> {
        Arc::new(Self { start: since_boot() })
    }
}

impl Clock for BootClock {
    #[expect(clippy::disallowed_methods, reason = "this is the other reader of the wall clock")]
    fn now(&self) -> Now {
        let elapsed = since_boot().saturating_sub(self.start);
        Now { wall: jiff::Timestamp::now(), mono: Moment::after_start(elapsed) }
    }
}

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
