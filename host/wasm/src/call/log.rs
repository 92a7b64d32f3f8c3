//! What a guest writes: its log lines and its standard output and error, as lines of our log.
//!
//! Never fails and never blocks the guest: lines are cut, control characters replaced, secrets hidden, and
//! what is too much is dropped and counted. The last words on standard error are kept for the message of
//! a trap.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use egress_proxies_core::ids::ProviderName;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::mask::{MOST_PIECE, Mask, one_line};

/// Lines of one call.
const MOST_LINES: u32 = 200;
/// Bytes of one line.
const MOST_LINE: usize = 2 * 1024;
/// Fields of one line, and bytes of the name of one.
const MOST_FIELDS: usize = 16;
const MOST_KEY: usize = 64;
/// Last words on standard error that are kept.
const MOST_TAIL: usize = 2 * 1024;
/// Most that a guest may write at once.
const MOST_WRITE: usize = 64 * 1024;

/// How urgent a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// The log of one call; clones write to the same.
#[derive(Debug, Clone)]
pub(crate) struct GuestLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: ProviderName,
    op: &'static str,
    request_id: String,
    mask: Mask,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: u32,
    dropped: u32,
    tail: String,
}

impl GuestLog {
    pub(crate) fn new(provider: ProviderName, op: &'static str, request_id: String, mask: Mask) -> Self {
        Self(Arc::new(Inner { provider, op, request_id, mask, state: Mutex::default() }))
    }

    /// Writes one line.
    pub(crate) fn line(&self, level: Level, text: &str) {
        if !self.room() {
            return;
        }
        self.write(level, &self.masked(text));
    }

    /// A message with fields. Secrets are hidden before anything is quoted or cut.
    pub(crate) fn line_of<'a>(
        &self,
        level: Level,
        message: &str,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
    ) {
        if !self.room() {
            return;
        }
        let mut line = self.masked(message);
        for (key, value) in fields.take(MOST_FIELDS) {
            let value = self.0.mask.line(value, MOST_LINE);
            line = format!("{line} {}={value:?}", self.0.mask.line(key, MOST_KEY));
        }
        self.write(level, &one_line(&line, MOST_LINE));
    }

    /// Counts one line; false once there were enough.
    fn room(&self) -> bool {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lines >= MOST_LINES {
            state.dropped = state.dropped.saturating_add(1);
            return false;
        }
        state.lines += 1;
        true
    }

    /// One line without secrets. A longer one is cut, and what is left of a secret at its end goes too.
    fn masked(&self, text: &str) -> String {
        self.0.mask.line(text, MOST_LINE)
    }

    fn write(&self, level: Level, line: &str) {
        let Inner { provider, op, request_id, .. } = &*self.0;
        match level {
            Level::Debug => tracing::debug!(target: "provider.guest", %provider, op, %request_id, "{line}"),
            Level::Info => tracing::info!(target: "provider.guest", %provider, op, %request_id, "{line}"),
            Level::Warn => tracing::warn!(target: "provider.guest", %provider, op, %request_id, "{line}"),
            Level::Error => tracing::error!(target: "provider.guest", %provider, op, %request_id, "{line}"),
        }
    }

    /// The last words on standard error, secrets hidden.
    pub(crate) fn tail(&self) -> String {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tail.trim().to_owned()
    }

    /// Says once how much was dropped.
    pub(crate) fn close(&self) {
        let dropped = self.0.state.lock().unwrap_or_else(PoisonError::into_inner).dropped;
        if dropped > 0 {
            let Inner { provider, op, request_id, .. } = &*self.0;
            tracing::warn!(target: "provider.guest", %provider, op, %request_id, dropped, "the provider wrote too many lines");
        }
    }

    fn keep(&self, text: &str) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tail.push_str(text);
        state.tail.push('\n');
        while state.tail.len() > MOST_TAIL {
            let Some(end) = state.tail.find('\n') else { break };
            state.tail.drain(..=end);
        }
    }
}

/// Standard output or error of a guest.
#[derive(Debug, Clone)]
pub(crate) struct GuestOutput {
    log: GuestLog,
    level: Level,
    buffer: Arc<Mutex<Vec<u8>>>,
}

impl GuestOutput {
    /// Lines of standard output are information, lines of standard error are warnings.
    pub(crate) fn new(log: GuestLog, level: Level) -> Self {
        Self { log, level, buffer: Arc::default() }
    }

    fn take(&self, bytes: &[u8]) {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            // More than is written, so that the line is known to be cut.
            let room = (MOST_LINE + MOST_PIECE + 1).saturating_sub(buffer.len());
            buffer.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                self.write_out(&mut buffer);
            }
        }
    }

    fn write_out(&self, buffer: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(buffer).trim().to_owned();
        buffer.clear();
        if !text.is_empty() {
            if self.level == Level::Warn {
                self.log.keep(&self.log.masked(&text));
            }
            self.log.line(self.level, &text);
        }
    }

    /// Writes what has no end of line yet.
    pub(crate) fn finish(&self) {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_out(&mut buffer);
    }
}

#[async_trait]
impl Pollable for GuestOutput {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for GuestOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MOST_WRITE)
    }
}

impl IsTerminal for GuestOutput {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestOutput {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // WASI 0.3 alone asks for this one, and no 0.3 import is ever linked.
        Box::new(tokio::io::sink())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> GuestLog {
        GuestLog::new(ProviderName::parse("p").unwrap(), "get", "r".into(), Mask::default())
    }

    #[test]
    fn a_flood_of_lines_is_counted_and_not_kept() {
        let log = log();
        for _ in 0..1_000 {
            log.line(Level::Info, "x");
        }
        let state = log.0.state.lock().unwrap();
        assert_eq!((state.lines, state.dropped), (MOST_LINES, 800));
    }

    #[test]
    fn output_without_an_end_of_line_is_bounded_and_written_at_the_end() {
        let (log, mut bytes) = (log(), vec![b'x'; 100 * 1024]);
        bytes.extend_from_slice(b"\npanicked at");
        let output = GuestOutput::new(log.clone(), Level::Warn);
        output.take(&bytes);
        assert!(output.buffer.lock().unwrap().len() < 100);
        output.finish();
        assert!(log.tail().ends_with("panicked at"), "{}", log.tail());
        assert!(log.tail().len() <= 2 * MOST_TAIL);
    }

    /// A panic that quotes a line of the bootstrap longer than a line of the log.
    #[test]
    fn a_line_that_is_cut_shows_no_part_of_a_secret() {
        let key = "0123456789abcdef".repeat(1_000);
        let request = egress_proxies_core::provider::CreateRequest {
            name: "px-1".into(),
            attempt_key: String::new(),
            port: 1,
            placement: serde_json::Map::new(),
            parameters: serde_json::Map::new(),
            bootstrap: Some(egress_proxies_core::provider::Secret::new(format!("content: {key}"))),
            access: None,
            tags: Default::default(),
        };
        let log = GuestLog::new(ProviderName::parse("p").unwrap(), "create", "r".into(), Mask::of(&request));
        let output = GuestOutput::new(log.clone(), Level::Warn);
        output.take(format!("panicked at 'content: {key}'\nnote: the end\n").as_bytes());
        assert_eq!(log.tail(), "panicked at '***\nnote: the end");
        assert_eq!(log.masked(&format!("content: {key}")), "***");
    }
}
