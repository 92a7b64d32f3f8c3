//! What a call holds of answers from outside, in bytes.
//!
//! A guest may keep an answer for as long as its call lasts, and the bytes are the host's memory, not the
//! guest's. So they are counted for as long as they live, wherever they are handed on to.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that one call may hold.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

/// A part of a budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share(OwnedSemaphorePermit);

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// That many bytes if they are left. Never waits.
    pub(super) fn take(&self, bytes: usize) -> Option<Share> {
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(bytes).ok().map(Share)
    }

    /// That many bytes, as soon as they are given back.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<Share> {
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.0).acquire_many_owned(bytes).await.ok().map(Share)
    }
}

impl Share {
    /// Both in one.
    pub(super) fn add(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    /// Gives back what is beyond that many bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let beyond = self.0.num_permits().saturating_sub(bytes);
        drop(self.0.split(beyond));
    }

    /// The same bytes, which hold on to this share for as long as anybody holds on to them.
    pub(super) fn keep(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Kept { bytes, _share: self })
    }
}

struct Kept {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_count_until_nobody_holds_a_part_of_them() {
        let budget = Budget::new(10);
        let mut share = budget.take(4).unwrap();
        share.add(budget.take(4).unwrap());
        assert!(budget.take(3).is_none());
        share.shrink(6);
        let kept = share.keep(Bytes::from_static(b"answer"));
        let part = kept.slice(2..4);
        drop(kept);
        assert!(budget.take(5).is_none(), "a part of the answer is still held");
        assert_eq!(part.as_ref(), b"sw");
        drop(part);
        assert!(budget.reserve(10).await.is_some());
    }
}
