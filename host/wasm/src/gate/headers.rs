//! Which headers pass the gate, in both directions.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use wasmtime_wasi_http::DEFAULT_FORBIDDEN_HEADERS;

/// Headers that a guest can never set: those of the connection, and those that carry an identity.
/// Refused when the guest sets them, so that it learns of it at once.
pub(super) fn forbidden(name: &HeaderName) -> bool {
    let text = name.as_str();
    DEFAULT_FORBIDDEN_HEADERS.contains(name)
        || matches!(
            text,
            "authorization" | "cookie" | "forwarded" | "metadata-flavor" | "x-real-ip" | "te" | "trailer"
        )
        || another_request(text)
        || ["proxy-", "x-forwarded-", "impersonate-", "x-remote-", "x-aws-ec2-", "x-google-metadata-"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
}

/// Headers by which many servers take a request for another one than was checked: another method (Google's
/// APIs, Rails, ASP.NET), another path or host (IIS, Symfony, several gateways).
fn another_request(text: &str) -> bool {
    matches!(text, "x-method-override" | "x-host" | "x-http-host-override")
        || ["x-http-method", "x-original-", "x-rewrite-", "x-envoy-"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
}

/// Headers of a request to the API server: these, the content type that the gate sets, and no others.
pub(super) fn for_kubernetes(headers: &HeaderMap<HeaderValue>) -> HeaderMap<HeaderValue> {
    let mut kept = HeaderMap::new();
    for name in [header::ACCEPT, header::USER_AGENT] {
        if let Some(value) = headers.get(&name) {
            kept.insert(name, value.clone());
        }
    }
    kept
}

/// Headers of a request that carries no credentials of ours.
pub(super) fn for_plain(headers: &HeaderMap<HeaderValue>) -> HeaderMap<HeaderValue> {
    let mut kept = headers.clone();
    let dropped: Vec<HeaderName> = headers.keys().filter(|name| forbidden(name)).cloned().collect();
    for name in dropped {
        kept.remove(name);
    }
    // The body was collected: its length is known and is the only truth.
    kept.remove(header::CONTENT_LENGTH);
    kept
}

/// What they hold.
pub(super) fn bytes(headers: &HeaderMap<HeaderValue>) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Takes away what the guest has no use for and what could hold a credential.
pub(super) fn clean_response(headers: &mut HeaderMap<HeaderValue>) {
    for name in [
        header::SET_COOKIE,
        header::WWW_AUTHENTICATE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::AUTHORIZATION,
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::TRAILER,
    ] {
        headers.remove(name);
    }
    for name in
        ["authentication-info", "proxy-authentication-info", "keep-alive", "proxy-connection", "audit-id"]
    {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_never_leave_by_a_header() {
        for name in [
            "Authorization",
            "Cookie",
            "Impersonate-User",
            "X-Remote-User",
            "Host",
            "X-Forwarded-For",
            "Metadata-Flavor",
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X-Original-URL",
            "X-Rewrite-URL",
            "X-Envoy-Original-Path",
            "X-Host",
        ] {
            assert!(forbidden(&HeaderName::from_bytes(name.as_bytes()).unwrap()), "{name}");
        }
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "a"),
            ("x-custom", "b"),
            ("content-length", "3"),
            ("impersonate-user", "root"),
            ("x-http-method-override", "DELETE"),
            ("content-type", "application/apply-patch+yaml"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(for_kubernetes(&headers).keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        let plain = for_plain(&headers);
        assert!(plain.contains_key("x-custom") && !plain.contains_key("impersonate-user"));
        assert!(!plain.contains_key("x-http-method-override"));
        assert!(!plain.contains_key("content-length"));
    }
}
