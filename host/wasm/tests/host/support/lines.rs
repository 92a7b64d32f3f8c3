//! What guests write to the log, as the operator would see it.

use std::fmt::{Debug, Write as _};
use std::sync::{LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LINES: LazyLock<Lines> = LazyLock::new(|| {
    // Guests run on threads of their own, so it has to be everybody's.
    tracing::subscriber::set_global_default(Listener).expect("nobody else listens");
    Lines::default()
});

/// Lines of all providers of this process.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<String>>);

/// Begins to listen.
pub(crate) fn listen() -> &'static Lines {
    &LINES
}

impl Lines {
    /// Those of one provider.
    pub(crate) fn of(&self, provider: &str) -> Vec<String> {
        let mark = format!(" provider={provider} ");
        self.0.lock().unwrap().iter().filter(|line| line.contains(&mark)).cloned().collect()
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "provider.guest"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(" ".to_owned());
        event.record(&mut line);
        LINES.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
