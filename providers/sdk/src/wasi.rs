//! [`Host`] over the imports of the world: wasi:http, wasi:clocks, wasi:random, host-log.
//!
//! One blocking request at a time. Every request has explicit time-outs, because an import without them
//! may wait for ten minutes, while the operator ends the call at its deadline and the guest can then no
//! longer say what happened.

use std::sync::Once;
use std::time::Duration;

use jiff::Timestamp;

use crate::bindings::egress_proxies::provider::host_log;
use crate::bindings::wasi::clocks::{monotonic_clock, wall_clock};
use crate::bindings::wasi::http::outgoing_handler;
use crate::bindings::wasi::http::types as http;
use crate::bindings::wasi::io::streams::StreamError;
use crate::bindings::wasi::random::random;
use crate::host::{Host, Method, Request, Response, SendError};
use crate::model::{Level, Pair};

/// Kept back of the call's time, to report a failure with.
const MARGIN: Duration = Duration::from_millis(250);
/// Bodies beyond this are not read; the operator's own limit is about the same.
const MAX_BODY: usize = 8 << 20;
/// What wasi:io lets through in one blocking write.
const CHUNK: usize = 4096;
const READ: u64 = 64 << 10;

/// Send panics to the operator's log: their text would be lost with the trap.
pub(crate) fn report_panics() {
    static HOOK: Once = Once::new();
    if cfg!(target_family = "wasm") {
        HOOK.call_once(|| {
            std::panic::set_hook(Box::new(|info| host_log::emit(Level::Error, &info.to_string(), &[])));
        });
    }
}

/// The operator, as seen from inside a component.
pub(crate) struct WasiHost {
    /// On the monotonic clock, in nanoseconds.
    deadline: u64,
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl WasiHost {
    /// A call that starts now.
    pub(crate) fn start(timeout_ms: u32) -> Self {
        let left = Duration::from_millis(timeout_ms.into()).saturating_sub(MARGIN);
        Self { deadline: monotonic_clock::now().saturating_add(nanoseconds(left)) }
    }

    fn exchange(&self, request: &Request) -> Result<Response, SendError> {
        let left = nanoseconds(self.left());
        if left == 0 {
            return Err(SendError::TimedOut);
        }
        let outgoing = outgoing(request)?;
        let body = outgoing.body().map_err(|()| internal("no request body"))?;
        let options = http::RequestOptions::new();
        options.set_connect_timeout(Some(left)).ok();
        options.set_first_byte_timeout(Some(left)).ok();
        options.set_between_bytes_timeout(Some(left)).ok();
        let future = outgoing_handler::handle(outgoing, Some(options)).map_err(|code| refused(&code))?;
        write_body(body, &request.body)?;
        let answered = future.subscribe();
        let expired = monotonic_clock::subscribe_instant(self.deadline);
        crate::bindings::wasi::io::poll::poll(&[&answered, &expired]);
        if !answered.ready() {
            return Err(SendError::TimedOut);
        }
        drop(answered);
        let incoming = future
            .get()
            .ok_or_else(|| internal("no response"))?
            .map_err(|()| internal("the response was taken before"))?
            .map_err(|code| refused(&code))?;
        read(&incoming, &expired)
    }
}

fn internal(why: &str) -> SendError {
    SendError::Network(format!("inside the component: {why}"))
}

fn method(method: Method) -> http::Method {
    match method {
        Method::Get => http::Method::Get,
        Method::Post => http::Method::Post,
        Method::Put => http::Method::Put,
        Method::Patch => http::Method::Patch,
        Method::Delete => http::Method::Delete,
    }
}

fn outgoing(request: &Request) -> Result<http::OutgoingRequest, SendError> {
    let mut headers: Vec<(String, Vec<u8>)> =
        request.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
    if !request.body.is_empty() {
        headers.push(("content-length".to_owned(), request.body.len().to_string().into_bytes()));
    }
    let headers =
        http::Fields::from_list(&headers).map_err(|error| internal(&format!("header refused: {error}")))?;
    let (scheme, authority) = match request.origin.split_once("://") {
        Some(("https", authority)) => (http::Scheme::Https, authority),
        Some(("http", authority)) => (http::Scheme::Http, authority),
        _ => return Err(internal("the origin is neither http nor https")),
    };
    let outgoing = http::OutgoingRequest::new(headers);
    outgoing.set_method(&method(request.method)).map_err(|()| internal("method refused"))?;
    outgoing.set_scheme(Some(&scheme)).map_err(|()| internal("scheme refused"))?;
    outgoing.set_authority(Some(authority)).map_err(|()| internal("authority refused"))?;
    outgoing.set_path_with_query(Some(&request.path)).map_err(|()| internal("path refused"))?;
    Ok(outgoing)
}

fn write_body(body: http::OutgoingBody, bytes: &[u8]) -> Result<(), SendError> {
    if !bytes.is_empty() {
        let stream = body.write().map_err(|()| internal("no request stream"))?;
        for chunk in bytes.chunks(CHUNK) {
            // A server that answers before it has read all closes the stream; its answer is what counts.
            if stream.blocking_write_and_flush(chunk).is_err() {
                return Ok(());
            }
        }
    }
    // As above: the answer says what is wrong.
    http::OutgoingBody::finish(body, None).ok();
    Ok(())
}

fn read(
    incoming: &http::IncomingResponse,
    expired: &monotonic_clock::Pollable,
) -> Result<Response, SendError> {
    let status = incoming.status();
    let headers = incoming
        .headers()
        .entries()
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), String::from_utf8_lossy(&value).into_owned()))
        .collect();
    let body = incoming.consume().map_err(|()| internal("no response body"))?;
    let stream = body.stream().map_err(|()| internal("no response stream"))?;
    let mut bytes = Vec::new();
    loop {
        let arrived = stream.subscribe();
        crate::bindings::wasi::io::poll::poll(&[&arrived, expired]);
        if !arrived.ready() {
            return Err(SendError::TimedOut);
        }
        drop(arrived);
        match stream.read(READ) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(StreamError::Closed) => return Ok(Response { status, headers, body: bytes }),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(http::http_error_code(&error)
                    .map_or_else(|| SendError::Network(error.to_debug_string()), |code| refused(&code)));
            }
        }
        if bytes.len() > MAX_BODY {
            return Err(SendError::TooLarge);
        }
    }
}

