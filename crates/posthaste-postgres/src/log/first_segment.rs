//! From which segment on Posthaste's own log is read. There may be thousands before it, kept for operators to look at.
//!
//! A segment is settled when nothing is written to it any more and no row of it is open in what its readers have stored, so
//! that none of them ever reads it again; one that is set back by hand unsettles all of them, by a trigger.

use std::time::{Duration, Instant};

use sqlx::{PgConnection, Row};

use super::error::LogResult;
use super::reader_lock::Link;
use super::session::Session;
use super::{Log, Reader};

/// How often it is asked for. One that was settled since is read through for nothing, no more.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What a connection knows of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstSegment {
    segment: i64,
    asked_at: Instant,
}

impl Log {
    /// Asks on a connection, whose later plans are made for few segments; none for existing tables. What it sets there lasts
    /// for the transaction, or for as long as the connection.
    pub(super) async fn ask_first_segment(
        &self,
        connection: &mut PgConnection,
        in_transaction: bool,
    ) -> sqlx::Result<i64> {
        let Some(tables) = &self.tables else { return Ok(0) };
        let row = sqlx::query(tables.first_segment_query())
            .persistent(!in_transaction)
            .bind(in_transaction)
            .fetch_one(connection)
            .await?;
        row.try_get("first")
    }

    /// The first segment that is read, as the connection of a reader knows it.
    pub(super) async fn first_segment(&self, link: &mut Link, now: Instant) -> LogResult<i64> {
        if let Some(known) = link.first_segment
            && now.duration_since(known.asked_at) < LOOK_INTERVAL
        {
            return Ok(known.segment);
        }
        let segment = self.ask_first_segment(&mut link.connection, false).await?;
        link.first_segment = Some(FirstSegment { segment, asked_at: now });
        Ok(segment)
    }
}

impl Reader {
    /// The same on its own connection.
    pub(super) async fn first_segment_of(&self, session: &mut Session) -> LogResult<i64> {
        let now = self.now();
        self.log.first_segment(session.link()?, now).await
    }
}
