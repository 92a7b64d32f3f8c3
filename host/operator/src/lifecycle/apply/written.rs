//! Answers of the API server to reads and guarded writes, sorted for decisions.

use egress_proxies_core::crd::Proxy;
use egress_proxies_core::lifecycle::{ObjectFacts, Written};
use kube::core::Status;

/// Sorts an answer: 404 is gone; 409, and a 422 that names no field, met another version of the object.
pub(crate) fn sort(answer: Result<Proxy, kube::Error>, keep: impl FnOnce(Proxy)) -> Written {
    match answer {
        Ok(object) => match ObjectFacts::of(&object) {
            Ok(facts) => {
                keep(object);
                Written::Done(Box::new(facts))
            }
            Err(error) => {
                Written::Failed(format!("the API server answered with an object of no use: {error}"))
            }
        },
        Err(kube::Error::Api(status)) if status.code == 404 => Written::Gone,
        Err(kube::Error::Api(status)) if is_conflict(&status) => Written::Conflict,
        Err(error) => Written::Failed(error.to_string()),
    }
}

/// A failed `test` of a JSON Patch is a 422 without causes; a value that the schema refuses names its field
/// in the causes, and would be refused again and again.
fn is_conflict(status: &Status) -> bool {
    let names_a_field = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
    status.code == 409 || (status.code == 422 && !names_a_field)
}
