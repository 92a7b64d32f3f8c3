//! Several operators, one of which acts: hand-over by crash, by order, by being cut off, stopped or outvoted.
//! And one alone that loses the API server for a while.
//! `loops` runs lifecycle loops over one cloud in memory, so that every effect is seen; `processes`, `alone`,
//! `outages` and `blind` run the built binary.

mod alone;
mod blind;
mod contender;
mod link;
mod loops;
mod outages;
mod processes;
mod replica;
mod rights;
