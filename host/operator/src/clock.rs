//! The one place that reads the real clock. Everything else is given [`Now`].

use std::sync::Arc;

use egress_proxies_core::time::{Moment, Now};
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
