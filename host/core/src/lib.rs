//! Types and decisions of the egress proxies operator.
//!
//! **Invariant: nothing here performs I/O.** No tokio, no Kubernetes client, no HTTP, no wasmtime, no
//! environment, no clock and no randomness: the time and chance come in as parameters. Each loop of the
//! operator gathers an observation, asks one pure function of this crate, and carries out the answer.

pub mod address;
pub mod ids;
pub mod time;

pub mod crd;
pub mod provider;

pub mod facts;

pub mod gc;
pub mod health;
pub mod leader;
pub mod lifecycle;
pub mod pool;
