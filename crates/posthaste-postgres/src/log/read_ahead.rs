//! The next read of a backlog, beside what is done with the rows of the one before: on a connection of its own, because the
//! reader's has cursor and failures to write meanwhile.
//!
//! It hands out nothing. Its rows are taken in like those of the reader's own reads, once it is known that the reader's
//! connection still has the lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::chunk::{Chunk, Wanted};
use super::error::LogResult;
use super::reader_lock::Link;
use super::rows::Texts;
use super::{Log, Shard};

/// Most shards of a process that are read ahead: each takes one more connection.
pub(super) const MAX_READ_AHEAD: usize = 4;

/// After how long it is tried again when there was no connection for it, or that broke.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// How long it is waited for: the reader's own connection may be well where this one hangs.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What reads ahead for one reader.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Kept between reads, for as long as there is a backlog.
    line: Option<Box<Line>>,
    reading: Option<Reading>,
    failed_at: Option<Instant>,
}

/// A connection, and the right to have it.
#[derive(Debug)]
struct Line {
    link: Link,
    texts: Texts,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Reading {
    after: i64,
    task: JoinHandle<LogResult<(Box<Line>, Chunk)>>,
}

/// By what a read begins.
enum Source {
    Line(Box<Line>),
    Permit(OwnedSemaphorePermit),
}

impl ReadAhead {
    /// Begins a read, unless there is one.
    pub(super) fn begin(
        &mut self,
        log: &Arc<Log>,
        shard: Option<&Shard>,
        wanted: Wanted,
        lease: Duration,
        now: Instant,
    ) {
        let failed_lately = |at: Instant| now.duration_since(at) < RETRY_INTERVAL;
        if self.reading.is_some() || self.failed_at.is_some_and(failed_lately) {
            return;
        }
        let source = match self.line.take() {
            Some(line) => Source::Line(line),
            None => match Arc::clone(&log.ahead_permits).try_acquire_owned() {
                Ok(permit) => Source::Permit(permit),
                Err(_) => return,
            },
        };
        let (log, shard) = (Arc::clone(log), shard.cloned());
        let task = tokio::spawn(async move {
            let mut line = match source {
                Source::Line(line) => line,
                Source::Permit(permit) => Box::new(Line {
                    link: log.connect_beside(lease).await?,
                    texts: Texts::default(),
                    _permit: permit,
                }),
            };
            let chunk = log
                .read_chunk(&mut line.link, shard.as_ref(), wanted, &mut line.texts, now)
                .await?;
            Ok((line, chunk))
        });
        self.reading = Some(Reading {
            after: wanted.after,
            task,
        });
    }

    /// The rows beyond an id, if they are what is being read. If they cannot be read so, the reader reads them itself.
    pub(super) async fn take(&mut self, after: i64, now: Instant) -> Option<Chunk> {
        let reading = self.reading.as_mut().filter(|reading| reading.after == after)?;
        // If this is cut short it is still there for the next call.
        let read = tokio::time::timeout(TIMEOUT, &mut reading.task).await;
        let reading = self.reading.take()?;
        let Ok(read) = read else {
            reading.task.abort();
            tracing::debug!("the log is not read ahead for a while: its connection hangs");
            self.failed_at = Some(now);
            return None;
        };
        match read {
            Ok(Ok((line, chunk))) => {
                self.line = Some(line);
                Some(chunk)
            }
            Ok(Err(error)) => {
                let error = posthaste_core::StoreError::from(error);
                tracing::debug!(%error, "the log is not read ahead for a while");
                self.failed_at = Some(now);
                None
            }
            Err(_) => None,
        }
    }

    /// What is being read is worth nothing any more.
    pub(super) fn forget(&mut self) {
        // The task ends by itself, and its connection with it.
        self.reading = None;
    }

    /// There is no backlog any more: others may have the connection.
    pub(super) fn rest(&mut self) {
        self.forget();
        self.line = None;
    }
}