fn refused(code: &http::ErrorCode) -> SendError {
    use http::ErrorCode as Code;
    if matches!(code, Code::HttpRequestDenied | Code::DestinationIpProhibited) {
        return SendError::Denied("see the operator's log for the missing grant".to_owned());
    }
    if matches!(
        code,
        Code::ConnectionTimeout
            | Code::ConnectionReadTimeout
            | Code::ConnectionWriteTimeout
            | Code::HttpResponseTimeout
            | Code::DnsTimeout
    ) {
        return SendError::TimedOut;
    }
    if matches!(code, Code::HttpResponseBodySize(_)) {
        return SendError::TooLarge;
    }
    SendError::Network(code.to_string())
}

impl Host for WasiHost {
    fn send(&self, request: &Request) -> Result<Response, SendError> {
        self.exchange(request)
    }

    fn now(&self) -> Timestamp {
        let now = wall_clock::now();
        let seconds = i64::try_from(now.seconds).unwrap_or(i64::MAX);
        let nanoseconds = i32::try_from(now.nanoseconds).unwrap_or(0);
        Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::MAX)
    }

    fn left(&self) -> Duration {
        Duration::from_nanos(self.deadline.saturating_sub(monotonic_clock::now()))
    }

    fn pause(&self, duration: Duration) {
        monotonic_clock::subscribe_duration(nanoseconds(duration)).block();
    }

    fn random(&self, len: usize) -> Vec<u8> {
        random::get_random_bytes(u64::try_from(len).unwrap_or(0))
    }

    fn log(&self, level: Level, message: &str, fields: &[(&str, &str)]) {
        let fields: Vec<Pair> = fields
            .iter()
            .map(|(key, value)| Pair { key: (*key).to_owned(), value: (*value).to_owned() })
            .collect();
        host_log::emit(level, message, &fields);
    }
}
