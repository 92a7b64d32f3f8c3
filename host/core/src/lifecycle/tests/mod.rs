//! Tags, back-off and facts.

mod backoff;
mod facts;
mod tags;
