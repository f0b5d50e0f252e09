//! Whether the database is still the file that was opened.
//!
//! One that was deleted, moved or replaced (a backup was restored) stays open, and is empty for ever: a relay would wait for
//! messages that are written to another file.

use std::path::Path;
use std::sync::OnceLock;

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;

/// Device and number of the file at first sight; `None` for a database in memory, and where files have no numbers.
#[derive(Debug, Default)]
pub(crate) struct OpenedFile(OnceLock<Option<(u64, u64)>>);

impl OpenedFile {
    /// An error if another file, or none, is at the place of the one that was there at first.
    pub(crate) fn check(&self, path: &Path) -> Result<(), StoreError> {
        let now = number(path);
        match self.0.get_or_init(|| now) {
            Some(first) if now != Some(*first) => Err(StoreError {
                kind: StoreErrorKind::Unavailable,
                message: format!(
                    "the database {} was deleted or replaced while it was open",
                    path.display()
                ),
                remedy: Some("put it back, or restart to open the one that is there now"),
                source: None,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(unix)]
fn number(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn number(_: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_not_the_one_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let opened = OpenedFile::default();
        assert!(opened.check(Path::new(":memory:")).is_ok());

        let opened = OpenedFile::default();
        std::fs::write(&path, "first").unwrap();
        opened.check(&path).unwrap();
        std::fs::rename(&path, dir.path().join("aside.db")).unwrap();
        assert_eq!(opened.check(&path).unwrap_err().kind, StoreErrorKind::Unavailable);
        std::fs::write(&path, "second").unwrap();
        let error = opened.check(&path).unwrap_err().to_string();
        assert!(error.contains("a.db") && error.contains("restart"), "{error}");
        std::fs::rename(dir.path().join("aside.db"), &path).unwrap();
        opened.check(&path).unwrap();
    }
}
