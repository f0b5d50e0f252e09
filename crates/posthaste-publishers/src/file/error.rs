//! What may go wrong with the file.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file that cannot be appended to, and what to do about it.
#[derive(Debug, Error)]
#[error("cannot append to {}: {source}; {}", .path.display(), remedy(.path, .source))]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The operating system's answer.
    pub source: io::Error,
}

fn remedy(path: &Path, error: &io::Error) -> String {
    let directory = directory(path).display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => format!("create the directory {directory}"),
        io::ErrorKind::PermissionDenied => format!("let this process write to the file and to {directory}"),
        io::ErrorKind::ReadOnlyFilesystem => format!("mount {directory} writable, or choose another path"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("free some space in {directory}"),
        io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => "give the path of a plain file".to_owned(),
        io::ErrorKind::WouldBlock => "end that process, or choose another path".to_owned(),
        _ => "check the path and the disk".to_owned(),
    }
}

/// Where the file's name is kept.
pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
