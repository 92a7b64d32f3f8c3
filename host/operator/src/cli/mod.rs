//! The command line. Each command is a function that returns text or an error; only `main` prints.

pub mod crd;
pub mod provider;
pub mod run;
