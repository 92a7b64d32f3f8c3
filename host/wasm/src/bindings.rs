//! Generated from `wit/` and nothing else: host-side types of the provider contract.
//!
//! Values of these types print what they hold, secrets included. They are built and taken apart in
//! `convert` and must never be logged or stored.

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "egress-proxies:provider/provider",
    imports: { default: trappable },
    exports: { default: async },
    with: {
        "wasi:http": wasmtime_wasi_http::p2::bindings::http,
        "wasi:io": wasmtime_wasi::p2::bindings::io,
        "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
        "wasi:random": wasmtime_wasi::p2::bindings::random,
    },
});
