//! Who may act: what the election tells the rooms that change something outside of this process.
//!
//! A value, so that rooms that never import one another can be told the same. It elects nobody and never
//! waits for an election by itself.

use std::sync::Arc;

use tokio::sync::watch;

/// Who may act. Every replica publishes the fleet; only one acts.
#[derive(Clone)]
pub struct Leadership {
    /// Becomes true when this process is elected.
    pub elected: watch::Receiver<bool>,
    /// Asked before each effect.
    pub may_act: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Leadership {
    /// There is no other process.
    pub fn alone() -> Self {
        Self { elected: watch::channel(true).1, may_act: Arc::new(|| true) }
    }
}

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leadership").field("elected", &*self.elected.borrow()).finish_non_exhaustive()
    }
}
