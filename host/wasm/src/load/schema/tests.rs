//! Schemas that are refused, and documents that are judged.

use futures::FutureExt;
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
        (r##"{"$ref":"#/$defs/a"}"##, "is not there"),
        (r##"{"$ref":"#a"}"##, "write it as a path"),
        (r##"{"$defs":{"a b":{}},"$ref":"#/%24defs/a%20b"}"##, "percent"),
        (r##"{"$dynamicRef":"#a"}"##, "$dynamicRef"),
        (r#"{"$defs":{"a":{"$anchor":"a"}}}"#, "$anchor"),
        (r#"{"properties":{"a":{"$id":"https://example.com/"}}}"#, "$id"),
        (r##"{"properties":{"a":{"$ref":"#"}}}"##, "must end"),
        (
            r##"{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}"##,
            "must end",
        ),
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

/// Three kilobytes that a validator would be at for a thousand years.
#[test]
fn a_schema_that_fans_out_is_refused_at_once() {
    for leaf in [r#"{"type":"object"}"#, r#"{"type":"string"}"#] {
        for word in ["allOf", "anyOf", "oneOf"] {
            let mut parts: Vec<String> = (0..40)
                .map(|n| {
                    let next = n + 1;
                    format!(
                        r##""d{n}":{{"{word}":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}}"##
                    )
                })
                .collect();
            parts.push(format!(r#""d40":{leaf}"#));
            let text = format!(r##"{{"$defs":{{{}}},"$ref":"#/$defs/d0"}}"##, parts.join(","));
            let error = DocumentSchema::compile(Some(&text)).unwrap_err();
            assert!(error.contains("too much work") || error.contains("nested deeper"), "{error}");
        }
    }
    // Wide instead of deep: within the depth, and a million values all the same.
    let many = vec![r##"{"$ref":"#/$defs/a"}"##; 1_000].join(",");
    let patterns = vec![r#"{"pattern":"\\w{100}"}"#; 1_000].join(",");
    let nested =
        format!("{}{{}}{}", r#"{"unevaluatedProperties":false,"allOf":["#.repeat(12), "]}".repeat(12));
    for text in [
        format!(r#"{{"$defs":{{"a":{{"enum":[{}]}}}},"allOf":[{many}]}}"#, vec!["1"; 1_000].join(",")),
        format!(r#"{{"allOf":[{patterns}]}}"#),
        nested,
    ] {
        let error = DocumentSchema::compile(Some(&text)).unwrap_err();
        assert!(error.contains("too much work"), "{error}");
    }
}

#[test]
fn an_honest_schema_with_references_is_taken() {
    let text = r##"{"$id":"https://example.com/config","$defs":{
        "port":{"type":"integer","minimum":1,"maximum":65535},
        "range":{"type":"string","pattern":"^[0-9]+-[0-9]+$"},
        "ports":{"type":"array","items":{"oneOf":[{"$ref":"#/$defs/port"},{"$ref":"#/$defs/range"}]}}},
        "properties":{"a":{"$ref":"#/$defs/ports"},"b":{"$ref":"#/$defs/ports"}}}"##;
    let schema = DocumentSchema::compile(Some(text)).unwrap();
    assert!(schema.check(&map(json!({"a": [1, "2-3"], "b": []}))).is_ok());
    assert_eq!(schema.check(&map(json!({"b": ["x"]}))).unwrap_err().pointer, "/b/0");
}

#[test]
fn a_document_that_is_too_large_for_its_schema_is_refused_and_a_fault_is_short() {
    let rows = vec![r#"{"type":"string"}"#; 300].join(",");
    let schema = DocumentSchema::compile(Some(&format!(
        r#"{{"properties":{{"a":{{"items":{{"allOf":[{rows}]}}}}}}}}"#
    )));
    let schema = schema.unwrap();
    let list = |count: usize| map(json!({"a": vec![1; count]}));
    assert_eq!(schema.check(&list(10)).unwrap_err().pointer, "/a/0");
    assert!(schema.check(&list(2_000)).unwrap_err().message.contains("does not fit"));
    assert!(schema.check(&list(1_000_000)).unwrap_err().message.contains("too large"));

    let schema = DocumentSchema::compile(Some(r#"{"additionalProperties":false}"#)).unwrap();
    let fault = schema.check(&map(json!({"x".repeat(100_000): 1}))).unwrap_err();
    assert!(fault.message.len() <= 710 && fault.pointer.len() <= 260, "{} bytes", fault.message.len());
}

#[test]
fn only_a_check_that_may_take_long_leaves_its_thread_and_both_find_the_same() {
    // The one thread that may wait is taken, so that what leaves for it can't be through before it is looked at.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    let numbers = r#"{"properties":{"a":{"items":{"type":"integer"}}}}"#;
    let schema = Arc::new(DocumentSchema::compile(Some(numbers)).unwrap());
    let none = Arc::new(DocumentSchema::EmptyOnly);
    let with_fault_last = |items: usize| {
        let mut all = vec![json!(1); items];
        all.push(json!("x"));
        map(json!({"a": all}))
    };
    for (schema, document, in_place, pointer) in [
        (&none, map(json!({"a": 1})), true, "/a"),
        (&schema, with_fault_last(10), true, "/a/10"),
        (&schema, with_fault_last(5_000), false, "/a/5000"),
    ] {
        runtime.block_on(async {
            let (release, held) = std::sync::mpsc::channel::<()>();
            let taken = tokio::task::spawn_blocking(move || held.recv());
            assert_eq!(check(schema, &document).now_or_never().is_some(), in_place, "{pointer}");
            drop(release);
            taken.await.unwrap().unwrap_err();
            let error = check(schema, &document).await.unwrap_err();
            let CheckError::Fault(fault) = error else { panic!("{error:?}") };
            assert_eq!(fault.pointer, pointer);
        });
    }
    assert!(runtime.block_on(check(&none, &Map::new())).is_ok());
}
