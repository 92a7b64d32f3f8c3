//! The `Proxy-Authorization` header. Its value never reaches a log: it is marked sensitive.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use egress_proxies_core::facts::Auth;
use egress_proxies_core::provider::Credentials;
use http::HeaderValue;

/// Value of `Proxy-Authorization`; none without credentials. A Secret that cannot be read is no reason not to
/// probe: a proxy that then asks for credentials is at least alive.
pub(super) fn header(auth: &Auth) -> Option<HeaderValue> {
    match auth {
        Auth::None | Auth::Missing(_) => None,
        Auth::Known(credentials) => encode(credentials),
    }
}

/// Basic with UTF-8 (RFC 7617): base64 leaves nothing of `@ : / %` and the like to escape.
fn encode(credentials: &Credentials) -> Option<HeaderValue> {
    let pair = format!("{}:{}", credentials.username.expose(), credentials.password.expose());
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
