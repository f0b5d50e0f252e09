//! What is in a spool.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthaste_core::MessageId;

use super::file::{Spool, SpoolError};
use super::letter::{Letter, Line, Mark};

/// What is in a spool: where its letters are, not the letters themselves, of which there may be more than memory.
#[derive(Debug, Default)]
pub struct Contents {
    /// The letters that are in no other place, in the order in which they came.
    pub open: Vec<Open>,
    /// Lines that a crash or a full disk cut short, of which nobody was told that they are kept.
    pub torn: u64,
    /// Files with other lines that cannot be read, which may be letters: changed by hand, of a newer version, or damaged.
    pub unreadable: Vec<Unreadable>,
    /// The size of all files.
    pub bytes: u64,
}

/// A letter that is in no other place.
#[derive(Clone, Debug)]
pub struct Open {
    /// Which letter it is.
    pub mark: Mark,
    id: MessageId,
    segment: Arc<Segment>,
    start: u64,
    bytes: usize,
}

/// A file with lines that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file.
    pub file: PathBuf,
    /// The number of the first such line, from 1.
    pub first: u64,
    /// How many there are.
    pub lines: u64,
    /// What is wrong with the first.
    pub error: String,
}

/// Kept open, so that it can be read also when it is set aside or removed.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: File,
}

impl Contents {
    /// Whether the file has a letter that is in no other place, or a line that may be one.
    pub(super) fn is_needed(&self, path: &Path) -> bool {
        self.open.iter().any(|open| open.segment.path == path) || self.unreadable.iter().any(|found| found.file == path)
    }

    fn add_unreadable(&mut self, file: &Path, number: u64, error: &serde_json::Error) {
        match self.unreadable.last_mut() {
            Some(found) if found.file == file => found.lines += 1,
            _ => self.unreadable.push(Unreadable {
                file: file.to_owned(),
                first: number,
                lines: 1,
                error: error.to_string(),
            }),
        }
    }
}

impl Open {
    /// The row's id.
    pub fn message_id(&self) -> MessageId {
        self.id
    }

    /// Reads the letter.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn letter(&self) -> Result<Letter, SpoolError> {
        let mut bytes = vec![0; self.bytes];
        let mut file = &self.segment.file;
        let read = file
            .seek(SeekFrom::Start(self.start))
            .and_then(|_| file.read_exact(&mut bytes));
        let line = read.and_then(|()| serde_json::from_slice(&bytes).map_err(io::Error::from));
        match line {
            Ok(Line::Letter(letter)) => Ok(*letter),
            Ok(_) => Err(self.io(io::ErrorKind::InvalidData.into())),
            Err(error) => Err(self.io(error)),
        }
    }

    fn io(&self, source: io::Error) -> SpoolError {
        SpoolError::Io {
            file: self.segment.path.clone(),
            source,
        }
    }
}

impl Spool {
    /// Reads what is there. Of a letter that is there twice the later line holds.
    ///
    /// # Errors
    /// If a file cannot be read. A spool that was never written is empty.
    pub fn read(&self) -> Result<Contents, SpoolError> {
        // Half a line of a write that goes on is not torn. A copy on a disk that cannot be written has no writers.
        let _lock = self.lock().ok();
        self.scan()
    }

    /// The same for those who have the lock.
    pub(super) fn scan(&self) -> Result<Contents, SpoolError> {
        let mut contents = Contents::default();
        let mut open: HashMap<Mark, (usize, Open)> = HashMap::new();
        let mut place = 0;
        let segments = match self.segments() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            segments => segments.map_err(|error| self.io(error))?,
        };
        for path in segments {
            let at = |source| SpoolError::Io {
                file: path.clone(),
                source,
            };
            let file = File::open(&path).map_err(at)?;
            let mut reader = BufReader::new(file.try_clone().map_err(at)?);
            let segment = Arc::new(Segment {
                path: path.clone(),
                file,
            });
            let (mut start, mut number) = (0, 0);
            let mut line = Vec::new();
            loop {
                line.clear();
                let bytes = reader.read_until(b'\n', &mut line).map_err(at)?;
                if bytes == 0 {
                    break;
                }
                number += 1;
                // Without its end, so that one that was cut short in a text is known as such.
                match serde_json::from_slice(line.trim_ascii_end()) {
                    Ok(Line::Letter(letter)) => {
                        let mark = letter.mark();
                        let found = Open {
                            mark: mark.clone(),
                            id: letter.message_id(),
                            segment: Arc::clone(&segment),
                            start,
                            bytes,
                        };
                        open.insert(mark, (place, found));
                        place += 1;
                    }
                    Ok(Line::Settled(mark) | Line::Imported(mark)) => drop(open.remove(&mark)),
                    // One that ends a torn line.
                    Err(_) if line == b"\n" => {}
                    Err(error) if error.is_eof() => contents.torn += 1,
                    Err(error) => contents.add_unreadable(&path, number, &error),
                }
                start += bytes as u64;
            }
            contents.bytes += start;
        }
        let mut found: Vec<_> = open.into_values().collect();
        found.sort_unstable_by_key(|(place, _)| *place);
        contents.open = found.into_iter().map(|(_, open)| open).collect();
        Ok(contents)
    }
}
