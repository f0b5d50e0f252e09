//! One read at the end of the log: rows beyond an id, as one snapshot had them, each decoded once, by the places of its columns.

use std::time::Instant;

use futures::TryStreamExt;
use posthaste_core::store::{ClaimedMessage, KeyOrdering};
use posthaste_sql::log::{LogRow, Policy};

use super::error::LogResult;
use super::reader_lock::{Link, shared_session};
use super::rows::{TailColumns, Texts};
use super::{Log, Shard, of_segments};

/// About so many bytes of payload are read at a time, judged by the read before.
pub(super) const READ_BYTES: u64 = 4 << 20;

/// What to read.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Rows beyond this id.
    pub(super) after: i64,
    /// At most so many.
    pub(super) rows: u32,
    /// Which of them have to wait behind failures.
    pub(super) ordering: KeyOrdering,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) rows: Vec<LogRow>,
    pub(super) messages: Vec<ClaimedMessage>,
    /// Of all payloads.
    pub(super) bytes: u64,
    /// There may be more.
    pub(super) is_full: bool,
    /// It ended before all rows of the statement were there.
    pub(super) is_cut: bool,
    /// The table of failures is not empty, and it is not known which rows have to wait behind others.
    pub(super) beside_failures: bool,
}

impl Log {
    /// Reads on a connection of a reader.
    pub(super) async fn read_chunk(
        &self,
        link: &mut Link,
        shard: Option<&Shard>,
        wanted: &Wanted,
        texts: &mut Texts,
        now: Instant,
    ) -> LogResult<Chunk> {
        let first = self.first_segment(link, now).await?;
        let columns = TailColumns::of(&self.map);
        let mut chunk = Chunk::default();
        let policy = Policy::of(&wanted.ordering);
        let query = sqlx::query(self.statements.reading.read_tail.sql())
            .bind(wanted.after)
            .bind(i64::from(wanted.rows))
            .bind(link.mark.as_str());
        let mut query = of_segments(query, shard, first);
        if shard.is_some() {
            query = query.bind(policy.may_block());
        }
        let mut found = query.fetch(&mut link.connection);
        while let Some(row) = found.try_next().await? {
            if chunk.rows.is_empty() {
                let beside = TailColumns::beside(&row)?;
                if beside.is_another_reader() {
                    return Err(shared_session());
                }
                if beside.is_unknown() {
                    chunk.beside_failures = true;
                    chunk.is_cut = true;
                    break;
                }
                chunk.rows.reserve(wanted.rows as usize);
                chunk.messages.reserve(wanted.rows as usize);
            }
            let (row, claimed) = columns.decode(&row, &self.map, &policy, texts)?;
            chunk.bytes += claimed.message.payload.len() as u64;
            chunk.rows.push(row);
            chunk.messages.push(claimed);
            // Rows that have become much larger than those before them do not fill the memory.
            if chunk.bytes > 2 * READ_BYTES {
                chunk.is_cut = true;
                break;
            }
        }
        chunk.is_full = chunk.rows.len() == wanted.rows as usize;
        Ok(chunk)
    }
}
