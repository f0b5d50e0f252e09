//! Standard output: one event per line.

use std::io::{self, Write};
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, Capabilities, LaneOrder, PublishError, Publisher, Report};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::lines::{BrokenOff, LineSink, publish_lines};
use crate::options::{InvalidOption, PublisherContext, PublisherOptions};

/// Prints each message as one line of JSON, for a person or a program behind a pipe to read.
///
/// A batch is written at once, so that its lines stay together. `Delivered` then means that the pipe or terminal took the
/// line, not that anybody has read it. A pipe that nobody reads any more, or a full disk behind it, is a failure of the
/// way and not of messages: the relay's circuit opens, and everything waits without using up attempts.
#[derive(Clone, Debug)]
pub struct Stdout(Arc<Mutex<Own>>);

impl Stdout {
    /// The standard output of this process.
    pub fn new() -> Self {
        Self(Arc::default())
    }
}

impl Default for Stdout {
    fn default() -> Self {
        Self::new()
    }
}

/// Standard output has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StdoutOptions {}

impl PublisherOptions for StdoutOptions {
    fn validate(&self, _: &PublisherContext) -> Result<(), InvalidOption> {
        Ok(())
    }

    fn build(self, _: &PublisherContext) -> Result<Arc<dyn Publisher>, InvalidOption> {
        Ok(Arc::new(Stdout::new()))
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

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
    }
}

/// The standard output of this process, opened with the first line.
#[derive(Debug, Default)]
struct Own(Option<Lines<Unbuffered>>);

impl LineSink for Own {
    fn append(&mut self, lines: impl FnOnce() -> Vec<u8>) -> Result<(), BrokenOff> {
        // Against the rest of the process, for the whole batch; what it has printed before comes first.
        let mut lock = io::stdout().lock();
        let _ = lock.flush();
        let own = match &mut self.0 {
            Some(own) => own,
            none => none.insert(Lines::new(unbuffered().map_err(|error| broken_off(0, &error))?)),
        };
        own.append(&lines())
    }
}

/// Without a buffer it is known what was written when it breaks off.
#[cfg(unix)]
type Unbuffered = std::fs::File;

#[cfg(unix)]
fn unbuffered() -> io::Result<Unbuffered> {
    use std::os::fd::AsFd;
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

#[cfg(not(unix))]
type Unbuffered = io::Stdout;

#[cfg(not(unix))]
fn unbuffered() -> io::Result<Unbuffered> {
    Ok(io::stdout())
}

#[derive(Debug)]
struct Lines<W> {
    out: W,
    /// Whether the last write ended in the middle of a line.
    torn: bool,
}

impl<W: Write> Lines<W> {
    fn new(out: W) -> Self {
        Self { out, torn: false }
    }

    fn append(&mut self, lines: &[u8]) -> Result<(), BrokenOff> {
        let mut taken = 0;
        let written = self.write(lines, &mut taken);
        written.map_err(|error| {
            self.torn |= taken > 0 && lines[taken - 1] != b'\n';
            broken_off(taken, &error)
        })
    }

    fn write(&mut self, lines: &[u8], taken: &mut usize) -> io::Result<()> {
        if self.torn {
            self.out.write_all(b"\n")?;
            self.torn = false;
        }
        while *taken < lines.len() {
            match self.out.write(&lines[*taken..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => *taken += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.flush()
    }
}

fn broken_off(taken: usize, error: &io::Error) -> BrokenOff {
    let text = match error.kind() {
        io::ErrorKind::BrokenPipe => {
            "standard output is a pipe that nobody reads any more; restart its reader together with this process"
                .to_owned()
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("cannot write to standard output: {error}; free some space where it is redirected to")
        }
        _ => format!("cannot write to standard output: {error}"),
    };
    BrokenOff {
        taken,
        error: PublishError::transport(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_reader_is_a_failure_of_the_way_and_says_what_to_do() {
        let (reader, writer) = io::pipe().unwrap();
        let mut lines = Lines::new(writer);
        assert_eq!(lines.append(b"{}\n"), Ok(()));
        drop(reader);
        let error = lines.append(b"{}\n").unwrap_err().error;
        assert_eq!(error.kind, posthaste_core::publisher::ErrorKind::Transport);
        assert!(error.message.contains("restart its reader"), "{error}");
    }

    /// Every write to `/dev/full` fails as one to a full disk does.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_a_failure_of_the_way_and_says_what_to_do() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let broken_off = Lines::new(full).append(b"{}\n").unwrap_err();
        assert_eq!(broken_off.taken, 0);
        assert_eq!(broken_off.error.kind, posthaste_core::publisher::ErrorKind::Transport);
        assert_eq!(broken_off.error.scope, posthaste_core::publisher::ErrorScope::Broker);
        assert!(broken_off.error.message.contains("free some space"), "{broken_off:?}");
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
        let broken_off = lines.append(b"{\"n\":1}\n{\"n\":2}\n").unwrap_err();
        assert_eq!(
            broken_off.taken, 10,
            "the first line is written, and not to be repeated"
        );
        assert_eq!(lines.append(b"{\"n\":2}\n").unwrap_err().taken, 0);
        lines.out.room = 100;
        lines.append(b"{\"n\":2}\n").unwrap();
        lines.append(b"{\"n\":3}\n").unwrap();
        assert_eq!(lines.out.taken, b"{\"n\":1}\n{\"\n{\"n\":2}\n{\"n\":3}\n");
    }

    #[test]
    fn a_write_that_broke_off_between_lines_tears_none() {
        let mut lines = Lines::new(Narrow {
            taken: Vec::new(),
            room: 8,
        });
        assert_eq!(lines.append(b"{\"n\":1}\n{\"n\":2}\n").unwrap_err().taken, 8);
        lines.out.room = 100;
        lines.append(b"{\"n\":2}\n").unwrap();
        assert_eq!(lines.out.taken, b"{\"n\":1}\n{\"n\":2}\n");
    }
}
