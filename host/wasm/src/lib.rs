//! The provider host.
