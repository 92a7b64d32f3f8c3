//! Parses the command line and calls the application.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use egress_proxies_operator::cli;

/// A Kubernetes operator for fleets of HTTP egress proxies.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the CustomResourceDefinition as YAML, for `kubectl apply -f -`.
    Crd,
}

fn main() -> ExitCode {
    match command(Arguments::parse().command) {
        Ok(text) => print(&text),
        Err(error) => fail(&error),
    }
}

fn command(command: Command) -> anyhow::Result<String> {
    match command {
        Command::Crd => cli::crd::yaml(),
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader went away, as `head` does.
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    match writeln!(std::io::stderr(), "error: {error:#}") {
        Ok(()) | Err(_) => ExitCode::FAILURE,
    }
}
