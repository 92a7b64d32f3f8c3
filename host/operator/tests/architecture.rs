//! The arrows between rooms, as a scan of the sources: what the compiler does not enforce.
//!
//! - `lifecycle`, `health`, `pool`, `gc` and `http` never import one another, nor `app`, `metrics` or `cli`.
//! - `axum` only under `http/`; the Kubernetes client only where it is listed; wasmtime only in `host/wasm`.
//! - `host/core` depends on nothing that could perform I/O.
//! - Files stay short enough to be read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most lines of a file, tests and scripts included.
const MOST_LINES: usize = 500;
/// Rooms that exchange values over channels alone.
const LOOPS: &[&str] = &["lifecycle", "health", "pool", "gc", "http"];
/// Rooms that know the loops and must not be known by them.
const ABOVE: &[&str] = &["app", "cli", "metrics"];
/// Where the Kubernetes client may be used, below `host/operator/src`.
const KUBERNETES: &[&str] = &[
    "lifecycle/observe",
    "lifecycle/apply",
    "lifecycle/status",
    "lifecycle/controller",
    "lifecycle/events",
    "gc/run",
    "leader",
    "app",
    "cli/crd",
    "kubernetes_client",
    "kubernetes_route",
];
/// What `host/core` must not have in its tree, not even through others.
const IMPURE: &[&str] = &[
    "tokio",
    "kube-client",
    "kube-runtime",
    "axum",
    "hyper",
    "reqwest",
    "wasmtime",
    "rand",
    "getrandom",
    "prometheus",
];

#[cfg(test)]
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[cfg(test)]
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Lines of code with their numbers: comments and what is compiled for tests only do not count.
#[cfg(test)]
fn code(path: &Path) -> Vec<(usize, String)> {
    without_tests(&fs::read_to_string(path).unwrap())
}

#[cfg(test)]
fn without_tests(text: &str) -> Vec<(usize, String)> {
    let mut lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.starts_with("//"));
    let mut found = Vec::new();
    while let Some((line, number)) = lines.next() {
        if !line.starts_with("#[cfg(test)]") {
            found.push((number, line.to_owned()));
            continue;
        }
        // One item: up to its semicolon, or to the brace that closes what it opens.
        let (mut depth, mut opened) = (0, false);
        for (line, _) in lines.by_ref() {
            opened |= line.contains('{');
            depth += line.matches('{').count();
            depth = depth.saturating_sub(line.matches('}').count());
            if depth == 0 && (opened || line.ends_with(';')) {
                break;
            }
        }
    }
    found
}

#[test]
fn what_is_for_tests_is_left_out_and_nothing_else() {
    let text = "#[cfg(test)]\nmod tests;\nuse a;\n// use b;\n#[cfg(test)]\n#[path = \"x\"]\nmod more {\n    \
                fn f() { g() }\n}\nuse c;\n#[cfg(test)]\nuse d;\nuse e;\n";
    let left = without_tests(text);
    assert_eq!(left, [(3, "use a;".to_owned()), (10, "use c;".to_owned()), (13, "use e;".to_owned())]);
}

/// Sources of the operator with their path below `src`, without tests.
#[cfg(test)]
fn operator_sources() -> Vec<(String, PathBuf)> {
    let src = root().join("host/operator/src");
    let named = rust_files(&src).into_iter().map(|path| {
        let below = path.strip_prefix(&src).unwrap().display().to_string();
        (below, path)
    });
    named.filter(|(below, _)| !below.contains("tests")).collect()
}

/// Every line of these sources that holds one of the words and may not.
#[cfg(test)]
fn offences(words: &[String], allowed: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (below, path) in operator_sources().into_iter().filter(|(below, _)| !allowed(below)) {
        for (number, line) in code(&path) {
            if words.iter().any(|word| line.contains(word.as_str())) {
                found.push(format!("{below}:{number}: {line}"));
            }
        }
    }
    found
}

#[cfg(test)]
fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn the_loops_never_import_one_another_nor_the_rooms_above() {
    for room in LOOPS {
        let others = LOOPS.iter().chain(ABOVE).filter(|other| *other != room);
        let forbidden: Vec<String> = others.map(|other| format!("crate::{other}")).collect();
        let found = offences(&forbidden, |below| !below.starts_with(&format!("{room}/")));
        assert!(found.is_empty(), "{room} exchanges values over channels only:\n{}", found.join("\n"));
    }
}

#[test]
fn axum_is_used_only_under_http() {
    let found = offences(&words(&["axum::", "use axum", "utoipa::"]), |below| below.starts_with("http/"));
    assert!(found.is_empty(), "axum belongs to http:\n{}", found.join("\n"));
}

#[test]
fn the_kubernetes_client_is_used_only_where_it_is_listed() {
    let allowed = |below: &str| KUBERNETES.iter().any(|place| below.starts_with(place));
    // Types of the API are values; the client and its runtime are not.
    let client = words(&[
        "kube::Client",
        "kube::Api",
        "kube::api",
        "kube::client",
        "kube::runtime",
        "kube::{",
        "kube::Config",
    ]);
    let found = offences(&client, allowed);
    assert!(found.is_empty(), "the client is for the listed places:\n{}", found.join("\n"));
}

#[test]
fn wasmtime_is_used_only_by_the_provider_host() {
    let root = root();
    for folder in ["host/core", "host/operator", "providers/sdk", "providers/kubernetes"] {
        let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("wasmtime"), "{folder} must not know wasmtime");
    }
}

#[test]
fn one_place_writes_status() {
    let writes = words(&["patch_status", "replace_status", ".patch_subresource", "replace_subresource"]);
    let found = offences(&writes, |below| below.starts_with("lifecycle/status"));
    assert!(found.is_empty(), "lifecycle/status is the one writer of .status:\n{}", found.join("\n"));
}

#[test]
fn core_has_nothing_in_its_tree_that_performs_io() {
    // Not `cargo metadata`: it unites the features that the whole workspace asks of a crate.
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "-p",
            "egress-proxies-core",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--offline",
            "--locked",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tree: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(tree.contains("kube-core"), "the tree was not read: {text}");
    let impure: Vec<&str> = IMPURE.iter().copied().filter(|name| tree.contains(name)).collect();
    assert!(impure.is_empty(), "host/core must stay pure, but its tree has {impure:?}");
}

#[test]
fn files_are_short_enough_to_be_read() {
    let root = root();
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut too_long = Vec::new();
    for name in listed.split('\0').filter(|name| is_ours(&root, name)) {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        let lines = text.lines().count();
        if lines > MOST_LINES {
            too_long.push(format!("{name}: {lines} lines"));
        }
    }
    assert!(too_long.is_empty(), "at most {MOST_LINES} lines per file:\n{}", too_long.join("\n"));
}

/// Rust, Go, JavaScript, Python and shell that people write; not what tools generate.
#[cfg(test)]
fn is_ours(root: &Path, name: &str) -> bool {
    let path = Path::new(name);
    let generated = name.contains("/node_modules/") || name.contains("bindings/");
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs" | "go" | "js" | "mjs" | "ts" | "py" | "sh" | "wit") => {
            !generated && !name.starts_with("wit/deps/")
        }
        Some(_) => false,
        // Scripts have no extension here.
        None => fs::read(root.join(name)).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    }
}

#[test]
fn no_file_is_a_drawer_for_everything() {
    for (below, _) in operator_sources() {
        for name in ["utils", "common", "helpers", "manager"] {
            assert!(
                !below.contains(&format!("{name}.rs")) && !below.contains(&format!("{name}/")),
                "{below}"
            );
        }
    }
}
