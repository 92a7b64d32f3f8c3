//! The lifecycle loop against a real etcd and kube-apiserver, with a cloud in memory that keeps real state.
//! Left out, with a line that says so, where `EPO_NODE_BIN` is not set.

#[cfg(test)]
mod abandon;
#[cfg(test)]
mod cloud;
#[cfg(test)]
mod clouds;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod deletions;
#[cfg(test)]
mod gc;
#[cfg(test)]
mod gentle;
#[cfg(test)]
mod handover;
#[cfg(test)]
mod happy;
#[cfg(test)]
mod inputs;
#[cfg(test)]
mod loading;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod others;
#[cfg(test)]
mod provider;
#[cfg(test)]
#[path = "../support/quick.rs"]
mod quick;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod specs;
#[cfg(test)]
mod spy;
#[cfg(test)]
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod watches;
