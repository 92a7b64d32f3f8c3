//! The JSON documents of a request, read into types, with the field at fault in every error.
//!
//! The operator has checked them against the provider's schemas; what still fails here is a schema that
//! says less than the type, and the message must tell its user which field.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use crate::failure;
use crate::model::Failure;

/// Read `text`, the document called `name` (`config`, `placement`, `parameters`).
///
/// # Errors
/// `invalid` with a JSON pointer that starts with the document, such as `/placement/zone`.
pub fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Failure> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let mut pointer = format!("/{name}");
        for segment in error.path() {
            push_segment(&mut pointer, segment);
        }
        let message = format!("{pointer}: {}", error.inner());
        failure::invalid(pointer, message)
    })
}

fn push_segment(pointer: &mut String, segment: &Segment) {
    match segment {
        Segment::Seq { index } => {
            // Writing to a String cannot fail.
            write!(pointer, "/{index}").ok();
        }
        Segment::Map { key } | Segment::Enum { variant: key } => {
            pointer.push('/');
            pointer.push_str(&escape(key));
        }
        Segment::Unknown => {}
    }
}

/// One step of a JSON pointer (RFC 6901).
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::model::Reason;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Document {
        #[serde(default)]
        zones: Vec<u16>,
        #[serde(default)]
        sizes: BTreeMap<String, u16>,
    }

    fn pointer(text: &str) -> String {
        let Reason::Invalid(pointer) = parse::<Document>("placement", text).unwrap_err().reason else {
            panic!("{text}")
        };
        pointer
    }

    #[test]
    fn a_good_document_is_read() {
        let document: Document = parse("placement", r#"{"zones":[1,2],"sizes":{"a":3}}"#).unwrap();
        assert_eq!((document.zones, document.sizes["a"]), (vec![1, 2], 3));
    }

    #[test]
    fn the_field_at_fault_is_named() {
        assert_eq!(pointer(r#"{"zones":[1,"x"]}"#), "/placement/zones/1");
        assert_eq!(pointer(r#"{"sizes":{"a/b~c":"x"}}"#), "/placement/sizes/a~1b~0c");
        assert_eq!(pointer(r#"{"zonez":[]}"#), "/placement/zonez");
        assert_eq!(pointer("not json"), "/placement");
    }
}
