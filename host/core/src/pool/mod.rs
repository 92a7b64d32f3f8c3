//! Selecting proxies for leases.
