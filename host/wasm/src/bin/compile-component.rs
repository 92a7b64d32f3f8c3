//! The compile child as a program of its own, for tests and benchmarks of this crate. The operator's binary
//! has the same as a hidden subcommand.

fn main() -> std::process::ExitCode {
    egress_proxies_wasm::compile_child_main(std::env::args_os().skip(1))
}
