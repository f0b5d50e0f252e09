//! The files of a spool: the one that is appended to, and those that were set aside.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::{Spool, SpoolError};

impl Spool {
    /// All files in the order in which they were written.
    pub(super) fn segments(&self) -> io::Result<Vec<PathBuf>> {
        let mut numbers = self.numbers()?;
        numbers.sort_unstable();
        let aside = numbers
            .into_iter()
            .map(|number| beside(self.file(), &number.to_string()));
        let active = self.file().exists().then(|| self.file().to_owned());
        Ok(aside.chain(active).collect())
    }

    /// The name under which the file is set aside next.
    pub(super) fn next_aside(&self) -> io::Result<PathBuf> {
        let next = self.numbers()?.into_iter().max().unwrap_or(0) + 1;
        Ok(beside(self.file(), &next.to_string()))
    }

    /// The size of all files.
    pub(super) fn total_bytes(&self) -> Result<u64, SpoolError> {
        let segments = self.segments().map_err(|error| self.io(error))?;
        let sizes = segments.iter().map(|path| fs::metadata(path).map(|found| found.len()));
        sizes.sum::<io::Result<u64>>().map_err(|error| self.io(error))
    }

    /// Removes files that were set aside and whose letters are all back in the database or no longer needed, from the oldest
    /// on: what marks a letter comes after it, so no mark is removed before its letter. One with a line that cannot be read,
    /// and those after it, stay: the line may be a letter.
    ///
    /// # Errors
    /// If the files cannot be read or removed.
    pub fn remove_settled(&self) -> Result<(), SpoolError> {
        let _lock = self.lock()?;
        let contents = self.scan()?;
        for segment in self.segments().map_err(|error| self.io(error))? {
            if segment == self.file() || contents.is_needed(&segment) {
                break;
            }
            fs::remove_file(&segment).map_err(|error| self.io(error))?;
        }
        sync_directory(self.file()).map_err(|error| self.io(error))
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let name = self.file().file_name().unwrap_or_default().to_string_lossy();
        let mut numbers = Vec::new();
        for entry in fs::read_dir(directory(self.file()))? {
            let found = entry?.file_name();
            let found = found.to_string_lossy();
            let number: Option<u64> = found
                .strip_prefix(&*name)
                .and_then(|rest| rest.strip_prefix('.'))
                .and_then(|number| number.parse().ok());
            numbers.extend(number);
        }
        Ok(numbers)
    }
}

/// `spool.jsonl.lock` for `spool.jsonl`
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

fn directory(file: &Path) -> &Path {
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
