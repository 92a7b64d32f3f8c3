//! Does a machine fit the spec? Nothing here acts on the answer.

use crate::lifecycle::{SpecHash, spec_tag_of};
use crate::provider::Instance;

/// What a machine was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Made from it, as far as anybody can tell.
    Current,
    /// Nobody can tell what it was made from: it is taken as it is and never replaced for that.
    Adopt,
    /// Made from another spec.
    Other,
}

/// The machine's own tag decides; without it the annotation; with neither, or an unknown version, adopt.
pub(super) fn fit(instance: &Instance, annotation: Option<&str>, wanted: &SpecHash) -> Fit {
    let verdict = match spec_tag_of(instance) {
        Some(tag) => wanted.judges(tag),
        None => annotation.and_then(|annotation| wanted.judges(annotation)),
    };
    match verdict {
        Some(true) => Fit::Current,
        Some(false) => Fit::Other,
        None => Fit::Adopt,
    }
}
