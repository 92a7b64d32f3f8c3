//! One recorder per loop.
