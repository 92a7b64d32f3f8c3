//! Who may act: what the election tells the rooms that change something outside of this process.
//!
//! A value, so that rooms that never import one another can be told the same. It elects nobody and never
//! waits for an election by itself.

use std::sync::Arc;

pub use egress_proxies_wasm::gate::while_allowed;
use tokio::sync::watch;

/// Who may act. Every replica publishes the fleet; only one acts.
#[derive(Clone)]
pub struct Leadership {
    /// Becomes true when this process is elected, and stays so until it ends.
    pub elected: watch::Receiver<bool>,
    /// Asked before each effect. False before the election, and in between while the API server is away: then
    /// what is due has to be tried again later.
    pub may_act: Arc<dyn Fn() -> bool + Send + Sync>,
    /// How many pauses are over, told before this process may act again. At that moment the API server has answered,
    /// and what was read of it before may be as old as the pause.
    pub resumed: watch::Receiver<u64>,
    /// Others may lead instead of this process.
    pub shared: bool,
}

impl Leadership {
    /// There is no other process.
    pub fn alone() -> Self {
        let (elected, resumed) = (watch::channel(true).1, watch::channel(0).1);
        Self { elected, may_act: Arc::new(|| true), resumed, shared: false }
    }
}

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leadership").field("elected", &*self.elected.borrow()).finish_non_exhaustive()
    }
}
