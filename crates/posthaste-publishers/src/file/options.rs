//! The file publisher's settings.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which file, and how surely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FileOptions {
    /// The file. It is created if it is missing; its directory is not, so that a missing mount is noticed.
    pub path: PathBuf,
    /// Whether each batch is forced to disk before it counts as delivered. Without it messages that were reported as
    /// delivered are lost when the machine, though not when the process, dies. Defaults to true.
    #[serde(default = "yes")]
    pub fsync: bool,
}

impl FileOptions {
    /// The file at `path`, with the defaults.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            fsync: true,
        }
    }

    /// Whether each batch is forced to disk before it counts as delivered.
    #[must_use]
    pub fn fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }
}

fn yes() -> bool {
    true
}
