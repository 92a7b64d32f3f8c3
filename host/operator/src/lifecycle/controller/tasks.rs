//! Tasks that must not end, by name: the last line of the log has to say which of them did.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

use super::LifecycleError;

/// Running tasks. Dropping them ends them.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, String>,
}

impl Tasks {
    pub(super) fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.running.spawn(task);
        self.names.insert(handle.id(), name.into());
    }

    /// Resolves when one of them has ended, which none should.
    pub(super) async fn ended(&mut self) -> LifecycleError {
        let Some(ended) = self.running.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
        let name = self.names.remove(&id).unwrap_or_default();
        match ended {
            Ok(_) => LifecycleError::Ended(name),
            Err(error) => LifecycleError::Died(name, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_ended_is_named() {
        let mut tasks = Tasks::default();
        tasks.spawn("the relay", std::future::pending());
        tasks.spawn("the watch of Proxies", async {});
        assert_eq!(tasks.ended().await.to_string(), "the watch of Proxies ended although nobody told it to");
        tasks.spawn("the publisher", async { panic!("boom") });
        let died = tasks.ended().await.to_string();
        assert!(died.starts_with("the publisher died: ") && died.contains("boom"), "{died}");
    }
}
