//! One page of a listing.

use egress_proxies_core::provider::{Failure, Instance};

use super::Wanted;
use super::bad_answer;
use super::instance::{Place, instance};
use crate::bindings::egress_proxies::provider::model;
use crate::call::mask::one_line;

const MOST_CURSOR: usize = 4 * 1024;
const MOST_UNREACHABLE: usize = 256;

/// A page, checked.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Instance>,
    pub(crate) next: Option<String>,
    pub(crate) unreachable: Vec<String>,
}

/// Checks a page that was asked to have at most `limit` machines, all of them wanted ones.
pub(crate) fn page(
    given: model::Page,
    wanted: Wanted<'_>,
    limit: u32,
    place: Place<'_>,
) -> Result<Page, Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if given.items.len() > limit {
        return Err(bad_answer(format!(
            "a page has {} machines and at most {limit} were asked for",
            given.items.len()
        )));
    }
    if given.unreachable.len() > MOST_UNREACHABLE {
        return Err(bad_answer(format!("a page names {} unreachable places", given.unreachable.len())));
    }
    // Many APIs, and languages without an absent string, say "no more" with an empty one.
    let next = given.next.filter(|cursor| !cursor.is_empty());
    if next.as_ref().is_some_and(|cursor| cursor.len() > MOST_CURSOR) {
        return Err(bad_answer(format!("the cursor of a page has more than {MOST_CURSOR} bytes")));
    }
    let mut items = Vec::with_capacity(given.items.len());
    for item in given.items {
        let item = instance(item, place)?;
        if wanted.includes(&item) {
            items.push(item);
        } else {
            tracing::warn!(id = %item.id, "a provider listed a machine that was not asked for, by its tags; left out");
        }
    }
    Ok(Page { items, next, unreachable: given.unreachable.iter().map(|text| one_line(text, 256)).collect() })
}
