//! How the machines of a provider instance are replaced: how many may be away at once, and how long leases
//! may hold a replacement back. Set in the providers config; never part of what a machine is made from.

use std::time::Duration;

use serde::Serialize;

/// How machines are replaced when what they are made from changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// How many may be away at once.
    pub max_unavailable: MaxUnavailable,
    /// How long leases may hold a replacement back.
    pub drain: Duration,
}

impl Default for Replacement {
    fn default() -> Self {
        Self { max_unavailable: MaxUnavailable::Percent(20), drain: Duration::from_mins(5) }
    }
}

/// Part of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MaxUnavailable {
    /// Share of the provider's machines, 1-100.
    Percent(u32),
    /// A number of machines, from 1.
    Count(u32),
}

impl MaxUnavailable {
    /// How many of `total` that is: a share is rounded up, and it is never less than one, so that a fleet of
    /// any size can be replaced.
    pub fn of(self, total: usize) -> usize {
        let number = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        let count = match self {
            Self::Percent(percent) => total.saturating_mul(number(percent)).div_ceil(100),
            Self::Count(count) => number(count),
        };
        count.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_is_never_less_than_one() {
        for (max, total, expected) in [
            (MaxUnavailable::Percent(20), 0, 1),
            (MaxUnavailable::Percent(20), 1, 1),
            (MaxUnavailable::Percent(20), 5, 1),
            (MaxUnavailable::Percent(20), 6, 2),
            (MaxUnavailable::Percent(20), 50, 10),
            (MaxUnavailable::Percent(1), 10_000, 100),
            (MaxUnavailable::Percent(100), 7, 7),
            (MaxUnavailable::Count(3), 1, 3),
            (MaxUnavailable::Count(0), 9, 1),
            (MaxUnavailable::Percent(u32::MAX), usize::MAX, usize::MAX.div_ceil(100)),
        ] {
            assert_eq!(max.of(total), expected, "{max:?} of {total}");
        }
    }
}
