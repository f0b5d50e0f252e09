//! The file that is appended to.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::disk::{beside, directory, open_private, sync_directory};
use super::letter::{Line, Mark};

/// Where dead letters are kept that the database does not take, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolConfig {
    /// The file. Its directory has to exist. One for each outbox; its relays on one machine may share it.
    pub file: PathBuf,
    /// A file that has grown to so many bytes is set aside under a number. Defaults to 64 MiB.
    pub rotate_bytes: u64,
    /// All of them together take no more than so many bytes. Defaults to 1 GiB.
    pub max_bytes: u64,
}

impl SpoolConfig {
    /// A spool in this file, with the default limits.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            rotate_bytes: 64 << 20,
            max_bytes: 1 << 30,
        }
    }
}

/// Why the spool does not take a letter, or cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The disk is full, rights are missing, and the like.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no directory for the file.
    #[error(
        "{directory}: there is no such directory; make it, writable for this user, or set safety_net.file to a file elsewhere"
    )]
    NoDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The limit is reached.
    #[error("{file}: the spool is full, at safety_net.max_bytes = {max_bytes}; import its letters, or raise the limit")]
    Full {
        /// The file.
        file: PathBuf,
        /// The limit.
        max_bytes: u64,
    },
}

/// Dead letters in a file.
#[derive(Clone, Debug)]
pub struct Spool {
    config: SpoolConfig,
}

impl Spool {
    /// A spool in these files. Touches nothing yet.
    pub fn new(config: SpoolConfig) -> Self {
        Self { config }
    }

    /// The file that lines are appended to.
    pub fn file(&self) -> &Path {
        &self.config.file
    }

    /// Whether lines can be appended: makes the file if it is not there, and leaves its content alone.
    ///
    /// # Errors
    /// If the file cannot be made or opened for writing, or the limit is reached.
    pub fn check(&self) -> Result<(), SpoolError> {
        let _lock = self.lock()?;
        let _file = self.active()?;
        if self.total_bytes()? >= self.config.max_bytes {
            return Err(self.full());
        }
        Ok(())
    }

    /// The size of all files; 0 if there are none.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn size(&self) -> Result<u64, SpoolError> {
        self.total_bytes()
    }

    /// Appends lines, as many as there is room for, and returns how many of them are on the disk. If that is not all of
    /// them, why. Marks of letters that are no longer needed go beyond the limit: they are small, and they make room.
    pub fn append(&self, lines: &[Line]) -> (usize, Result<(), SpoolError>) {
        match self.append_locked(lines) {
            Ok((written, outcome)) => (written, outcome),
            Err(error) => (0, Err(error)),
        }
    }

    /// Marks letters whose messages an operator has thrown away, so that no import brings them back. Returns how many of
    /// them were in the spool.
    ///
    /// # Errors
    /// If the spool cannot be read or written.
    pub fn settle(&self, is_gone: impl Fn(&Mark) -> bool) -> Result<usize, SpoolError> {
        // Not even a lock where there is nothing to be marked.
        if self.scan()?.open.is_empty() {
            return Ok(0);
        }
        let _lock = self.lock()?;
        let open = self.scan()?.open.into_iter().map(|open| open.mark);
        let marks: Vec<_> = open.filter(|mark| is_gone(mark)).map(Line::Settled).collect();
        if marks.is_empty() {
            return Ok(0);
        }
        let (written, outcome) = self.append_unlocked(&marks)?;
        outcome.map(|()| written)
    }

    fn append_locked(&self, lines: &[Line]) -> Result<(usize, Result<(), SpoolError>), SpoolError> {
        let _lock = self.lock()?;
        self.append_unlocked(lines)
    }

    /// For those who have the lock.
    fn append_unlocked(&self, lines: &[Line]) -> Result<(usize, Result<(), SpoolError>), SpoolError> {
        let mut total = self.total_bytes()?;
        let mut file = self.rotated(self.active()?)?;
        let mut end = file.metadata().map_err(|error| self.io(error))?.len();
        self.end_torn_line(&mut file, &mut end)?;
        let (mut written, mut outcome) = (0, Ok(()));
        for line in lines {
            let mut bytes = serde_json::to_vec(line).map_err(|error| self.io(error.into()))?;
            bytes.push(b'\n');
            let length = bytes.len() as u64;
            if matches!(line, Line::Letter(_)) && total + length > self.config.max_bytes {
                outcome = Err(self.full());
                break;
            }
            if let Err(error) = file.write_all(&bytes) {
                // What was written of it is taken back; if that fails too, the next write ends the line.
                let _ = file.set_len(end);
                outcome = Err(self.io(error));
                break;
            }
            end += length;
            total += length;
            written += 1;
        }
        // One for all of them.
        file.sync_data().map_err(|error| self.io(error))?;
        Ok((written, outcome))
    }

    /// A line that a crash cut short must not become the beginning of the next one.
    fn end_torn_line(&self, file: &mut File, end: &mut u64) -> Result<(), SpoolError> {
        if *end == 0 {
            return Ok(());
        }
        let mut last = [0];
        let read = file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last));
        read.map_err(|error| self.io(error))?;
        if last != [b'\n'] {
            file.write_all(b"\n").map_err(|error| self.io(error))?;
            *end += 1;
        }
        Ok(())
    }

    /// The file that lines are appended to, made if it is not there.
    fn active(&self) -> Result<File, SpoolError> {
        let is_new = !self.config.file.exists();
        let file = open_private(&self.config.file, true).map_err(|error| self.io(error))?;
        if is_new {
            // Else a crash may take the file with all that is in it.
            sync_directory(&self.config.file).map_err(|error| self.io(error))?;
        }
        Ok(file)
    }

    /// Sets the file aside if it has grown, and begins a new one.
    fn rotated(&self, file: File) -> Result<File, SpoolError> {
        let length = file.metadata().map_err(|error| self.io(error))?.len();
        if length < self.config.rotate_bytes.max(1) {
            return Ok(file);
        }
        let aside = self.next_aside().map_err(|error| self.io(error))?;
        std::fs::rename(&self.config.file, aside).map_err(|error| self.io(error))?;
        self.active()
    }

    /// Held until it is dropped. A file of its own, which is never set aside.
    pub(super) fn lock(&self) -> Result<File, SpoolError> {
        self.lock_named("lock")
    }

    /// The same for a whole import, of which there is one at a time.
    ///
    /// # Errors
    /// If the lock cannot be made.
    pub fn lock_import(&self) -> Result<File, SpoolError> {
        self.lock_named("import.lock")
    }

    fn lock_named(&self, suffix: &str) -> Result<File, SpoolError> {
        let path = beside(&self.config.file, suffix);
        let at = |source| SpoolError::Io {
            file: path.clone(),
            source,
        };
        let lock = open_private(&path, false).map_err(|error| match directory(&self.config.file) {
            // It is made if it is not there, so it is its directory that is missing.
            missing if error.kind() == io::ErrorKind::NotFound => SpoolError::NoDirectory {
                directory: missing.to_owned(),
            },
            _ => at(error),
        })?;
        lock.lock().map_err(at)?;
        Ok(lock)
    }

    pub(super) fn io(&self, source: io::Error) -> SpoolError {
        SpoolError::Io {
            file: self.config.file.clone(),
            source,
        }
    }

    fn full(&self) -> SpoolError {
        SpoolError::Full {
            file: self.config.file.clone(),
            max_bytes: self.config.max_bytes,
        }
    }
}
