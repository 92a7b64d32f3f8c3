//! The discovery and lease API, and the operational endpoints.
