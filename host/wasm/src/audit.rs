//! What a file is and what it wants, read from its bytes without running or compiling it.
//!
//! Compiling costs up to half a minute and the linker's errors are for engineers; this look comes first
//! and says in plain words what is wrong and how to mend it. It decides nothing about safety: the linker
//! and the gate do.

use wasmparser::{Parser, Payload};

use crate::call::mask::one_line;
use crate::limits::{MEMORIES, TABLES};

/// Contract that this host speaks.
const CONTRACT: &str = "egress-proxies:provider";
/// Its version track: any 0.1.z fits.
const TRACK: &str = "0.1.";
/// Interfaces that every provider exports.
const EXPORTS: [&str; 2] = ["meta", "lifecycle"];
/// Packages whose interfaces the host links (version track 0.2).
const WASI: [&str; 6] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];
/// Interfaces of wasi:http that the host links.
const HTTP: [&str; 2] = ["wasi:http/types", "wasi:http/outgoing-handler"];

/// What the bytes say of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Version of the contract that the component was built against.
    pub(crate) contract: String,
    /// Imports that link and fail when used, such as sockets.
    pub(crate) denied_imports: Vec<String>,
}

/// Why the bytes are no provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuditError {
    /// Not a component at all.
    #[error("{0}")]
    Kind(String),
    /// A component, but not one that fits.
    #[error("{0}")]
    Interface(String),
}

/// Looks at the bytes of a file.
pub(crate) fn audit(bytes: &[u8]) -> Result<Audit, AuditError> {
    kind(bytes)?;
    let Outline { imports, exports, memories, tables } = outline(bytes)?;
    if memories > MEMORIES.into() || tables > TABLES.into() {
        return Err(AuditError::Interface(format!(
            "defines {memories} memories and {tables} tables; a call may have {MEMORIES} memories and {TABLES} tables: \
             compose it of fewer components"
        )));
    }
    let mut denied_imports = Vec::new();
    for name in &imports {
        import(name)?;
        if name.starts_with("wasi:sockets/") || name.starts_with("wasi:filesystem/") {
            denied_imports.push(name.clone());
        }
    }
    Ok(Audit { contract: contract(&exports)?, denied_imports })
}

/// Tells apart the things that people put where a component belongs.
fn kind(bytes: &[u8]) -> Result<(), AuditError> {
    let fail = |text: &str| Err(AuditError::Kind(text.to_owned()));
    match bytes {
        [] => fail("the file is empty"),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => fail(
            "this is a core module, not a component; make one with `wasm-tools component new module.wasm -o provider.wasm`, or build for the target wasm32-wasip2",
        ),
        [0, b'a', b's', b'm', _, _, 1, 0, ..] => Ok(()),
        [0x7f, b'E', b'L', b'F', ..] => {
            fail("this is a native or precompiled file; only WebAssembly components are accepted")
        }
        [0x1f, 0x8b, ..] => fail("this is a gzip file; unpack it"),
        [0, b'a', b's', b'm', ..] => {
            fail("this is a truncated or unknown WebAssembly file; build or copy it again")
        }
        _ if bytes.iter().take(512).all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) => fail(
            "this is a text file, not a component; WebAssembly text is turned into one by `wasm-tools parse`",
        ),
        _ => fail("this is no WebAssembly file"),
    }
}

/// What the sections of a component say.
#[derive(Default)]
struct Outline {
    /// Names of the outermost imports.
    imports: Vec<String>,
    /// And of the outermost exports.
    exports: Vec<String>,
    /// In all modules within it.
    memories: u32,
    tables: u32,
}

