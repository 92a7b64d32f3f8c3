//! A start that waits for the API server: while it is away, or says that it cannot answer now, the process asks
//! again instead of ending. A refusal (no rights, nothing of the kind) is borne for a while, as the election does.
//! Whatever waiting cannot mend (a wrong certificate, a config that is of no use) ends the start at once.
//!
//! Why not let Kubernetes start the process again: it does so ever more slowly, up to five minutes apart, so that
//! nobody is there for minutes after the API server is back.

use std::io;
use std::time::Duration;

use kube::Error;
use tokio::time::{Instant, sleep};

use crate::kubernetes_client::{REFUSED, refuses};

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
    let (mut said, mut refused) = (None::<Instant>, None::<Instant>);
    loop {
        let error = match ask().await {
            Ok(answer) => {
                if said.is_some() {
                    tracing::info!(server, "the API server answers");
                }
                return Ok(answer);
            }
            Err(error) => error,
        };
        refused = match meaning(&error) {
            Meaning::Later => None,
            Meaning::Refused => Some(refused.unwrap_or_else(Instant::now)),
            Meaning::Never => return Err(error),
        };
        if refused.is_some_and(|since| since.elapsed() >= REFUSED) {
            return Err(error);
        }
        if said.is_none_or(|at| at.elapsed() >= SAID_AGAIN) {
            let error = format!("{error:#}");
            tracing::warn!(
                server,
                error,
                "waiting for the API server; the start goes on when it answers. Is it up, and is this its address?"
            );
            said = Some(Instant::now());
        }
        // Less up to a fifth by chance, so that a fleet of operators does not come back at once.
        sleep(wait.mul_f64(1.0 - rand::random::<f64>() / 5.0)).await;
        wait = (wait * 2).min(MOST);
    }
}

/// What a failure means for the same question later, with nothing changed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It may be answered.
    Later,
    /// The API server refuses; it may be about to start, or the rights to come.
    Refused,
    Never,
}

fn meaning(error: &anyhow::Error) -> Meaning {
    let may_pass = match error.chain().find_map(|cause| cause.downcast_ref::<Error>()) {
        Some(Error::Api(status)) if refuses(status) => return Meaning::Refused,
        Some(Error::Api(_)) => true,
        Some(error) => matches!(error, Error::Service(_) | Error::HyperError(_)) && !is_certificate(error),
        // The name of the server was not resolved.
        None => {
            error.chain().any(|cause| cause.is::<io::Error>() || cause.is::<tokio::time::error::Elapsed>())
        }
    };
    if may_pass { Meaning::Later } else { Meaning::Never }
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
