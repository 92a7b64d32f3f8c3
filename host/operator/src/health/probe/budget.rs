//! The time of one probe, spent step by step, so that a time-out can say in which step it happened.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use super::failure::Failure;

/// A step of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Finding the addresses of the proxy.
    Resolve,
    /// TCP connection to the proxy.
    Connect,
    /// CONNECT and its answer.
    Tunnel,
    /// TLS inside the tunnel.
    Tls,
    /// The request and its answer.
    Answer,
}

/// The time of one probe.
pub(super) struct Budget {
    deadline: Instant,
    timeout: Duration,
}

impl Budget {
    pub(super) fn start(timeout: Duration) -> Self {
        Self { deadline: tokio::time::sleep(timeout).deadline(), timeout }
    }

    /// Runs a step; fails with the step's name when the time of the whole probe is over.
    ///
    /// `timeout_at` and no `select!` with a sleep: a peer that sends without end uses up the task's share of
    /// each turn, and a plain sleep would then never be asked.
    pub(super) async fn spend<T>(
        &self,
        stage: Stage,
        step: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let ended = tokio::time::timeout_at(self.deadline, step).await;
        ended.unwrap_or_else(|_| Err(Failure::timeout(stage, self.timeout)))
    }
}

#[cfg(test)]
mod tests {
    use egress_proxies_core::health::ProbeReason;

    use super::*;

    #[tokio::test]
    async fn a_step_that_always_has_more_to_do_ends_with_the_time_of_the_probe() {
        let greedy = async {
            loop {
                tokio::task::coop::consume_budget().await;
            }
        };
        let budget = Budget::start(Duration::from_millis(50));
        let spent = budget.spend::<()>(Stage::Tunnel, greedy);
        let ended = tokio::time::timeout(Duration::from_secs(5), spent).await.expect("it ends by itself");
        assert_eq!(ended.unwrap_err().reason, ProbeReason::Timeout);
    }
}
