//! A guest's JSON Schemas: compiled once, with bounds, and used to check documents before the guest sees
//! them.
//!
//! Schemas come from the guest and are therefore hostile: their size and depth are bounded, nothing is
//! fetched (references stay inside the document), and patterns run on an engine without backtracking.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

/// Largest schema text.
const MOST_BYTES: usize = 64 * 1024;
/// Deepest nesting of a schema.
const MOST_DEPTH: usize = 32;
/// Most complaints that are shown of one document.
const MOST_ERRORS: usize = 3;

/// Checks one kind of document.
#[derive(Debug)]
pub(crate) enum DocumentSchema {
    /// The guest gave none: only `{}` is accepted.
    EmptyOnly,
    /// The guest's schema.
    Given(Box<Validator>),
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
        sane(&schema, 0)?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20).dfa_size_limit(1 << 20))
            .offline()
            .build(&schema)
            .map_err(|error| format!("is no JSON Schema 2020-12: {error} (at {})", error.instance_path()))?;
        Ok(Self::Given(Box::new(validator)))
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
            Self::Given(validator) => {
                let document = Value::Object(document.clone());
                let mut faults = validator.iter_errors(&document);
                let Some(first) = faults.next() else { return Ok(()) };
                let pointer = first.instance_path().as_str().to_owned();
                let mut message = first.to_string();
                for fault in faults.take(MOST_ERRORS - 1) {
                    message = format!("{message}; {} (at {})", fault, fault.instance_path());
                }
                Err(SchemaFault { pointer, message: message.chars().take(700).collect() })
            }
        }
    }
}

/// Depth, references and keywords that this host refuses.
fn sane(schema: &Value, depth: usize) -> Result<(), String> {
    if depth > MOST_DEPTH {
        return Err(format!("is nested deeper than {MOST_DEPTH} levels"));
    }
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                if (key == "$ref" || key == "$dynamicRef")
                    && value.as_str().is_some_and(|target| !target.starts_with('#'))
                {
                    return Err(format!(
                        "refers to {value}; only references inside the schema (#/...) are allowed"
                    ));
                }
                if key == "x-secret" {
                    return Err("uses x-secret; secrets are never part of a configuration".into());
                }
                sane(value, depth + 1)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| sane(item, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_fault_has_a_pointer_and_a_message() {
        let schema = DocumentSchema::compile(Some(
            r#"{"type":"object","properties":{"zone":{"type":"string","pattern":"^[a-z]+$"}},"required":["zone"],"additionalProperties":false}"#,
        ))
        .unwrap();
        assert!(schema.check(&map(json!({"zone": "a"}))).is_ok());
        let fault = schema.check(&map(json!({"zone": 3}))).unwrap_err();
        assert_eq!(fault.pointer, "/zone");
        assert!(fault.message.contains("string"), "{}", fault.message);
        let fault = schema.check(&map(json!({"zone": "a", "foo": 1}))).unwrap_err();
        assert!(fault.message.contains("foo"), "{}", fault.message);
    }

    #[test]
    fn without_a_schema_only_the_empty_document_is_accepted() {
        let schema = DocumentSchema::compile(None).unwrap();
        assert!(schema.check(&Map::new()).is_ok());
        assert_eq!(schema.check(&map(json!({"a/b": 1}))).unwrap_err().pointer, "/a~1b");
    }

    #[test]
    fn hostile_schemas_are_refused() {
        let deep = format!("{}{{}}{}", r#"{"not":"#.repeat(40), "}".repeat(40));
        for (text, word) in [
            (r#"{"$ref":"https://example.com/schema"}"#, "refers to"),
            (r#"{"$ref":"file:///etc/passwd"}"#, "refers to"),
            ("[1]", "JSON object"),
            ("{", "not JSON"),
            (r#"{"type":"thing"}"#, "no JSON Schema"),
            (r#"{"properties":{"a":{"x-secret":true}}}"#, "x-secret"),
            (deep.as_str(), "nested deeper"),
            (r#"{"pattern":"(a+)+$(?=b)"}"#, "no JSON Schema"),
        ] {
            let error = DocumentSchema::compile(Some(text)).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let big = format!(r#"{{"title":"{}"}}"#, "x".repeat(MOST_BYTES));
        assert!(DocumentSchema::compile(Some(&big)).unwrap_err().contains("at most"));
    }

    #[test]
    fn a_pattern_that_would_backtrack_for_ever_answers_at_once() {
        let schema = DocumentSchema::compile(Some(r#"{"properties":{"a":{"pattern":"^(a+)+$"}}}"#)).unwrap();
        assert!(schema.check(&map(json!({"a": format!("{}b", "a".repeat(5_000))}))).is_err());
    }
}
