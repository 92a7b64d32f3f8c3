//! Compiling in a child process.
//!
//! A component of 13 MB takes half a minute and 350 MB to compile, and bugs of the compiler are not
//! treated as vulnerabilities upstream. The child is nice, bounded, gets the bytes on its standard input
//! and nothing else (no environment), and its memory is gone when it ends. The parent moves the artefact
//! to its place only after the child said that it is whole.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, nice, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::{LoadFault, Stage};
use crate::engine;

/// Longest compilation.
const MOST_TIME: Duration = Duration::from_mins(10);
/// CPU seconds of the child, enforced by the kernel should the parent be gone.
const MOST_CPU_SECONDS: u64 = 600;
/// Address space of the child.
const MOST_MEMORY: u64 = 8 << 30;
/// Most of the child's words that are kept.
const MOST_WORDS: u64 = 2 * 1024;

/// How the compile child is started: program and first arguments; the artefact's path is added as the
/// last one. The child runs [`compile_child_main`] with that path.
#[derive(Debug, Clone)]
pub struct CompileCommand {
    /// The program, usually this one.
    pub program: PathBuf,
    /// Its arguments, usually the hidden subcommand.
    pub args: Vec<OsString>,
}

impl CompileCommand {
    /// This program with a subcommand that calls [`compile_child_main`].
    ///
    /// # Errors
    /// If the system does not say where this program is.
    pub fn current_program(subcommand: &str) -> std::io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, args: vec![subcommand.into()] })
    }
}

/// Compiles `bytes` into `artefact`; the file appears there whole or not at all.
pub(super) async fn compile(
    command: &CompileCommand,
    bytes: &[u8],
    scratch: &Path,
    artefact: &Path,
) -> Result<(), LoadFault> {
    let fault = |what: String| LoadFault::new(Stage::Compile, what);
    remove(scratch);
    let outcome = tokio::time::timeout(MOST_TIME, run_child(command, bytes, scratch)).await;
    let result = match outcome {
        Ok(Ok(())) => std::fs::rename(scratch, artefact).map_err(|error| {
            fault(format!("the compiled component could not be moved to {}: {error}", artefact.display()))
        }),
        Ok(Err(what)) => Err(fault(what)),
        Err(_elapsed) => Err(fault(format!(
            "compiling took longer than {} s; use a smaller component or a faster machine",
            MOST_TIME.as_secs()
        ))),
    };
    remove(scratch);
    result
}

fn remove(scratch: &Path) {
    if let Err(error) = std::fs::remove_file(scratch)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %scratch.display(), %error, "could not remove an unfinished compiled component");
    }
}

async fn run_child(command: &CompileCommand, bytes: &[u8], scratch: &Path) -> Result<(), String> {
    let mut child = Command::new(&command.program)
        .args(&command.args)
        .arg(scratch)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("could not start {} to compile: {error}", command.program.display()))?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A child that ends early closes its end: its exit status says why.
            if let Err(error) = stdin.write_all(bytes).await {
                tracing::debug!(%error, "the compile child closed its input early");
            }
        }
    };
    let listen = async {
        let mut words = Vec::new();
        if let Some(stderr) = stderr
            && let Err(error) = stderr.take(MOST_WORDS).read_to_end(&mut words).await
        {
            tracing::debug!(%error, "the compile child's words could not be read");
        }
        String::from_utf8_lossy(&words).trim().to_owned()
    };
    let ((), words, status) = tokio::join!(feed, listen, child.wait());
    let status = status.map_err(|error| format!("waiting for the compile child failed: {error}"))?;
    if status.success() {
        Ok(())
    } else if words.is_empty() {
        Err(format!("compiling ended without a word ({status}); was the process out of memory?"))
    } else {
        Err(format!("the component does not compile: {words}"))
    }
}

/// The child's whole life: read a component from standard input, compile it, write the artefact to the
/// path that is the only argument. Words about a failure go to standard error, one line.
pub fn compile_child_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match child(args.into_iter().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            // Nobody is left to tell if standard error is closed.
            let _closed = writeln!(std::io::stderr(), "{what}");
            ExitCode::FAILURE
        }
    }
}

fn child(args: Vec<OsString>) -> Result<(), String> {
    let [artefact] = <[OsString; 1]>::try_from(args)
        .map_err(|args| format!("expected one argument, the path of the artefact, and got {}", args.len()))?;
    // Bounds are a courtesy to the machine: where the system refuses them the work still gets done.
    let _nicer = nice(10);
    let _bounded = bound(Resource::Cpu, MOST_CPU_SECONDS).and_then(|()| bound(Resource::As, MOST_MEMORY));
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| format!("no input: {error}"))?;
    let engine = engine::bare_engine().map_err(|error| format!("{error:#}"))?;
    let code = engine.precompile_component(&bytes).map_err(|error| format!("{error:#}"))?;
    let write = |error| format!("could not write {}: {error}", Path::new(&artefact).display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&artefact).map_err(write)?;
    file.write_all(&code).and_then(|()| file.sync_all()).map_err(write)
}

fn bound(resource: Resource, most: u64) -> rustix::io::Result<()> {
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
}
