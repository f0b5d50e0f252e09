//! The spool: a file that holds dead letters while the database does not take them.
//!
//! One JSON object per line, only ever appended to, and on the disk before anybody is told so. A line that a crash or a
//! full disk cut short is no letter, and the next one begins on a line of its own. When the file has grown it is set aside
//! under a number (`spool.jsonl.1`, `.2` and so on) and a new one begins; when all of them together are at their limit
//! nothing more is taken, and nothing is ever thrown away for room. Any number of processes may share a spool: each locks
//! `spool.jsonl.lock` for the time of a write.

mod contents;
mod disk;
mod file;
mod letter;
mod segments;
#[cfg(test)]
mod tests;

pub use self::contents::{Contents, Open, Unreadable};
pub use self::file::{Spool, SpoolConfig, SpoolError};
pub use self::letter::{Letter, Line, Mark};
