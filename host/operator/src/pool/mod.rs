//! Holds leases and cooldowns.
