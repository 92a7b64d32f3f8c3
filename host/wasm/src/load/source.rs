//! The bytes of a component and their digest. So far from a file only.
//!
//! Nothing here trusts the file: its size is bounded before it is read, and its digest is compared with
//! the configured one if there is one. Registries and downloads are refused with a clear word.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{LoadFault, Stage};
use crate::config::Source;

/// Largest component.
const MOST_BYTES: u64 = 64 << 20;

/// A component's bytes and what identifies them.
pub(crate) struct Bytes {
    pub(crate) bytes: Vec<u8>,
    /// Lower-case hex of the SHA-256.
    pub(crate) sha256: String,
}

/// Reads the configured source. Blocking: runs on a thread that may wait.
pub(crate) fn read(source: &Source) -> Result<Bytes, LoadFault> {
    match source {
        Source::File { path, sha256 } => {
            let bytes = read_file(path)?;
            let found = hex(&Sha256::digest(&bytes));
            match sha256 {
                Some(expected) if *expected != found => Err(LoadFault::new(
                    Stage::Read,
                    format!("{} has the SHA-256 {found}, but source.sha256 is {expected}", path.display()),
                )),
                Some(_) | None => Ok(Bytes { bytes, sha256: found }),
            }
        }
        Source::Https { url, .. } => Err(later("https", url)),
        Source::Oci { reference } => Err(later("oci", reference)),
    }
}

fn later(kind: &str, what: &str) -> LoadFault {
    LoadFault::new(
        Stage::Source,
        format!("source.{kind} ({what}) is not supported yet in this release; use source: {{ file: ... }}"),
    )
}

fn read_file(path: &Path) -> Result<Vec<u8>, LoadFault> {
    let fault = |what: String| LoadFault::new(Stage::Read, format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            fault("there is no such file; check source.file, relative paths start at the folder of the providers config".into())
        } else {
            fault(format!("could not be opened: {error}"))
        }
    })?;
    let about = file.metadata().map_err(|error| fault(format!("could not be read: {error}")))?;
    if !about.is_file() {
        return Err(fault("is not a file".into()));
    }
    let mut bytes = Vec::new();
    // The size may change while it is read: the bound is on what is read.
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| fault(format!("could not be read: {error}")))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MOST_BYTES {
        return Err(fault(format!("is larger than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
