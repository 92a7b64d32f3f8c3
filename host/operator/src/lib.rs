//! The operator: loops, HTTP and wiring.
//!
//! `lifecycle`, `health`, `pool`, `gc` and `http` never import one another: they exchange the values of
//! `egress_proxies_core::facts` over watch channels that `app` connects (`http` gets its ports from `app`).
//! `tests/architecture.rs` checks it.

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod kubernetes_client;
pub mod kubernetes_route;
pub mod leader;
pub mod leadership;

pub mod gc;
pub mod health;
pub mod http;
pub mod lifecycle;
pub mod metrics;
pub mod pool;
