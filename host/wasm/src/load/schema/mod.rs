//! A guest's JSON Schemas: compiled once, with bounds, and used to check documents before the guest sees
//! them.
//!
//! Schemas come from the guest and are therefore hostile: their size and depth are bounded, nothing is
//! fetched (references stay inside the document), patterns run on an engine without backtracking, and what
//! a check can cost is known before it begins. One that costs nearly nothing, as nearly all do, is made in place;
//! the others run where threads may wait, with a time-out.

mod measure;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::call::mask::one_line;

/// Largest schema text.
const MOST_BYTES: usize = 64 * 1024;
/// Memory of one pattern's automaton.
const PATTERN_BYTES: usize = 256 * 1024;
/// Largest product of schema and document that is judged: a second or less.
const MOST_WORK: u64 = 20_000_000;
/// Largest product that is explained, fault by fault: each of them is kept until all are found.
const MOST_EXPLAINED: u64 = 200_000;
/// Largest product that is judged in place: half a millisecond or less.
const MOST_IN_PLACE: u64 = 10_000;
/// Bytes of a text that count as one value.
const VALUE_BYTES: usize = 32;
/// Longest check. Nothing should come near it.
const MOST_TIME: Duration = Duration::from_secs(2);
/// Longest pointer and longest message of a fault.
const MOST_POINTER: usize = 256;
const MOST_MESSAGE: usize = 700;
/// Most complaints that are shown of one document.
const MOST_ERRORS: usize = 3;

/// Checks one kind of document.
#[derive(Debug)]
pub(crate) enum DocumentSchema {
    /// The guest gave none: only `{}` is accepted.
    EmptyOnly,
    /// The guest's schema.
    Given {
        /// It, compiled.
        validator: Box<Validator>,
        /// Its values, references followed.
        size: u64,
    },
}

/// Why a document was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CheckError {
    /// It breaks its schema.
    Fault(SchemaFault),
    /// Nobody knows; another try may.
    Undecided(&'static str),
}

/// Where a document breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaFault {
    /// JSON pointer of the first fault within the document, `""` for its root.
    pub(crate) pointer: String,
    /// What is wrong, all faults that are shown.
    pub(crate) message: String,
}

impl DocumentSchema {
    /// Judges and compiles a schema text. The error says what is wrong with the schema.
    pub(crate) fn compile(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::EmptyOnly) };
        if text.len() > MOST_BYTES {
            return Err(format!("has {} bytes; at most {MOST_BYTES} are allowed", text.len()));
        }
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        if !schema.is_object() {
            return Err("is not a JSON object".into());
        }
        let size = measure::measure(&schema)?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(
                PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES),
            )
            .offline()
            .build(&schema)
            .map_err(|error| format!("is no JSON Schema 2020-12: {error} (at {})", error.instance_path()))?;
        Ok(Self::Given { validator: Box::new(validator), size })
    }

    /// What it costs at most to check this document.
    fn work(&self, document: &Map<String, Value>) -> u64 {
        match self {
            Self::EmptyOnly => 0,
            Self::Given { size, .. } => weight_of(document).saturating_mul(*size),
        }
    }

    /// Checks a document.
    pub(crate) fn check(&self, document: &Map<String, Value>) -> Result<(), SchemaFault> {
        match self {
            Self::EmptyOnly => match document.keys().next() {
                None => Ok(()),
                Some(key) => Err(SchemaFault {
                    pointer: format!("/{}", key.replace('~', "~0").replace('/', "~1")),
                    message: "this provider takes no such field; it takes none at all here".into(),
                }),
            },
            Self::Given { validator, .. } => {
                let work = self.work(document);
                if work > MOST_WORK {
                    return Err(SchemaFault::of_all("is too large to be checked by this provider's schema"));
                }
                let document = Value::Object(document.clone());
                if validator.is_valid(&document) {
                    return Ok(());
                }
                if work > MOST_EXPLAINED {
                    return Err(SchemaFault::of_all("does not fit this provider's schema"));
                }
                Err(explain(validator, &document))
            }
        }
    }
}

impl SchemaFault {
    fn of_all(message: &str) -> Self {
        Self { pointer: String::new(), message: message.to_owned() }
    }
}

fn explain(validator: &Validator, document: &Value) -> SchemaFault {
    let mut faults = validator.iter_errors(document);
    let Some(first) = faults.next() else {
        return SchemaFault::of_all("does not fit this provider's schema");
    };
    let pointer = one_line(first.instance_path().as_str(), MOST_POINTER);
    let mut message = one_line(&first.to_string(), MOST_MESSAGE);
    for fault in faults.take(MOST_ERRORS - 1) {
        let place = one_line(fault.instance_path().as_str(), MOST_POINTER);
        message = format!("{message}; {} (at {place})", one_line(&fault.to_string(), MOST_MESSAGE));
    }
    SchemaFault { pointer, message: one_line(&message, MOST_MESSAGE) }
}

/// Values of a document; long texts count as several.
fn weight_of(document: &Map<String, Value>) -> u64 {
    let field = |(key, value): (&String, &Value)| text_weight(key).saturating_add(weight(value));
    document.iter().map(field).fold(1, u64::saturating_add)
}

fn text_weight(text: &str) -> u64 {
    u64::try_from(text.len() / VALUE_BYTES).unwrap_or(u64::MAX).saturating_add(1)
}

fn weight(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => weight_of(fields),
        Value::Array(items) => items.iter().fold(1, |sum: u64, item| sum.saturating_add(weight(item))),
        Value::String(content) => text_weight(content),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Checks a document; if that may take long, on a thread that may wait.
pub(crate) async fn check(
    schema: &Arc<DocumentSchema>,
    document: &Map<String, Value>,
) -> Result<(), CheckError> {
    if schema.work(document) <= MOST_IN_PLACE {
        return schema.check(document).map_err(CheckError::Fault);
    }
    let (schema, document) = (Arc::clone(schema), document.clone());
    let check = tokio::task::spawn_blocking(move || schema.check(&document));
    match tokio::time::timeout(MOST_TIME, check).await {
        Ok(Ok(result)) => result.map_err(CheckError::Fault),
        Ok(Err(_)) => Err(CheckError::Undecided("could not be checked: the operator is shutting down")),
        Err(_elapsed) => Err(CheckError::Undecided("could not be checked by this provider's schema in time")),
    }
}
