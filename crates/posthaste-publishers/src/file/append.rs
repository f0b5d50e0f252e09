//! Appending one batch.
//!
//! The file is opened for every batch: an open file that was moved away or removed would take lines that are not found.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::error::{FileError, directory};
use super::options::FileOptions;

/// Another process may keep the lock forever, and a relay that only waited could say nothing, nor be stopped.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Asks for the lines once the file is locked: another process may keep it for long.
pub(super) fn append(options: &FileOptions, lines: impl FnOnce() -> Vec<u8>) -> Result<(), FileError> {
    try_append(options, lines).map_err(|source| FileError {
        path: options.path.clone(),
        source,
    })
}

fn try_append(options: &FileOptions, lines: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
    let mut file = open(options)?;
    let locked = lock(&file)?;
    let before = file.metadata()?.len();
    let written = write(&mut file, &lines(), options.fsync);
    if written.is_err() && locked {
        // What of it is in the file would be there twice, and its end is a line that is cut off. If it cannot be taken out
        // again, the next batch begins on a line of its own.
        // A file that was emptied meanwhile must not be made longer.
        if file.metadata().is_ok_and(|now| now.len() > before) {
            let _ = file.set_len(before);
        }
    }
    written
}

/// Against other processes; this one has its mutex. The lock ends with the file. Whether there are locks at all.
fn lock(file: &File) -> io::Result<bool> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOCK_POLL_INTERVAL),
            Err(TryLockError::WouldBlock) => {
                let kind = io::ErrorKind::WouldBlock;
                return Err(io::Error::new(kind, "another process holds its lock"));
            }
        }
    }
}

fn write(file: &mut File, lines: &[u8], fsync: bool) -> io::Result<()> {
    // A batch that was cut off, by whomever, must not swallow the first line of this one.
    if ends_within_a_line(file)? {
        file.write_all(b"\n")?;
    }
    file.write_all(lines)?;
    if fsync { file.sync_data() } else { Ok(()) }
}

/// Whether a batch could be appended now. Changes nothing: a missing file is not created either.
pub(super) fn check(options: &FileOptions) -> Result<(), FileError> {
    let checked = match existing().open(&options.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => may_create_in(directory(&options.path)),
        opened => opened.and_then(|file| must_be_plain(&file)),
    };
    checked.map_err(|source| FileError {
        path: options.path.clone(),
        source,
    })
}

#[cfg(unix)]
fn may_create_in(directory: &Path) -> io::Result<()> {
    use nix::fcntl::{AT_FDCWD, AtFlags};
    use nix::unistd::{AccessFlags, faccessat};

    if !directory.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    Ok(faccessat(AT_FDCWD, directory, wanted, AtFlags::AT_EACCESS)?)
}

/// Elsewhere nothing but an attempt would tell more.
#[cfg(not(unix))]
fn may_create_in(directory: &Path) -> io::Result<()> {
    match directory.metadata()? {
        found if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        found if found.permissions().readonly() => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Ok(()),
    }
}

fn existing() -> OpenOptions {
    let mut how = OpenOptions::new();
    how.read(true).append(true);
    how
}

fn open(options: &FileOptions) -> io::Result<File> {
    let file = match existing().open(&options.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = existing().create(true).open(&options.path)?;
            if options.fsync {
                sync_directory(directory(&options.path))?;
            }
            file
        }
        opened => opened?,
    };
    must_be_plain(&file)?;
    Ok(file)
}

fn must_be_plain(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"))
}

fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// A new file's name is durable only once its directory is.
#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Elsewhere directories cannot be opened as files.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use nix::unistd::{Uid, setfsuid};

    use super::*;

    /// For this thread; root may write everywhere.
    fn as_somebody_else<T>(act: impl FnOnce() -> T) -> T {
        let before = setfsuid(Uid::from_raw(65_534));
        let done = act();
        setfsuid(before);
        done
    }

    fn forbid(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    #[test]
    fn a_check_says_who_may_not_write_where() {
        let directory = tempfile::tempdir().unwrap();
        let options = FileOptions::new(directory.path().join("events.jsonl"));
        forbid(directory.path(), 0o555);
        let refused = as_somebody_else(|| check(&options)).unwrap_err().to_string();
        let remedy = format!(
            "let this process write to the file and to {}",
            directory.path().display()
        );
        assert!(refused.ends_with(&remedy), "{refused}");
        assert!(refused.contains(&*options.path.to_string_lossy()), "{refused}");

        forbid(directory.path(), 0o777);
        as_somebody_else(|| check(&options)).unwrap();
        assert!(!options.path.exists(), "nothing was created");
        fs::write(&options.path, "{}").unwrap();
        forbid(&options.path, 0o444);
        let refused = as_somebody_else(|| check(&options)).unwrap_err().to_string();
        assert!(refused.ends_with(&remedy), "{refused}");
    }
}
