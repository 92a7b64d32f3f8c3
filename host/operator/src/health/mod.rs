//! Probes every proxy through itself.
