//! What the rings of tests share. Nothing here knows the operator.

pub(crate) mod api_server;
