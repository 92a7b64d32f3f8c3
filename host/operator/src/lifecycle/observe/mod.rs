//! What is known about a Proxy: caches of the API server's objects, our own last writes, live reads.
//!
//! Nothing here writes. `stores` opens the caches and the watches that fill them; `healing` keeps a watch going,
//! `waking` begins it anew after a pause, `progress` knows how far it is, `changes` what an event changed;
//! `own_writes` is ahead of the caches by what this process wrote; `secrets` and `surroundings` put together what
//! one pass looks at.

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
