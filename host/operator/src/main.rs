//! Parses the command line and calls the application.

mod allocator;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use egress_proxies_operator::config::{ComponentStore, Settings};
use egress_proxies_operator::{cli, http, metrics};

/// A Kubernetes operator for fleets of HTTP egress proxies.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator.
    Run(Box<Settings>),
    /// Print the CustomResourceDefinition as YAML, for `kubectl apply -f -`.
    Crd,
    /// Print the description of the discovery and lease API as OpenAPI JSON.
    Openapi,
    /// Print the table of metrics as Markdown.
    Metrics,
    /// Look at providers.
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Compile one component; the operator calls this itself.
    #[command(hide = true, trailing_var_arg = true)]
    CompileComponent {
        /// What the operator gives.
        #[arg(allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
enum ProviderCommand {
    /// Load a component (.wasm), or everything in a providers config (.yaml), as `run` would, and report on it.
    Inspect {
        /// The component or providers config.
        file: PathBuf,
        /// Where compiled components are kept.
        #[command(flatten)]
        store: ComponentStore,
    },
}

fn main() -> ExitCode {
    match command(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(settings) => cli::run::run(*settings),
        Command::Crd => Ok(print(&cli::crd::yaml()?)),
        Command::Openapi => Ok(print(http::openapi_json())),
        Command::Metrics => Ok(print(&metrics::markdown())),
        Command::Provider(ProviderCommand::Inspect { file, store }) => {
            let (report, ready) = cli::provider::inspect(&file, &store)?;
            let printed = print(&report);
            Ok(if ready { printed } else { ExitCode::FAILURE })
        }
        Command::CompileComponent { arguments } => Ok(egress_proxies_wasm::compile_child_main(arguments)),
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
