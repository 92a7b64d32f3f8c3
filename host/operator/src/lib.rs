//! The operator: loops, HTTP and wiring.
