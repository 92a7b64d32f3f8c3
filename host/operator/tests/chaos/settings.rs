//! What `make chaos` may ask for, and how these tests speak.

use std::num::ParseIntError;

/// How many random schedules are run, and the seed of the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) schedules: u64,
    pub(crate) seed: u64,
    /// How long objects come and go.
    pub(crate) churn_seconds: u64,
}

impl Settings {
    /// `CHAOS_SCHEDULES`, `CHAOS_SEED` and `CHAOS_CHURN_SECONDS`, else few schedules of a seed that nobody chose.
    pub(crate) fn read() -> Self {
        Self {
            schedules: number("CHAOS_SCHEDULES").unwrap_or(16),
            seed: number("CHAOS_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>())),
            churn_seconds: number("CHAOS_CHURN_SECONDS").unwrap_or(15),
        }
    }
}

/// With `CHAOS_LOG` set to anything, the decisions of the operators are printed: for one schedule at a time.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment whether to say more")]
pub(crate) fn log_if_asked() {
    if std::env::var_os("CHAOS_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::new("egress_proxies_operator=debug");
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).init();
    }
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment how long to go on")]
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed: Result<u64, ParseIntError> = text.parse();
    Some(parsed.unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// A line that a person who ran the tests with `--nocapture` sees.
#[expect(clippy::print_stdout, reason = "counts and seeds are what this is run for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
