//! Error answers that calls share, for the description of the API: said once, so that they read the same
//! everywhere.

use std::collections::BTreeMap;

use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use super::error::ErrorBody;

/// Of every call that wants a token.
pub(super) enum NeedsToken {}
/// Of every call that looks at the Proxies.
pub(super) enum NeedsFleet {}
/// Of every call that works on leases or cooldowns.
pub(super) enum NeedsLeader {}
/// Of every call that takes a body.
pub(super) enum TakesBody {}

impl IntoResponses for NeedsToken {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        answers(&[("401", "`unauthorized`")])
    }
}

impl IntoResponses for NeedsFleet {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        answers(&[("503", "`not_ready`")])
    }
}

impl IntoResponses for NeedsLeader {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        answers(&[("503", "`not_leader`, `not_ready`")])
    }
}

impl IntoResponses for TakesBody {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        answers(&[("408", "`request_timeout`"), ("413", "`body_too_large`")])
    }
}

fn answers(list: &[(&str, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let answer = |description: &str| {
        let body = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
        ResponseBuilder::new().description(description).content("application/json", body).build()
    };
    list.iter().map(|(status, codes)| ((*status).to_owned(), answer(codes).into())).collect()
}
