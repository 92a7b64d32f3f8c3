//! The kubernetes provider, as the component that is shipped, on a real API server with the rights that
//! `deploy/base` gives it. The tests play scheduler and kubelet, so that pods end in ways that a real node shows
//! only when it breaks.
//!
//! Needs `EPO_GUESTS_DIR` beside `EPO_NODE_BIN`; without it a line says that these tests are left out.

mod accounts;
mod ends;
mod lost;
mod node;
mod world;
