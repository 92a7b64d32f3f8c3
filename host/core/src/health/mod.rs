//! Judging probes: thresholds, and when the next probe is due.
