//! Probes every proxy through itself.
//!
//! [`engine`] decides when, and carries results to [`egress_proxies_core::health::judge`]; [`probe`] speaks
//! with one proxy. Neither ever writes status, and neither ever reaches a probe target by another way than
//! through the proxy that is probed.

#![warn(clippy::indexing_slicing, clippy::string_slice)]

pub mod engine;
pub mod probe;

pub use engine::{Engine, EngineSettings, NoMetrics, Ports, ProbeMetrics, Prober};
pub use probe::{ApiServerAddresses, EndpointPolicy, HttpProber, ProbeTarget, Resolve, SystemResolver};
