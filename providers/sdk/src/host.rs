//! What a guest may ask of the operator.
//!
//! A trait, so that a provider's logic is tested natively against an upstream that keeps real state. The
//! only other implementation is `wasi.rs`.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::Level;

/// HTTP methods that the operator may grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Create.
    Post,
    /// Replace.
    Put,
    /// Change.
    Patch,
    /// Delete.
    Delete,
}

impl Method {
    /// As written in HTTP and in `egress-need.methods`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// One request to upstream. Credentials are added by the operator, never here.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub method: Method,
    /// `https://` or `http://`, then host and port, without a path.
    pub origin: String,
    /// Path and query, percent-encoded, starting with `/`.
    pub path: String,
    /// Names in lower case. `content-length` and `host` are set by the operator.
    pub headers: Vec<(String, String)>,
    /// Empty = none.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: Method, origin: impl Into<String>, path: impl Into<String>) -> Self {
        Self { method, origin: origin.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// With a body of this content type.
    pub fn body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut request = self.header("content-type", content_type);
        request.body = body.into();
        request
    }
}

/// Bodies may hold secrets (a start-up payload, a password's hash), so they are not shown.
impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {}{} ({} bytes of body)",
            self.method.as_str(),
            self.origin,
            self.path,
            self.body.len()
        )
    }
}

/// What upstream answered, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of that name (lower case), if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Why there is no answer. Whether upstream carried out the request is then unknown, but for `Denied`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The operator does not let this request out; nothing was sent.
    Denied(String),
    /// No answer within the time of the call.
    TimedOut,
    /// The answer is larger than the operator lets in.
    TooLarge,
    /// Name, connection, TLS or protocol.
    Network(String),
}

/// What a guest may ask of the operator.
pub trait Host {
    /// Send one request and wait for the whole answer, at most for what is left of the call.
    ///
    /// # Errors
    /// Only if there is no answer: an error status is an answer.
    fn send(&self, request: &Request) -> Result<Response, SendError>;
    /// The time of day.
    fn now(&self) -> Timestamp;
    /// What is left of the call.
    fn left(&self) -> Duration;
    /// Wait.
    fn pause(&self, duration: Duration);
    /// This many unpredictable bytes.
    fn random(&self, len: usize) -> Vec<u8>;
    /// Write a line to the operator's log. Never put a secret in it.
    fn log(&self, level: Level, message: &str, fields: &[(&str, &str)]);
}
