//! Joins a [`Provider`] to the generated exports.
//!
//! Must never decide anything: what a call means is the provider's affair.

use std::marker::PhantomData;

use crate::bindings::exports::egress_proxies::provider::{lifecycle, meta};
use crate::model::{
    CallContext, ConfigReport, CreatePlan, CreateRequest, Deletion, Description, Failure, Instance,
    InstanceRef, ListRequest, Observation, Page,
};
use crate::provider::{Call, Context, Provider};
use crate::wasi::{self, WasiHost};

/// Implements the exports of the contract for a [`Provider`]; used by [`crate::export_provider!`].
#[derive(Debug)]
pub struct Adapter<P>(PhantomData<P>);

fn with_call<T>(context: CallContext, run: impl FnOnce(&Call<'_>) -> T) -> T {
    wasi::report_panics();
    let host = WasiHost::start(context.timeout_ms);
    let context = Context::new(context);
    run(&Call { context: &context, host: &host })
}

impl<P: Provider> meta::Guest for Adapter<P> {
    fn describe() -> Description {
        wasi::report_panics();
        P::default().describe()
    }

    fn validate_config(ctx: CallContext) -> Result<ConfigReport, Failure> {
        wasi::report_panics();
        P::default().validate_config(&Context::new(ctx))
    }

    fn validate_create(ctx: CallContext, request: CreateRequest) -> Result<CreatePlan, Failure> {
        wasi::report_panics();
        P::default().validate_create(&Context::new(ctx), &request)
    }
}

impl<P: Provider> lifecycle::Guest for Adapter<P> {
    fn create(ctx: CallContext, request: CreateRequest) -> Result<Instance, Failure> {
        with_call(ctx, |call| P::default().create(call, &request))
    }

    fn get(ctx: CallContext, target: InstanceRef) -> Result<Observation, Failure> {
        with_call(ctx, |call| P::default().get(call, &target))
    }

    fn delete(ctx: CallContext, target: InstanceRef) -> Result<Deletion, Failure> {
        with_call(ctx, |call| P::default().delete(call, &target))
    }

    fn list_by_tag(ctx: CallContext, request: ListRequest) -> Result<Page, Failure> {
        with_call(ctx, |call| P::default().list_by_tag(call, &request))
    }
}
