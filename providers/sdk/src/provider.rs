//! The calls of the contract as a trait, and what each is given.
//!
//! The calls of `meta` get a [`Context`] alone: without a [`Host`] they cannot reach the network, which
//! the contract forbids them.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::document;
use crate::host::Host;
use crate::model::{
    CallContext, ConfigReport, CreatePlan, CreateRequest, Deletion, Description, Failure, Instance,
    InstanceRef, ListRequest, Observation, Page,
};

/// A provider. `Default`, because each call is a new instance.
///
/// What each call must do is written in `wit/meta.wit` and `wit/lifecycle.wit`.
pub trait Provider: Default {
    /// What this provider is.
    fn describe(&self) -> Description;
    /// Judge one configuration.
    ///
    /// # Errors
    /// `invalid` with the field at fault.
    fn validate_config(&self, context: &Context) -> Result<ConfigReport, Failure>;
    /// Judge one machine that is to be made, and say which id it will have.
    ///
    /// # Errors
    /// `invalid` with the field at fault, `permanent` or `unsupported` when no field is.
    fn validate_create(&self, context: &Context, request: &CreateRequest) -> Result<CreatePlan, Failure>;
    /// Start making the machine and return.
    ///
    /// # Errors
    /// `name-taken`, `busy`, or what upstream said.
    fn create(&self, call: &Call<'_>, request: &CreateRequest) -> Result<Instance, Failure>;
    /// How is this machine?
    ///
    /// # Errors
    /// Whenever upstream did not say for certain.
    fn get(&self, call: &Call<'_>, target: &InstanceRef) -> Result<Observation, Failure>;
    /// Start deleting this machine and return.
    ///
    /// # Errors
    /// What upstream said.
    fn delete(&self, call: &Call<'_>, target: &InstanceRef) -> Result<Deletion, Failure>;
    /// One page of the machines that carry all of `request.owner`.
    ///
    /// # Errors
    /// `stale-cursor`, `unsupported`, or what upstream said.
    fn list_by_tag(&self, call: &Call<'_>, request: &ListRequest) -> Result<Page, Failure>;
}

/// What is given with every call.
#[derive(Debug, Clone)]
pub struct Context {
    inner: CallContext,
}

impl Context {
    /// From the words of the contract.
    pub fn new(inner: CallContext) -> Self {
        Self { inner }
    }

    /// Name of this instance in the providers config. For messages only.
    pub fn provider(&self) -> &str {
        &self.inner.provider
    }

    /// New for each call; pass it on for upstream's logs.
    pub fn request_id(&self) -> &str {
        &self.inner.request_id
    }

    /// The instance's configuration.
    ///
    /// # Errors
    /// `invalid` with the pointer of the field at fault.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        document::parse("config", &self.inner.config)
    }

    /// A value of `extra`.
    pub fn extra(&self, key: &str) -> Option<&str> {
        self.inner.extra.iter().find(|pair| pair.key == key).map(|pair| pair.value.as_str())
    }

    /// The namespace that the administrator granted to this instance, if one was.
    pub fn kubernetes_namespace(&self) -> Option<&str> {
        self.extra("kubernetes-namespace")
    }
}

/// What is given with a call that may use the network.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The configuration and the rest.
    pub context: &'a Context,
    /// The way to upstream.
    pub host: &'a dyn Host,
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Call").field("context", self.context).finish_non_exhaustive()
    }
}
