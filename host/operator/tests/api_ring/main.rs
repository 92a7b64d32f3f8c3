//! The lifecycle loop against a real etcd and kube-apiserver, with a cloud in memory that keeps real state, or (`pods`)
//! with the kubernetes provider. Left out, with a line that says so, where `EPO_NODE_BIN` is not set.

#![cfg(test)]

mod abandon;
mod accounts;
mod caps;
mod cloud;
mod clouds;
mod crashes;
mod delete_only;
mod deletions;
mod gc;
mod gentle;
mod handover;
mod happy;
mod inputs;
mod loading;
mod operator;
mod others;
mod pods;
mod provider;
mod rights;
mod slots;
mod specs;
mod spy;
#[path = "../support/mod.rs"]
mod support;
mod survey;
mod watches;
#[path = "../support/wiring.rs"]
mod wiring;
