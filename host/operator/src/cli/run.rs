//! `run`: logging, signals, and the application on its runtime.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::app::{self, Ending};
use crate::config::{LogFormat, Settings};

/// Time for blocking work (name look-ups, file reads) at the very end.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Runs the operator until SIGTERM, SIGINT, or an error. A second signal does not wait for what is under way.
/// Why it ended is the last line of the log, and said nowhere else.
///
/// # Errors
/// What there is no log for: the log could not be started, or shows no errors.
pub fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    start_log(&settings)?;
    keep_pages_small();
    match logged(settings) {
        Ok(()) => {
            tracing::info!("stopped");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if tracing::enabled!(tracing::Level::ERROR) => {
            tracing::error!("stopped: {error:#}");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

/// Where the system gives huge pages to everybody (`always`, as Debian does), a process of many small things takes
/// half as much memory again: 90 MB instead of 60 for 1,000 Proxies.
fn keep_pages_small() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay as the system has them");
    }
}

fn logged(settings: Settings) -> anyhow::Result<()> {
    // The first one wins; that there is one already is what is wanted.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let runtime = Builder::new_multi_thread().enable_all().build().context("no threads to run on")?;
    let outcome = runtime.block_on(until_signalled(settings));
    runtime.shutdown_timeout(LAST_WAIT);
    outcome
}

async fn until_signalled(settings: Settings) -> anyhow::Result<()> {
    let ending = Ending::default();
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be listened for")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be listened for")?;
    let mut application = Box::pin(app::run(settings, ending.clone()));
    loop {
        tokio::select! {
            outcome = &mut application => return outcome,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if ending.stop.is_cancelled() {
            tracing::warn!("told to stop again: not waiting for what is under way");
            ending.hurry.cancel();
        } else {
            tracing::info!("told to stop: finishing what is under way");
            ending.stop.cancel();
        }
    }
}

fn start_log(settings: &Settings) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.log).with_context(|| {
        format!("--log {:?} is no filter; use one such as info,egress_proxies_operator=debug", settings.log)
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match settings.log_format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("the log could not be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_small() {
        keep_pages_small();
        assert!(rustix::thread::transparent_huge_pages_are_disabled().unwrap());
    }
}
