//! Standard output: one event per line.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, PublishError, Publisher, Report};

use crate::lines::{LineSink, publish_lines};

/// Prints each message as one line of JSON, for a person or a program behind a pipe to read.
///
/// A batch is written and flushed at once, so that its lines stay together. `Delivered` then means that the pipe or
/// terminal took the line, not that anybody has read it.
#[derive(Clone, Debug)]
pub struct Stdout(Arc<Mutex<Lines<io::Stdout>>>);

impl Stdout {
    /// The standard output of this process.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Lines::new(io::stdout()))))
    }
}

impl Default for Stdout {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Publisher for Stdout {
    async fn publish(&self, batch: Batch, report: Report) {
        publish_lines(&self.0, batch, report).await;
    }

    fn name(&self) -> &'static str {
        "stdout"
    }
}

#[derive(Debug)]
struct Lines<W> {
    out: W,
    /// Whether the last write may have ended in the middle of a line.
    torn: bool,
}

impl<W: Write> Lines<W> {
    fn new(out: W) -> Self {
        Self { out, torn: false }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.torn {
            self.out.write_all(b"\n")?;
        }
        self.torn = true;
        // One call: `io::Stdout` is locked against the rest of the process for its whole length.
        self.out.write_all(lines)?;
        self.out.flush()?;
        self.torn = false;
        Ok(())
    }
}

impl<W: Write + Send + 'static> LineSink for Lines<W> {
    fn append(&mut self, lines: &[u8]) -> Result<(), PublishError> {
        self.write(lines).map_err(|error| {
            PublishError::transient(if error.kind() == io::ErrorKind::BrokenPipe {
                "standard output is a pipe that nobody reads any more; restart its reader together with this process"
                    .to_owned()
            } else {
                format!("cannot write to standard output: {error}")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_reader_is_a_failure_that_may_pass_and_says_what_to_do() {
        let (reader, writer) = io::pipe().unwrap();
        let mut lines = Lines::new(writer);
        assert_eq!(lines.append(b"{}\n"), Ok(()));
        drop(reader);
        let error = lines.append(b"{}\n").unwrap_err();
        assert_eq!(error.kind, posthaste_core::publisher::ErrorKind::Transient);
        assert!(error.message.contains("restart its reader"), "{error}");
    }

    /// Takes `room` bytes, then fails until it is given more.
    struct Narrow {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.taken.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_write_that_broke_off_the_next_batch_starts_on_a_line_of_its_own() {
        let mut lines = Lines::new(Narrow {
            taken: Vec::new(),
            room: 10,
        });
        assert!(lines.append(b"{\"n\":1}\n{\"n\":2}\n").is_err());
        lines.out.room = 100;
        lines.append(b"{\"n\":1}\n").unwrap();
        lines.append(b"{\"n\":2}\n").unwrap();
        assert_eq!(lines.out.taken, b"{\"n\":1}\n{\"\n{\"n\":1}\n{\"n\":2}\n");
    }
}
