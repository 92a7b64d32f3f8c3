//! Proof by killing it: the lifecycle loop on a real etcd and kube-apiserver, with a cloud in memory that loses
//! answers, answers late and lists what was, and with operator processes that end anywhere.
//! `make chaos` runs much of it, `cargo test` a little. Left out, with a line that says so, where
//! `EPO_NODE_BIN` is not set.

#![cfg(test)]

mod accounts;
mod books;
mod churn;
mod clients;
mod cloud;
mod gate;
mod happen;
mod operator;
mod people;
mod points;
mod provider;
mod random;
mod record;
mod schedule;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod users;
mod wire;
#[path = "../support/wiring.rs"]
mod wiring;
mod witness;
