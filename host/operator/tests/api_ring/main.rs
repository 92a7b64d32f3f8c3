//! The lifecycle loop against a real etcd and kube-apiserver, with a cloud in memory that keeps real state.
//! Left out, with a line that says so, where `EPO_NODE_BIN` is not set.

mod cloud;
mod crashes;
mod happy;
mod inputs;
mod loading;
mod operator;
mod others;
mod provider;
mod spy;
#[path = "../support/mod.rs"]
mod support;
