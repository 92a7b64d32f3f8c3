//! The time of one probe, spent step by step, so that a time-out can say in which step it happened.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Sleep;

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

/// What is left of the time of one probe.
pub(super) struct Budget {
    sleep: Pin<Box<Sleep>>,
    timeout: Duration,
}

impl Budget {
    pub(super) fn start(timeout: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(timeout)), timeout }
    }

    /// Runs a step; fails with the step's name when the time of the whole probe is over.
    pub(super) async fn spend<T>(
        &mut self,
        stage: Stage,
        step: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            result = step => result,
            () = &mut self.sleep => Err(Failure::timeout(stage, self.timeout)),
        }
    }
}
