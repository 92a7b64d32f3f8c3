//! Committed files that are generated: each is exactly what the code makes today.

use std::path::Path;

use egress_proxies_operator::cli;

#[test]
fn drift_the_committed_crd_is_the_generated_one() {
    assert_committed("crds/proxies.crawl.example.com.yaml", &cli::crd::yaml().unwrap(), "crd");
}

fn assert_committed(path: &str, generated: &str, command: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == generated,
        "{path} is out of date: run `cargo run -p egress-proxies-operator -- {command} > {path}` and commit it"
    );
}
