//! The request itself, and whose answer it is that came back.
//!
//! Inside a tunnel only the target can answer. A plain request is answered by the proxy or by the target, and
//! the answer looks the same; only what says that it is the proxy's own is taken for that.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use egress_proxies_core::facts::Auth;
use egress_proxies_core::time::Moment;
use futures::future::{Either, select};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::ext::on_informational;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::basic;
use super::failure::Failure;
use super::url::{ProbeUrl, Scheme};
use crate::clock::SharedClock;

/// How probes introduce themselves.
pub(super) const USER_AGENT: &str = concat!("egress-proxies-operator/", env!("CARGO_PKG_VERSION"));
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 100;
/// An interim answer counts at least so much: its reason phrase can't be seen.
const MIN_INTERIM: usize = 256;
/// So much of a body is read before the rest is cut off.
const MAX_BODY: usize = 64 * 1024;

/// Head of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

/// The request inside a tunnel. No credentials of the proxy in here.
pub(super) fn in_tunnel(url: &ProbeUrl) -> Result<Request<Empty<Bytes>>, Failure> {
    request(url.origin_form(), url)
}

/// The request in absolute-form, for the proxy to pass on.
pub(super) fn through_proxy(url: &ProbeUrl, auth: &Auth) -> Result<Request<Empty<Bytes>>, Failure> {
    let mut request = request(&url.absolute_form(), url)?;
    if let Some(value) = basic::header(auth) {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, value);
    }
    Ok(request)
}

fn request(uri: &str, url: &ProbeUrl) -> Result<Request<Empty<Bytes>>, Failure> {
    Request::get(uri)
        .header(header::HOST, url.host_header())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, HeaderValue::from_static("*/*"))
        .header(header::CONNECTION, HeaderValue::from_static("close"))
        .body(Empty::new())
        .map_err(|_| Failure::probe_url("no request can be made of it"))
}

/// Sends the request, reads the head and up to 64 KiB of the body; says when the head was there.
pub(super) async fn exchange<S>(
    stream: S,
    mut request: Request<Empty<Bytes>>,
    clock: &SharedClock,
) -> Result<(Answer, Moment), Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Failure::answer(&error))?;
    let too_many = count_interim(&mut request);
    let conversation = async {
        let response = tokio::select! {
            biased;
            () = too_many.notified() => return Err(Failure::head_too_large()),
            response = sender.send_request(request) => response.map_err(|error| Failure::answer(&error))?,
        };
        let head_at = clock.now().mono;
        let (head, body) = response.into_parts();
        read_some(body).await?;
        Ok((Answer { status: head.status, headers: head.headers }, head_at))
    };
    // The connection moves the bytes, so both are polled here; when it ends first, what it has read is left.
    match select(pin!(conversation), pin!(connection)).await {
        Either::Left((result, _)) => result,
        Either::Right((_, conversation)) => conversation.await,
    }
}

/// Counts interim (1xx) answers, which hyper passes over without limit; tells when they exceed that of a head.
fn count_interim(request: &mut Request<Empty<Bytes>>) -> Arc<Notify> {
    let (seen, too_many) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let tell = Arc::clone(&too_many);
    on_informational(request, move |answer| {
        let lengths =
            answer.headers().iter().map(|(name, value)| name.as_str().len().saturating_add(value.len()));
        let size = lengths.fold(0, usize::saturating_add).max(MIN_INTERIM);
        if seen.fetch_add(size, Ordering::Relaxed) >= MAX_HEAD {
            tell.notify_one();
        }
    });
    too_many
}

async fn read_some(mut body: Incoming) -> Result<(), Failure> {
    let mut count = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::answer(&error))?;
        count = count.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        if count >= MAX_BODY {
            break;
        }
    }
    Ok(())
}

/// Fails if the answer to a plain request is one that the proxy says it gave in its own name: by status 407, or
/// by a header (`Proxy-Authenticate`, `X-Squid-Error`, `Proxy-Status` with an error). An expected status too.
///
/// Nothing follows from a missing `Via`: many proxies, ours among them, do not add one to what they pass on.
pub(super) fn refuse_proxys_own(answer: &Answer, auth: &Auth) -> Result<(), Failure> {
    let status = answer.status.as_u16();
    if status == 407 || answer.headers.contains_key(header::PROXY_AUTHENTICATE) {
        return Err(Failure::auth_required(status, auth));
    }
    let says_so = answer.headers.contains_key("x-squid-error")
        || answer.headers.get_all("proxy-status").iter().any(is_proxy_error);
    if says_so { Err(Failure::proxys_own(status)) } else { Ok(()) }
}

/// `error=` in a Proxy-Status (RFC 9209) means that the proxy made the answer.
fn is_proxy_error(value: &HeaderValue) -> bool {
    value
        .to_str()
        .is_ok_and(|text| text.split([';', ',']).any(|part| part.trim_start().starts_with("error=")))
}

/// Fails unless the status is one of those expected; none given means 200.
pub(super) fn expect_status(answer: &Answer, expected: &[u16], scheme: Scheme) -> Result<(), Failure> {
    let status = answer.status.as_u16();
    let good = if expected.is_empty() { status == 200 } else { expected.contains(&status) };
    if good { Ok(()) } else { Err(Failure::unexpected_status(status, expected, scheme)) }
}
