//! What went wrong, as the operator wants to hear it.
//!
//! The reason decides what the operator does next, the message what a person does. Neither may hold a
//! secret.

use crate::host::{Response, SendError};
use crate::model::{Failure, Reason};

/// Longest piece of an upstream's own words in a message.
const MAX_QUOTE: usize = 300;

/// A failure with this reason and message for people.
pub fn new(reason: Reason, message: impl Into<String>) -> Failure {
    Failure {
        reason,
        message: message.into(),
        retry_after_ms: None,
        upstream_status: None,
        upstream_code: None,
        extra: Vec::new(),
    }
}

/// The request can't ever work; `pointer` starts with the document (`/config/project`).
pub fn invalid(pointer: impl Into<String>, message: impl Into<String>) -> Failure {
    new(Reason::Invalid(pointer.into()), message)
}

/// No answer. `what` says what was tried, such as "creating the pod".
pub fn unanswered(what: &str, error: &SendError) -> Failure {
    match error {
        SendError::Denied(why) => {
            new(Reason::Denied, format!("{what}: the operator does not allow this request: {why}"))
        }
        SendError::TimedOut => new(Reason::Transient, format!("{what}: no answer in time")),
        SendError::TooLarge => {
            new(Reason::Transient, format!("{what}: the answer is larger than the operator lets in"))
        }
        SendError::Network(why) => new(Reason::Transient, format!("{what}: {why}")),
    }
}

/// An answer with an error status, by its status and `Retry-After` alone.
///
/// Use the upstream's own error body first if it has one ([`crate::kubernetes`]): a 403 may be a limit,
/// and a 404 may mean that the request went to the wrong place.
pub fn from_status(what: &str, response: &Response) -> Failure {
    let reason = match response.status {
        401 | 403 | 407 => Reason::Denied,
        404 | 410 => Reason::Missing,
        409 | 412 | 423 => Reason::Busy,
        429 => Reason::Throttled,
        400 | 405 | 406 | 413 | 414 | 415 | 422 => Reason::Permanent,
        408 | 425 | 500.. => Reason::Transient,
        other => Reason::Other(format!("http-{other}")),
    };
    Failure {
        retry_after_ms: retry_after_ms(response),
        upstream_status: Some(response.status),
        ..new(reason, format!("{what}: HTTP {}", response.status))
    }
}

/// `Retry-After` in seconds. The form with a date is ignored: it needs both clocks to agree.
pub fn retry_after_ms(response: &Response) -> Option<u32> {
    let seconds: u32 = response.header("retry-after")?.trim().parse().ok()?;
    seconds.checked_mul(1000)
}

/// Words of an upstream, fit for a message: one line, not too long.
pub fn quote(text: &str) -> String {
    let mut line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_QUOTE).collect();
    if text.chars().nth(MAX_QUOTE).is_some() {
        line.push_str(" ...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, retry_after: Option<&str>) -> Response {
        let headers =
            retry_after.map(|value| ("retry-after".to_owned(), value.to_owned())).into_iter().collect();
        Response { status, headers, body: Vec::new() }
    }

    #[test]
    fn each_status_has_its_reason() {
        let rows = [
            (400, Reason::Permanent),
            (401, Reason::Denied),
            (403, Reason::Denied),
            (404, Reason::Missing),
            (408, Reason::Transient),
            (409, Reason::Busy),
            (412, Reason::Busy),
            (422, Reason::Permanent),
            (429, Reason::Throttled),
            (500, Reason::Transient),
            (503, Reason::Transient),
            (599, Reason::Transient),
            (302, Reason::Other("http-302".into())),
        ];
        for (status, reason) in rows {
            let failure = from_status("asking", &response(status, None));
            assert_eq!((failure.reason, failure.upstream_status), (reason, Some(status)));
            assert_eq!(failure.message, format!("asking: HTTP {status}"));
        }
    }

    #[test]
    fn retry_after_is_read_in_seconds_only() {
        let rows = [
            ("7", Some(7_000)),
            (" 0 ", Some(0)),
            ("4294967295", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("-1", None),
        ];
        for (text, expected) in rows {
            assert_eq!(retry_after_ms(&response(429, Some(text))), expected, "{text}");
        }
        assert_eq!(retry_after_ms(&response(429, None)), None);
    }

    #[test]
    fn nothing_sent_is_told_from_no_answer() {
        assert_eq!(unanswered("x", &SendError::Denied("GET https://a/".into())).reason, Reason::Denied);
        for error in [SendError::TimedOut, SendError::TooLarge, SendError::Network("refused".into())] {
            assert_eq!(unanswered("x", &error).reason, Reason::Transient);
        }
    }

    #[test]
    fn a_quote_is_one_line_and_not_too_long() {
        assert_eq!(quote("a\nb\tc"), "a b c");
        assert_eq!(quote(&"x".repeat(400)), format!("{} ...", "x".repeat(300)));
    }
}
