//! A start that waits for the API server: while it is away, or says that it cannot answer now, the process asks
//! again instead of ending. Whatever waiting cannot mend (rights, a wrong certificate, a config that is of no
//! use) ends the start at once.
//!
//! Why not let Kubernetes start the process again: it does so ever more slowly, up to five minutes apart, so that
//! nobody is there for minutes after the API server is back.

use std::io;
use std::time::Duration;

use kube::Error;
use kube::core::Status;
use tokio::time::{Instant, sleep};

/// First wait after a failure.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait.
const MOST: Duration = Duration::from_secs(10);
/// What is waited for is said so often.
const SAID_AGAIN: Duration = Duration::from_mins(1);

/// Asks the API server at this address until it gives an answer. Dropping the future ends the wait.
///
/// # Errors
/// The answer, if waiting changes nothing about it.
pub(super) async fn until_answered<T>(
    server: &str,
    ask: impl AsyncFn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut wait = FIRST;
    let mut said = None::<Instant>;
    loop {
        match ask().await {
            Ok(answer) => {
                if said.is_some() {
                    tracing::info!(server, "the API server answers");
                }
                return Ok(answer);
            }
            Err(error) if may_pass(&error) => {
                if said.is_none_or(|at| at.elapsed() >= SAID_AGAIN) {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        server,
                        error,
                        "waiting for the API server; the start goes on when it answers. Is it up, and is this its \
                         address?"
                    );
                    said = Some(Instant::now());
                }
            }
            Err(error) => return Err(error),
        }
        // Less up to a fifth by chance, so that a fleet of operators does not come back at once.
        sleep(wait.mul_f64(1.0 - rand::random::<f64>() / 5.0)).await;
        wait = (wait * 2).min(MOST);
    }
}

/// True if the same question may be answered later, with nothing changed here.
fn may_pass(error: &anyhow::Error) -> bool {
    match error.chain().find_map(|cause| cause.downcast_ref::<Error>()) {
        Some(Error::Api(status)) => !is_refusal(status),
        Some(error) => matches!(error, Error::Service(_) | Error::HyperError(_)) && !is_certificate(error),
        // The name of the server was not resolved.
        None => {
            error.chain().any(|cause| cause.is::<io::Error>() || cause.is::<tokio::time::error::Elapsed>())
        }
    }
}

/// True if it was the API server itself that refused: a load balancer whose backends are away may answer 404 with
/// a page, and what is no Status has no code.
fn is_refusal(status: &Status) -> bool {
    match status.code {
        0 | 429 => false,
        404 => status.reason == "NotFound",
        code => code < 500,
    }
}

/// True if one of both sides does not trust the other.
fn is_certificate(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        // An `io::Error` does not name what it was made from as its source.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = inside.and_then(|error| error.downcast_ref::<rustls::Error>());
        if tls.or_else(|| error.downcast_ref()).is_some_and(distrusts) {
            return true;
        }
        cause = inside.map_or_else(|| error.source(), |error| Some(error));
    }
    false
}

fn distrusts(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_))
}

#[cfg(test)]
mod tests;
