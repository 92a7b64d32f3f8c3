//! Proof by killing it: the lifecycle loop on a real etcd and kube-apiserver, with a cloud in memory that loses
//! answers, answers late and lists what was, and with operator processes that end, or pause, anywhere.
//! `make chaos` runs much of it, `cargo test` a little. Left out, with a line that says so, where
//! `EPO_NODE_BIN` is not set.
//!
//! The tests are `points` and `people` (stopped, or paused, at every effect of a life), `random` (schedules),
//! `churn`, and `collected` (with garbage collection). A world is in `operator`; in it `provider` and `cloud` make the
//! machines, `wire` and `gate` decide what becomes of each effect, `users` and `clients` ask, and `schedule` says what
//! they do and when, which `happen` carries out. `books` (what was asked), `record` (what became of machines) and
//! `witness` (who was out of service) write down; `accounts` judges.

#![cfg(test)]

mod accounts;
mod books;
mod churn;
mod clients;
mod cloud;
mod collected;
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
