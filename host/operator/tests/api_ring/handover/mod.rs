//! Several operators, one of which acts: hand-over by crash, by order, by being cut off, stopped or outvoted.
//! And one alone that loses the API server for a while.
//! `loops` runs lifecycle loops over one cloud in memory, so that every effect is seen; `processes`, `alone`,
//! `outages`, `blind` and `series` run the built binary, and `fleet` runs it with a provider component and real Pods.

mod alone;
mod blind;
mod contender;
mod fleet;
mod link;
mod loops;
mod node;
mod outages;
mod processes;
mod replica;
mod rights;
mod series;
mod wire;
