//! Time as a value. Clocks jump: intervals, TTLs and back-offs use [`Moment`], which only goes forward;
//! wall time is for people and for comparing with what other systems wrote.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Monotonic time since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after the start of the process.
    pub const fn after_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Time since the start of the process.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Both times, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For people and other systems.
    pub wall: jiff::Timestamp,
    /// For intervals.
    pub mono: Moment,
}
