//! SDK for providers: bindings, HTTP client, error mapping.
