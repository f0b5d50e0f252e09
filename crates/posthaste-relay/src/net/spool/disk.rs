//! Files and their names on the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// `spool.jsonl.lock` for `spool.jsonl`
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

pub(super) fn directory(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A file for its owner's eyes only: payloads are not for everybody.
pub(super) fn open_private(path: &Path, append: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).create(true);
    if append {
        options.append(true);
    } else {
        options.write(true).truncate(false);
    }
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes new names in the directory of the file survive a crash.
pub(super) fn sync_directory(file: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(directory(file))?.sync_all()?;
    }
    Ok(())
}
