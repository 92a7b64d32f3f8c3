//! Compares what the API answers with what its description promises. `World` does that with every answer of
//! every test, so that a status or a body that is not described cannot go unseen.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use egress_proxies_operator::http::openapi_json;
use http::Method;
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

use crate::world::Answer;

/// Validators of the bodies by route, method and status; none where the description has no body of JSON.
type Described = BTreeMap<(String, String, String), Option<Validator>>;

static DESCRIBED: LazyLock<Described> = LazyLock::new(|| {
    let description = description();
    let mut described = Described::new();
    for (path, operations) in object(&description["paths"]) {
        for (method, operation) in object(operations) {
            for (status, response) in object(&operation["responses"]) {
                let schema = &response["content"]["application/json"]["schema"];
                let validator = (!schema.is_null()).then(|| validator(schema, &description));
                described.insert((path.clone(), method.to_uppercase(), status.clone()), validator);
            }
        }
    }
    described
});

/// The description.
pub(crate) fn description() -> Value {
    serde_json::from_str(openapi_json()).expect("JSON")
}

/// The members of an object.
pub(crate) fn object(value: &Value) -> &serde_json::Map<String, Value> {
    value.as_object().expect("an object")
}

/// Validates by a schema that may refer to the components of the description.
pub(crate) fn validator(schema: &Value, description: &Value) -> Validator {
    let whole = json!({"allOf": [schema], "components": description["components"]});
    jsonschema::options().with_draft(Draft::Draft202012).build(&whole).expect("a schema")
}

/// The described route that a path belongs to.
fn route(path: &str) -> Option<&'static str> {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let fits = |template: &str| {
        let (mut parts, mut given) = (template.split('/'), path.split('/'));
        loop {
            match (parts.next(), given.next()) {
                (None, None) => return true,
                (Some(part), Some(text)) if part == text => {}
                (Some(part), Some(text)) if part.starts_with('{') && !text.is_empty() => {}
                (Some(_) | None, Some(_) | None) => return false,
            }
        }
    };
    DESCRIBED.keys().map(|(template, ..)| template.as_str()).find(|template| fits(template))
}

/// Panics if the description does not promise this answer.
pub(crate) fn check(method: &Method, path: &str, answer: &Answer) {
    let status = answer.status.as_u16();
    let Some(route) = route(path) else {
        assert!([401, 404].contains(&status), "{method} {path} is no described route, and answers {status}");
        return;
    };
    let methods = DESCRIBED.keys().filter(|(template, ..)| template == route).map(|(_, method, _)| method);
    if !methods.into_iter().any(|described| described == method.as_str()) {
        assert!([401, 405].contains(&status), "{method} {path} is not described, and answers {status}");
        return;
    }
    let key = (route.to_owned(), method.to_string(), status.to_string());
    let Some(validator) = DESCRIBED.get(&key) else {
        panic!("{method} {route} is not described to answer {status}: {}", answer.text)
    };
    if let Some(validator) = validator {
        let faults: Vec<String> =
            validator.iter_errors(&answer.json()).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{method} {route} {status}: {faults:?} in {}", answer.text);
    }
}
