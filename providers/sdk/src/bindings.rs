//! Rust types and glue generated from `wit/`: nothing is written by hand here.
//!
//! Guests use the words through [`crate::model`]; only `wasi.rs` and `adapter.rs` may touch the rest.

wit_bindgen::generate!({
    path: "../../wit",
    world: "provider",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "egress_proxies_provider_sdk::bindings",
    additional_derives: [PartialEq],
    // Holds a resource, which has no equality.
    additional_derives_ignore: ["stream-error"],
});
