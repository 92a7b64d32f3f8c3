//! Proof by killing it: the lifecycle loop on a real etcd and kube-apiserver, with a cloud in memory that loses
//! answers, answers late and lists what was, and with operator processes that end anywhere.
//! `make chaos` runs much of it, `cargo test` a little. Left out, with a line that says so, where
//! `EPO_NODE_BIN` is not set.

#[cfg(test)]
mod churn;
#[cfg(test)]
mod cloud;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod points;
#[cfg(test)]
mod provider;
#[cfg(test)]
#[path = "../support/quick.rs"]
mod quick;
#[cfg(test)]
mod random;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod settings;
#[cfg(test)]
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod wire;
