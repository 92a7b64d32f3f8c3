//! The description of the API, generated from the handlers and their types. `openapi/discovery.json` is
//! the committed copy; a test compares the two, so that no change to the wire goes unseen.

use std::sync::LazyLock;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, discovery, leases, request};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Egress proxies: discovery and leases",
        version = "v1",
        description = "Lists proxies and leases them. Every error of a request that could be read is a \
                       JSON object with `error`, a constant word, and `message`, for people. Unknown fields \
                       and parameters are refused.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(request::ReportResult)),
    security(("token" = [])),
    modifiers(&BearerToken)
)]
struct Head;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// Every route with its description: what is served and what is described are one list.
pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Head::openapi())
        .routes(routes!(discovery::healthz))
        .routes(routes!(describe))
        .routes(routes!(discovery::list))
        .routes(routes!(discovery::show))
        .routes(routes!(discovery::clear_cooldowns))
        .routes(routes!(leases::acquire))
        .routes(routes!(leases::renew))
        .routes(routes!(leases::release))
        .routes(routes!(leases::report))
}

/// The description, as it is committed and served.
pub fn openapi_json() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        // Text keys and plain values only: this cannot fail, and an empty answer would fail the drift test.
        routes().into_openapi().to_pretty_json().map(|text| text + "\n").unwrap_or_default()
    });
    &TEXT
}

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "operation", security(()),
    responses((status = 200, description = "OpenAPI", content_type = "application/json", body = serde_json::Value))
)]
pub(super) async fn describe() -> ([(HeaderName, HeaderValue); 1], &'static str) {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], openapi_json())
}
