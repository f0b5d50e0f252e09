//! The files of a spool: the one that is appended to, and those that were set aside.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::disk::{beside, directory, sync_directory};
use super::file::{Spool, SpoolError};

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
