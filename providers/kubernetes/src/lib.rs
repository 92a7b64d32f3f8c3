//! Provider that runs one Squid pod per Proxy.
