//! Observes Proxies and their machines, decides, applies; the one writer of status.
