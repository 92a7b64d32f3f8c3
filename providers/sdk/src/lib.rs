//! SDK for providers written in Rust.
//!
//! A provider is a component that exports the world of `wit/`. With this crate it is a type that
//! implements [`Provider`], one call of [`export_provider!`], and a `Cargo.toml` with
//! `crate-type = ["cdylib", "rlib"]`:
//!
//! - [`model`]: the words of the contract, as generated from the WIT;
//! - [`Provider`], [`Context`], [`Call`]: the calls to answer and what each is given;
//! - [`Host`]: what a guest may ask of the operator (HTTP, the time, randomness). Guests see only this
//!   trait, so that their logic runs natively in tests against an upstream that keeps real state;
//! - [`failure`]: what went wrong, as the operator wants to hear it; HTTP answers are mapped there;
//! - [`kubernetes`]: errors of a Kubernetes API server;
//! - [`document`]: the JSON documents of a request, with the field at fault in every error.
//!
//! It must never hold state between calls (each call is a new instance), never see a credential of the
//! upstream, and never panic on what an upstream answers: a panic is a trap, which counts against the
//! provider.

mod adapter;
pub mod document;
pub mod failure;
mod host;
pub mod kubernetes;
mod provider;
mod wasi;

#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::mem_forget,
    reason = "generated from wit/, where the documentation is"
)]
pub mod bindings;

/// The words of the contract: see `wit/model.wit`.
pub mod model {
    pub use crate::bindings::egress_proxies::provider::host_log::Level;
    pub use crate::bindings::egress_proxies::provider::model::{
        CallContext, ConfigReport, CreatePlan, CreateRequest, Credentials, Deletion, Description, EgressNeed,
        Endpoint, Failure, Instance, InstanceRef, InstanceState, ListRequest, Observation, Page, Pair,
        Reason,
    };
}

pub use adapter::Adapter;
pub use host::{Host, Method, Request, Response, SendError};
pub use provider::{Call, Context, Provider};

/// The version of the contract in `wit/` that this crate speaks.
pub const CONTRACT: &str = "egress-proxies:provider@0.1.0";

/// Makes a [`Provider`] the exports of the component.
///
/// ```ignore
/// egress_proxies_provider_sdk::export_provider!(MyProvider);
/// ```
#[macro_export]
macro_rules! export_provider {
    ($provider:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Component = $crate::Adapter<$provider>;
    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}
