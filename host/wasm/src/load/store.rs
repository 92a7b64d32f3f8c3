//! The private folder of compiled components.
//!
//! What lies in it is native code that will be mapped and run, so it must have been written by this
//! program and by nobody else: the folder belongs to our user with mode 0700, links are not followed, and
//! nothing from outside is ever copied in. Names are keyed by the component's digest and by everything
//! that changes the code made of it; an artefact of another release is simply never found.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{LoadFault, Stage};

/// The folder, checked.
#[derive(Debug, Clone)]
pub(crate) struct ArtefactStore {
    folder: PathBuf,
}

impl ArtefactStore {
    /// Creates or checks the folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, LoadFault> {
        let fault = |what: String| {
            LoadFault::new(
                Stage::Compile,
                format!("the folder for compiled components, {}: {what}", folder.display()),
            )
        };
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(|error| fault(format!("could not be made: {error}")))?;
        }
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(fault(format!("could not be made: {error}"))),
        }
        let about =
            fs::symlink_metadata(folder).map_err(|error| fault(format!("could not be read: {error}")))?;
        if !about.is_dir() {
            return Err(fault("is not a folder (links are not followed)".into()));
        }
        let ours = rustix::process::geteuid().as_raw();
        if about.uid() != ours {
            return Err(fault(format!(
                "belongs to user {}, not to {ours}; give it a folder of its own",
                about.uid()
            )));
        }
        if about.permissions().mode() & 0o077 != 0 {
            return Err(fault("others can read or write it, so what is in it may be theirs; remove it, or use another folder".into()));
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// An artefact is code that is going to run: a file, no link, that nobody but us can have written.
    pub(crate) fn is_ours(artefact: &Path) -> wasmtime::Result<()> {
        let about = fs::symlink_metadata(artefact)?;
        let ours = rustix::process::geteuid().as_raw();
        if !about.is_file() || about.uid() != ours || about.permissions().mode() & 0o077 != 0 {
            wasmtime::bail!("it is not a file that belongs to us alone");
        }
        Ok(())
    }

    /// Where the artefact of a component is, or will be.
    pub(crate) fn path(&self, sha256: &str, compatibility: &str) -> PathBuf {
        self.folder.join(format!("{sha256}-{compatibility}.cwasm"))
    }

    /// A new name to write to before the artefact is moved to its place.
    pub(crate) fn scratch(&self, sha256: &str) -> PathBuf {
        self.folder.join(format!("{sha256}.{}.tmp", std::process::id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_or_refused() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("a/b");
        ArtefactStore::open(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
        let error = ArtefactStore::open(&folder).unwrap_err();
        assert_eq!(error.stage, Stage::Compile);
        assert!(error.reason.contains("another folder"), "{}", error.reason);
    }

    #[test]
    fn a_file_that_others_may_have_written_is_not_ours() {
        let base = tempfile::tempdir().unwrap();
        let store = ArtefactStore::open(&base.path().join("a")).unwrap();
        let file = store.path("abc", "def");
        assert!(ArtefactStore::is_ours(&file).is_err(), "it is not there");
        fs::write(&file, b"code").unwrap();
        for (mode, good) in [(0o600, true), (0o644, false), (0o620, false)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(ArtefactStore::is_ours(&file).is_ok(), good, "{mode:o}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let link = store.path("link", "def");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(ArtefactStore::is_ours(&link).is_err(), "a link may lead to anything");
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(ArtefactStore::open(&link).unwrap_err().reason.contains("links"));
    }
}
