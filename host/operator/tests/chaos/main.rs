//! Proof by killing it: the lifecycle loop on a real etcd and kube-apiserver, with a cloud in memory that loses
//! answers, answers late and lists what was, and with operator processes that end anywhere.
//! `make chaos` runs much of it, `cargo test` a little. Left out, with a line that says so, where
//! `EPO_NODE_BIN` is not set.

#![cfg(test)]

mod churn;
mod cloud;
mod gate;
mod operator;
mod points;
mod provider;
mod random;
mod schedule;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod wire;
#[path = "../support/wiring.rs"]
mod wiring;
