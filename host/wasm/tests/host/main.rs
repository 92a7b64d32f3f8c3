//! The provider host with real components, in real child processes, on loopback only.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_in_result,
    clippy::wildcard_enum_match_arm,
    reason = "what is not expected fails the test"
)]

mod fresh;
mod guests;
mod hostile;
mod limits;
mod listing;
mod loading;
mod support;
