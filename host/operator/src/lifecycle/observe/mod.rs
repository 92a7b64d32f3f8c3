//! What is known about a Proxy: caches of the API server's objects, our own last writes, live reads.
//!
//! Nothing here writes.

mod changes;
mod healing;
mod own_writes;
mod progress;
mod secrets;
mod stores;
mod surroundings;
mod waking;

pub(crate) use changes::Change;
pub(crate) use own_writes::OwnWrites;
pub(crate) use secrets::refers_to;
pub use stores::{Namespaces, WatchEnded};
pub(crate) use stores::{OnChange, Stores, key_of, open};
pub(crate) use surroundings::Sources;
