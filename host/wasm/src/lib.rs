//! The provider host: loads WASI components, bounds every call, checks every answer.
//!
//! This crate is the only user of wasmtime. It turns an entry of the providers config into an
//! implementation of [`egress_proxies_core::provider::Provider`], and it treats the component as hostile:
//! a fresh store per call with limits on memory, CPU and time, one gate for all outbound requests, and
//! conversions that refuse whatever breaks the contract. Nothing here panics because of a guest, and no
//! generated type leaves this crate.
//!
//! Reading order: [`config`] (what the administrator wrote), `load` (from a file to a component that can
//! be instantiated), `call` (one bounded call), `convert` (contract types to ours and back), [`gate`]
//! (outbound requests), `provider` and [`registry`] (what the operator sees). What calls run on, and how much of it
//! there is: `engine` (code and room for memories), `threads`, `limits` (of one call), `permits` (of all together).

#![warn(clippy::indexing_slicing, clippy::string_slice)]

pub mod config;
pub mod gate;
pub mod registry;
pub mod report;

mod audit;
mod bindings;
mod call;
mod convert;
mod engine;
mod limits;
mod load;
mod permits;
mod provider;
mod threads;

pub use load::compile::{CompileCommand, compile_child_main};
pub use registry::{HostConfig, ProviderHost, StartError};
