//! Decisions about a Proxy and its machine.
