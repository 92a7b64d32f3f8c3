//! Which machines nobody needs any more: what a crash between a create and its record leaves behind.
//!
//! All of it is pure. The loop of the operator lists the machines of each provider, then the Proxies, asks
//! [`plan`] what is to go, and asks [`check_machine`] and [`check_proxy`] once more right before each
//! delete. `docs/gc.md` has the tables; each row has a test of the same name.
//!
//! A machine is deleted if and only if
//!
//! - its tags prove that this cluster made it, for this entry of the providers config, for a uid;
//! - the uid is that of no Proxy (an *orphan*), or of one that names two other machines, of which the
//!   recorded one was listed too and is not going (a *surplus* machine);
//! - that was so in two passes, and the machine is older than the minimum age;
//! - it is not being deleted already, unless that was so in two passes: then the delete hangs and is repeated;
//! - it is among the oldest that a pass may delete, and not nearly all machines of its provider look so.
//!
//! It never compares names, never takes an unfinished list for a whole one, and never touches a machine
//! that lacks a tag, however its name looks.
//!
//! The order of the lists is what makes a create safe: a machine that is listed was made for a Proxy that
//! existed before it, so a later and complete list of the Proxies has that Proxy, or it is gone for good
//! (a uid is never given twice).

mod confirm;
mod machine;
mod observed;
mod plan;
mod policy;
mod sightings;

#[cfg(test)]
mod tests;

pub use confirm::{Spared, check_machine, check_proxy};
pub use machine::{Finding, untagged};
pub use observed::{LivingProxy, Machines, Observed, Proxies, View};
pub use plan::{Plan, Removal, Seen, Verdict, plan};
pub use policy::Policy;
pub use sightings::{MachineKey, Sighting, Sightings};
