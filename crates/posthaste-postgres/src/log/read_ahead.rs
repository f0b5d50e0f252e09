//! The next read of a backlog, beside what is done with the rows of the one before: on a connection of its own, because the
//! reader's has cursor and failures to write meanwhile.
//!
//! It hands out nothing. Its rows are taken in like those of the reader's own reads, once it is known that the reader's
//! connection still has the lock.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::chunk::{Chunk, Wanted};
use super::error::{LogError, LogResult};
use super::reader_lock::Link;
use super::rows::Texts;
use super::{Log, Shard};

/// Most shards of a process that are read ahead: each takes one more connection.
pub(super) const MAX_READ_AHEAD: usize = 4;

/// After how long it is tried again when there was no connection for it, or that broke. It doubles with each time.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
const MAX_RETRY_INTERVAL: Duration = Duration::from_mins(5);

/// How long it is waited for, and how long it may take to connect: the reader's own connection may be well where this one hangs.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection is kept that is not used.
const KEEP_FOR: Duration = Duration::from_secs(1);

/// How long nothing is read ahead after that was in vain: where failures keep coming, each of them would cost a connection.
const REST_FOR: Duration = Duration::from_secs(1);

/// What reads ahead for one reader.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    stage: Stage,
    used_at: Option<Instant>,
    /// When what was being read was last worth nothing.
    forgotten_at: Option<Instant>,
    /// When it did not work, and how often in a row.
    failed: Option<(Instant, u32)>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Apart,
    /// Not waited for: the reader reads itself meanwhile.
    Connecting(AbortOnDropHandle<LogResult<Box<Line>>>),
    /// Kept between reads, for as long as there is a backlog.
    Ready(Box<Line>),
    Reading {
        after: i64,
        task: AbortOnDropHandle<LogResult<Read>>,
    },
}

/// A connection, and the right to have it.
#[derive(Debug)]
struct Line {
    link: Link,
    texts: Texts,
    _permit: OwnedSemaphorePermit,
}

/// What was read, and the connection if it can be used again.
type Read = (Option<Box<Line>>, Chunk);

impl ReadAhead {
    /// Begins a read if there is a connection for it, and else to connect.
    pub(super) fn begin(
        &mut self,
        log: &Arc<Log>,
        shard: Option<&Shard>,
        wanted: Wanted,
        lease: Duration,
        now: Instant,
    ) {
        self.used_at = Some(now);
        self.stage = match std::mem::take(&mut self.stage) {
            Stage::Apart if !self.rests(now) => match Arc::clone(&log.ahead_permits).try_acquire_owned() {
                Ok(permit) => connect(log, permit, lease),
                Err(_) => Stage::Apart,
            },
            Stage::Connecting(mut task) if task.is_finished() => match (&mut task).now_or_never() {
                Some(Ok(Ok(line))) => read(log, shard, wanted, line, now),
                Some(Ok(Err(error))) => self.fail(&posthaste_core::StoreError::from(error).to_string(), now),
                _ => Stage::Apart,
            },
            Stage::Ready(line) => read(log, shard, wanted, line, now),
            busy => busy,
        };
    }

    /// The rows beyond an id, if they are what is being read. If they cannot be read so, the reader reads them itself.
    pub(super) async fn take(&mut self, after: i64, lease: Duration, now: Instant) -> Option<Chunk> {
        let Stage::Reading { after: begun, task } = &mut self.stage else {
            return None;
        };
        if *begun != after {
            return None;
        }
        // Less than a lease: the reader's connection is idle meanwhile.
        let asked = Instant::now();
        // If this is cut short it is still there for the next call.
        let read = timeout(TIMEOUT.min(lease / 6), &mut *task).await;
        let now = now + asked.elapsed();
        self.used_at = Some(now);
        let (stage, chunk) = match read {
            Ok(Ok(Ok((line, chunk)))) => {
                self.failed = None;
                (line.map_or(Stage::Apart, Stage::Ready), Some(chunk))
            }
            Ok(Ok(Err(error))) => (
                self.fail(&posthaste_core::StoreError::from(error).to_string(), now),
                None,
            ),
            Ok(Err(_)) => (Stage::Apart, None),
            Err(_) => (self.fail("its connection hangs", now), None),
        };
        self.stage = stage;
        chunk
    }

    /// What is being read is worth nothing any more.
    pub(super) fn forget(&mut self) {
        if let Stage::Reading { .. } = self.stage {
            self.stage = Stage::Apart;
            self.forgotten_at = Some(Instant::now());
        }
    }

    /// There is no backlog any more: others may have the connection.
    pub(super) fn rest(&mut self) {
        self.stage = Stage::Apart;
    }

    /// Nothing is read ahead for now: others may have the connection if that lasts.
    pub(super) fn rest_if_unused(&mut self, now: Instant) {
        if self.used_at.is_none_or(|at| now.duration_since(at) > KEEP_FOR) {
            self.rest();
        }
    }

    fn fail(&mut self, why: &str, now: Instant) -> Stage {
        tracing::debug!("the log is not read ahead for a while: {why}");
        let times = self.failed.map_or(1, |(_, times)| times.saturating_add(1));
        self.failed = Some((now, times));
        Stage::Apart
    }

    fn rests(&self, now: Instant) -> bool {
        let in_vain = self.forgotten_at.is_some_and(|at| now.duration_since(at) < REST_FOR);
        in_vain
            || self.failed.is_some_and(|(at, times)| {
                let wait = RETRY_INTERVAL.saturating_mul(1 << (times - 1).min(8));
                now.duration_since(at) < wait.min(MAX_RETRY_INTERVAL)
            })
    }
}

fn connect(log: &Arc<Log>, permit: OwnedSemaphorePermit, lease: Duration) -> Stage {
    let log = Arc::clone(log);
    Stage::Connecting(AbortOnDropHandle::new(tokio::spawn(async move {
        // Nobody waits for it, but as long as it is tried no other reader has its place.
        let link = timeout(TIMEOUT, log.connect_beside(lease)).await;
        let link = link.unwrap_or_else(|_| Err(LogError::Sql(io::Error::from(io::ErrorKind::TimedOut).into())))?;
        Ok(Box::new(Line {
            link,
            texts: Texts::default(),
            _permit: permit,
        }))
    })))
}

fn read(log: &Arc<Log>, shard: Option<&Shard>, wanted: Wanted, mut line: Box<Line>, now: Instant) -> Stage {
    let (log, shard, after) = (Arc::clone(log), shard.cloned(), wanted.after);
    let task = tokio::spawn(async move {
        let Line { link, texts, .. } = &mut *line;
        let chunk = log.read_chunk(link, shard.as_ref(), &wanted, texts, now).await?;
        // The server would go on sending, with a snapshot open, until the next statement.
        Ok(((!chunk.is_cut).then_some(line), chunk))
    });
    Stage::Reading {
        after,
        task: AbortOnDropHandle::new(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_tried_less_and_less() {
        let mut ahead = ReadAhead::default();
        let mut now = Instant::now();
        assert!(!ahead.rests(now));
        for wait in [10, 20, 40, 80, 160, 300, 300, 300, 300, 300] {
            ahead.fail("", now);
            assert!(ahead.rests(now + Duration::from_secs(wait - 1)));
            now += Duration::from_secs(wait);
            assert!(!ahead.rests(now));
        }
    }
}
