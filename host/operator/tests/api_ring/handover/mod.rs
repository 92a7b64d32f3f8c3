//! Several operators, one of which acts: hand-over by crash, by order, by being cut off, stopped or outvoted.
//! `loops` runs lifecycle loops over one cloud in memory, so that every effect is seen; `processes` runs the
//! built binary.

mod contender;
mod link;
mod loops;
mod processes;
mod replica;
mod rights;
