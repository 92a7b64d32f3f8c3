//! When a provider is asked for a list of its machines, so that those that run need not be asked for one by one. Clouds
//! allow an account so many requests in an hour, and a fleet of a thousand would ask for a thousand in a minute.
//!
//! What such a list counts for is in `outcome/survey.rs`.

use std::time::Duration;

use crate::provider::Failure;

use super::Policy;

/// What came of a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Surveyed {
    /// It showed so many of the machines that run as they were, of so many.
    Shown(usize, usize),
    /// There is none.
    Failed(Failure),
}

/// The turns of one provider. Each is for a list, and ever fewer are while lists save nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns {
    in_vain: u32,
    skip: u32,
}

impl Turns {
    /// A turn has come, [`Policy::survey_poll`] after the last one; true if it is for a list.
    pub fn comes(&mut self) -> bool {
        let lists = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        lists
    }

    /// A list was answered; true if lists save nothing from this one on. One that shows less than half of the machines
    /// as they were costs more than it saves, since the others are asked for besides; one that is refused may hold up
    /// everything else of the provider. One that got no permit counts for nothing: others were served.
    pub fn answered(&mut self, surveyed: &Surveyed, policy: &Policy) -> bool {
        let asked = match surveyed {
            Surveyed::Shown(shown, of) if *shown > 0 && shown.saturating_mul(2) >= *of => {
                *self = Self::default();
                return false;
            }
            Surveyed::Shown(..) => Duration::ZERO,
            Surveyed::Failed(failure) if failure.got_no_permit() => return false,
            Surveyed::Failed(failure) => failure.retry_after.unwrap_or_default(),
        };
        self.in_vain = self.in_vain.saturating_add(1);
        let turns = |span: Duration| {
            let each = policy.survey_poll().as_millis().max(1);
            u32::try_from(span.as_millis().div_ceil(each)).unwrap_or(u32::MAX)
        };
        let doubled = 1_u32.checked_shl(self.in_vain).unwrap_or(u32::MAX);
        self.skip = doubled.min(turns(policy.slow_poll)).max(turns(asked)).saturating_sub(1);
        self.in_vain == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{HostFault, Reason};

    /// Turns from one list to the next, after each of these answers.
    fn gaps(answers: impl IntoIterator<Item = Surveyed>) -> Vec<u32> {
        let (policy, mut turns) = (Policy::default(), Turns::default());
        let gap = |answer| {
            assert!(turns.comes());
            turns.answered(&answer, &policy);
            let mut gap = 1;
            while !turns.clone().comes() {
                turns.comes();
                gap += 1;
            }
            gap
        };
        answers.into_iter().map(gap).collect()
    }

    fn failed(reason: Reason) -> Surveyed {
        Surveyed::Failed(Failure::new(reason, "no"))
    }

    #[test]
    fn lists_that_save_nothing_become_rare_and_come_each_time_again_when_one_does() {
        let (good, poor) = (Surveyed::Shown(50, 100), Surveyed::Shown(49, 100));
        assert_eq!(gaps([good.clone(), good.clone()]), [1, 1]);
        let answers = [poor.clone(), poor.clone(), poor, failed(Reason::Denied), Surveyed::Shown(0, 0), good];
        assert_eq!(
            gaps(answers),
            [2, 4, 8, 15, 15, 1],
            "15 turns of 40 s are the 10 min of what is retried slowly"
        );
        assert_eq!(gaps(vec![failed(Reason::Transient); 70])[69], 15);
    }

    #[test]
    fn the_wait_that_a_provider_asks_for_is_kept_and_one_without_a_permit_comes_again() {
        let throttled = |after| {
            let failure = Failure::new(Reason::Throttled, "slowly");
            Surveyed::Failed(Failure { retry_after: Some(Duration::from_secs(after)), ..failure })
        };
        assert_eq!(gaps([throttled(60), throttled(60), throttled(3600)]), [2, 4, 90]);
        assert_eq!(gaps([throttled(200)]), [5]);
        let no_permit = failed(Reason::Host(HostFault::NoPermit));
        assert_eq!(gaps([no_permit.clone(), failed(Reason::Busy), no_permit]), [1, 2, 1]);
    }

    #[test]
    fn that_lists_save_nothing_is_told_once() {
        let (policy, mut turns) = (Policy::default(), Turns::default());
        let poor = Surveyed::Shown(0, 100);
        let answers =
            [&poor, &poor, &failed(Reason::Host(HostFault::NoPermit)), &Surveyed::Shown(100, 100), &poor];
        let told = answers.map(|answer| turns.answered(answer, &policy));
        assert_eq!(told, [true, false, false, false, true]);
    }
}