fn outline(bytes: &[u8]) -> Result<Outline, AuditError> {
    let broken = |error: wasmparser::BinaryReaderError| {
        AuditError::Kind(format!(
            "the component is truncated or damaged ({}); build or copy it again",
            error.message()
        ))
    };
    let (mut outline, mut depth) = (Outline::default(), 0_u32);
    for payload in Parser::new(0).parse_all(bytes) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "these are looked at and nothing else")]
        match payload.map_err(broken)? {
            Payload::Version { .. } => depth = depth.saturating_add(1),
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    outline.imports.push(import.map_err(broken)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    outline.exports.push(export.map_err(broken)?.name.name.to_owned());
                }
            }
            Payload::MemorySection(section) => {
                outline.memories = outline.memories.saturating_add(section.count());
            }
            Payload::TableSection(section) => outline.tables = outline.tables.saturating_add(section.count()),
            _ => {}
        }
    }
    Ok(outline)
}

fn import(name: &str) -> Result<(), AuditError> {
    let fail = |text: String| Err(AuditError::Interface(text));
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    if interface.strip_prefix(CONTRACT).is_some_and(|rest| rest == "/host-log" || rest == "/model") {
        return if version.starts_with(TRACK) { Ok(()) } else { fail(wrong_contract(version)) };
    }
    if interface.starts_with("wasi:") && !version.starts_with("0.2.") {
        return fail(format!(
            "imports {name}; this host offers WASI 0.2 only: build with a toolchain and world that target 0.2"
        ));
    }
    if WASI.iter().any(|package| interface.starts_with(package)) || HTTP.contains(&interface) {
        return Ok(());
    }
    fail(format!(
        "imports {name}, which this host does not offer; a provider may import what the world in wit/world.wit names, and WASI 0.2"
    ))
}

fn contract(exports: &[String]) -> Result<String, AuditError> {
    let mut version = None;
    for interface in EXPORTS {
        let prefix = format!("{CONTRACT}/{interface}@");
        let Some(found) = exports.iter().find_map(|name| name.strip_prefix(&prefix)) else {
            return Err(AuditError::Interface(format!(
                "does not export {CONTRACT}/{interface}; a provider implements the world in wit/world.wit"
            )));
        };
        if !found.starts_with(TRACK) {
            return Err(AuditError::Interface(wrong_contract(found)));
        }
        version = Some(found.to_owned());
    }
    version.map(|version| one_line(&version, 64)).ok_or_else(|| AuditError::Interface(wrong_contract("")))
}

fn wrong_contract(version: &str) -> String {
    format!(
        "was built against version {version:?} of {CONTRACT} and this host speaks {TRACK}x; build it against the wit/ folder of this release"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_file_is_named_for_what_it_is() {
        for (bytes, word) in [
            (&b""[..], "empty"),
            (b"\0asm\x01\0\0\0", "core module"),
            (b"\0asm\x0d\0", "truncated"),
            (b"\0asm\x0d\0\x01\0\x07\xff", "truncated"),
            (b"(component)\n", "text file"),
            (b"\x7fELF\x02\x01", "precompiled"),
            (b"\x1f\x8b\x08\0", "gzip"),
            (b"\xff\xfe\0\x01", "no WebAssembly"),
        ] {
            let error = audit(bytes).unwrap_err();
            assert!(matches!(error, AuditError::Kind(_)), "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn an_import_outside_of_the_world_is_refused_by_name() {
        for (name, word) in [
            ("wasi:http/types@0.3.0", "0.2 only"),
            ("wasi:keyvalue/store@0.2.0", "does not offer"),
            ("acme:secret/door@1.0.0", "does not offer"),
            ("egress-proxies:provider/host-log@0.2.0", "0.1.x"),
            ("wasi:http/incoming-handler@0.2.0", "does not offer"),
        ] {
            let error = import(name).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        for name in
            ["wasi:http/types@0.2.3", "wasi:sockets/tcp@0.2.0", "egress-proxies:provider/host-log@0.1.4"]
        {
            assert!(import(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_component_without_our_exports_is_told_what_is_missing() {
        let bytes = wat::parse_str("(component)").unwrap();
        assert!(
            audit(&bytes).unwrap_err().to_string().contains("does not export egress-proxies:provider/meta")
        );
    }
}
