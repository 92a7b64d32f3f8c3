//! The whole way on a real node: a Proxy, the real operator process with the rights of its own
//! ServiceAccount, the kubernetes provider as a component, a real Squid pod, and curl through it.
//!
//! Needs `EPO_KUBECONFIG` (a cluster whose pod addresses this machine reaches), `EPO_NODE_BIN` (kubectl) and
//! `EPO_GUESTS_DIR` (kubernetes.wasm); `make test` sets them. Without them a line on standard error says that
//! these tests are skipped. One operator serves all tests of this binary.

#![cfg(test)]

mod cluster;
mod external;
mod main_job;
mod operator;
mod replace;
mod rules;
mod squid;
