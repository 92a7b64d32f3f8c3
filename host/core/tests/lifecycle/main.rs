//! The lifecycle against a simulated world: an API server with resource versions, and a cloud that keeps
//! real state, loses answers, answers late and fails. The operator may die before or after each effect,
//! forgetting all it knew, and may start from an old copy of the object.
//!
//! Whatever happens: never two live machines for one Proxy, never a machine without its Proxy, and in
//! calm one healthy machine and no more writes.

#![expect(clippy::unwrap_used, reason = "a broken fixture must stop the test at once")]

mod budget;
mod cloud;
mod cluster;
mod crashes;
mod fleet;
mod operator;
mod promises;
mod random;
mod stuck;
mod survey;
mod world;
