//! Who may have another place: a provider as long as it has fewer than three times as many as are free.
//!
//! Alone it gets three quarters of all, and two that hang get three sevenths each. Some are left for whoever comes
//! next, as long as not a third as many providers as there are places hang at once; nobody has to know who that is.

/// Places that a provider may have for each one that is free.
const FOR_EACH_FREE: usize = 3;

/// True if one that has so many places may have another of those that are free.
pub(super) fn has_room(has: usize, free: usize) -> bool {
    has < free.saturating_mul(FOR_EACH_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What so many get that want all they can get, in turns.
    fn hungry(most: usize, many: usize) -> Vec<usize> {
        let mut got = vec![0; many];
        loop {
            let before = got.clone();
            for one in 0..many {
                if has_room(got[one], most - got.iter().sum::<usize>()) {
                    got[one] += 1;
                }
            }
            if got == before {
                return got;
            }
        }
    }

    #[test]
    fn however_many_hang_some_places_are_left_for_another() {
        for (many, each, left) in [(1, 96, 32), (2, 55, 18), (3, 39, 12), (8, 16, 5), (20, 7, 2)] {
            let got = hungry(128, many);
            assert_eq!((got[0], 128 - got.iter().sum::<usize>()), (each, left), "{got:?}");
        }
        for many in 1..=42 {
            assert!(hungry(128, many).iter().sum::<usize>() < 128, "{many}");
        }
    }

    #[test]
    fn a_place_that_is_free_can_be_had_by_somebody() {
        assert!(has_room(0, 1) && has_room(2, 1));
        assert!(!has_room(3, 1) && !has_room(0, 0));
        assert!(has_room(usize::MAX - 1, usize::MAX), "where there is no bound nobody waits");
    }
}
