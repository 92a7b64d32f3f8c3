//! How much work a schema can make, told from its text before it is compiled.
//!
//! A validator visits a subschema once for each way that leads to it: forty definitions that name the next
//! one twice are 2^40 visits out of three kilobytes. So references are followed here, once each, and what
//! they stand for is counted as often as it stands there. Never runs longer than the text is long.

use std::collections::{HashMap, HashSet};
use std::ptr;

use serde_json::{Map, Value};

/// Deepest nesting, references followed: validators recurse.
const MOST_DEPTH: usize = 32;
/// Largest schema, references followed, in JSON values.
pub(super) const MOST_SIZE: u64 = 20_000;
/// What a pattern counts for: each has an automaton of up to a quarter MiB.
const PATTERN: u64 = 200;
/// How often a validator may look again below keywords whose branches may fail: to judge, and to complain.
const BRANCHES: u64 = 4;

/// Keywords below which a validator looks more than once.
const BRANCHING: [&str; 9] = [
    "anyOf",
    "oneOf",
    "not",
    "if",
    "contains",
    "propertyNames",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords that would lead a reference elsewhere than its text says.
const REFUSED: [&str; 6] =
    ["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor", "x-secret"];

/// Size and depth of a part of a schema, references followed.
#[derive(Debug, Clone, Copy)]
struct Size {
    values: u64,
    depth: usize,
}

/// Values of a schema, references followed, or why it is refused.
pub(super) fn measure(schema: &Value) -> Result<u64, String> {
    let mut measure = Measure { root: schema, known: HashMap::new(), open: HashSet::new() };
    Ok(measure.of(schema, 0)?.values)
}

struct Measure<'a> {
    root: &'a Value,
    /// Targets of references, by their place in the document.
    known: HashMap<*const Value, Size>,
    /// Those that are being measured: one of them again would never end.
    open: HashSet<*const Value>,
}

impl<'a> Measure<'a> {
    fn of(&mut self, value: &'a Value, depth: usize) -> Result<Size, String> {
        if depth > MOST_DEPTH {
            return Err(too_deep());
        }
        let mut size = Size { values: 1, depth: 1 };
        match value {
            Value::Object(fields) => self.object(fields, depth, &mut size)?,
            Value::Array(items) => {
                for item in items {
                    let part = self.of(item, depth + 1)?;
                    add(&mut size, part, 1)?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(size)
    }

    fn object(
        &mut self,
        fields: &'a Map<String, Value>,
        depth: usize,
        size: &mut Size,
    ) -> Result<(), String> {
        // These look at everything beside them once more.
        let again = ["unevaluatedItems", "unevaluatedProperties"].iter().any(|key| fields.contains_key(*key));
        let all = if again { BRANCHES } else { 1 };
        for (key, value) in fields {
            refuse(key, value, depth)?;
            let part = match (key.as_str(), value) {
                ("$ref", Value::String(target)) => self.target(target, depth + 1)?,
                ("pattern", Value::String(_)) => Size { values: PATTERN, depth: 1 },
                ("patternProperties", Value::Object(patterns)) => {
                    let mut part = self.of(value, depth + 1)?;
                    let count = u64::try_from(patterns.len()).unwrap_or(u64::MAX);
                    part.values = part.values.saturating_add(count.saturating_mul(PATTERN));
                    part
                }
                _ => self.of(value, depth + 1)?,
            };
            let times = if BRANCHING.contains(&key.as_str()) { BRANCHES } else { 1 };
            add(size, part, times.saturating_mul(all))?;
        }
        Ok(())
    }

    fn target(&mut self, text: &str, depth: usize) -> Result<Size, String> {
        let shown: String = text.chars().take(80).collect();
        let Some(pointer) = text.strip_prefix('#') else {
            return Err(format!(
                "refers to {shown:?}; only references inside the schema (#/...) are allowed"
            ));
        };
        if pointer.contains('%') || !(pointer.is_empty() || pointer.starts_with('/')) {
            return Err(format!("refers to {shown:?}; write it as a path, #/..., without percent signs"));
        }
        let target =
            self.root.pointer(pointer).ok_or_else(|| format!("refers to {shown:?}, which is not there"))?;
        let place = ptr::from_ref(target);
        if let Some(known) = self.known.get(&place) {
            if depth.saturating_add(known.depth) > MOST_DEPTH {
                return Err(too_deep());
            }
            return Ok(*known);
        }
        if !self.open.insert(place) {
            return Err(format!("refers to {shown:?} from inside of it; a schema of a provider must end"));
        }
        let size = self.of(target, depth)?;
        self.open.remove(&place);
        self.known.insert(place, size);
        Ok(size)
    }
}

fn add(size: &mut Size, part: Size, times: u64) -> Result<(), String> {
    size.depth = size.depth.max(part.depth.saturating_add(1));
    size.values = size.values.saturating_add(part.values.saturating_mul(times));
    if size.values > MOST_SIZE {
        return Err(format!(
            "is too much work: with its references followed it has more than {MOST_SIZE} values (a pattern counts as {PATTERN}, branches such as anyOf count {BRANCHES} times)"
        ));
    }
    Ok(())
}

fn refuse(key: &str, value: &Value, depth: usize) -> Result<(), String> {
    if key == "x-secret" {
        return Err("uses x-secret; secrets are never part of a configuration".into());
    }
    if REFUSED.contains(&key) || (key == "$id" && depth > 0 && value.is_string()) {
        return Err(format!("uses {key}; only $ref with a path (#/...) is allowed"));
    }
    Ok(())
}

fn too_deep() -> String {
    format!("is nested deeper than {MOST_DEPTH} levels, references followed")
}
