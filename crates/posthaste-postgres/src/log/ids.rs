//! Watches over what the proof takes for granted: that ids go up, and are used in the transaction that took them.

use std::time::{Duration, Instant};

use posthaste_sql::log::{Proof, ReaderState, SuspectedRetries, Suspects};
use posthaste_sql::table::{Column, Property, Role};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, Row};

use super::Reader;
use super::error::{LogError, LogResult};
use super::session::{Session, Storage};
use super::shard::Shard;
use super::state::Start;

/// How often the sequence is compared with what was read.
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);

impl Reader {
    /// Looks at closed ids that are due, and now and then at the sequence.
    pub(super) async fn watch_ids(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        if self.proof == Proof::Skipped {
            return Ok(());
        }
        if now.duration_since(session.compared_at) >= COMPARE_INTERVAL {
            let same = self.compare_ids(session, now).await;
            if matches!(same, Err(LogError::Unsafe(_))) {
                session.forget();
            }
            same?;
            session.compared_at = now;
            session.say_dropped();
        }
        self.probe_closed(session, now).await
    }

    /// Whether the log is still the one that was read; if not, as much of what was learnt is forgotten.
    async fn compare_ids(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        let read_to = session.reader.gaps().hi();
        self.compare_sequence(session.connection()?, read_to).await?;
        let storage = self.storage(session.connection()?).await?;
        if storage.files != session.storage.files {
            tracing::warn!(
                cursor = session.stored,
                "the log was truncated or rewritten; it is read again from the cursor, and new rows below that are looked for"
            );
            let horizon = session.storage.horizon.clone();
            let start = Start {
                state: ReaderState::at(session.stored),
                written_by: None,
                suspects: Suspects::default(),
                retried: SuspectedRetries::none(now),
            };
            let closed = self
                .left_behind(session.connection()?, &start, Some(&horizon), now)
                .await?;
            session.reader = self.resume(&start.state).with_closed(closed);
            session.tail.clear();
            self.bound(session);
        }
        session.storage = storage;
        Ok(())
    }

    /// Where the log is.
    pub(super) async fn storage(&self, connection: &mut PgConnection) -> LogResult<Storage> {
        let row = sqlx::query(self.statements.reading.storage.sql())
            .bind(&self.table)
            .fetch_one(connection)
            .await?;
        Ok(Storage {
            files: row.try_get("files")?,
            horizon: row.try_get("horizon")?,
        })
    }

    /// The sequences that give the log's ids.
    pub(super) async fn sequences<'e>(&self, on: impl PgExecutor<'e>, id: &Column) -> sqlx::Result<Vec<PgRow>> {
        let mut query = sqlx::query(self.statements.reading.sequence.sql())
            .bind(&self.table)
            .bind(id.name.as_str());
        if let Some(shard) = &self.shard {
            query = query.bind(&shard.sequence);
        }
        query.fetch_all(on).await
    }

    /// A sequence that stands below what was read was set back, or is not where the ids come from: then rows would be
    /// passed over without a word.
    pub(super) async fn compare_sequence(&self, connection: &mut PgConnection, read_to: i64) -> LogResult<()> {
        let Some(id) = self
            .map
            .column(Role::Id)
            .filter(|_| !self.map.has(Property::TrustedIds))
        else {
            return Ok(());
        };
        let rows = self.sequences(connection, id).await?;
        let mut highest: Option<i64> = None;
        for row in &rows {
            match row.try_get::<Option<i64>, _>("last_value")? {
                Some(last) => highest = highest.max(Some(last)),
                // It is not known what this one has given out.
                None => return Ok(()),
            }
        }
        match highest {
            Some(last) if last < read_to => Err(match &self.shard {
                Some(shard) => own_was_set_back(shard, last, read_to),
                None => self.was_set_back(last, read_to),
            }),
            _ => Ok(()),
        }
    }
    /// In an existing log.
    fn was_set_back(&self, last: i64, read_to: i64) -> LogError {
        LogError::refuse(
            format!(
                "the log {} was read up to id {read_to}, but its sequence stands at {last}: the sequence was set back \
                 (`truncate … restart identity`, a restored table), or ids come from elsewhere; new rows would never be read",
                self.table
            ),
            "if the sequence was set back, append a row with the position 0 to the cursor's table, or set the sequence above \
             the cursor; if ids come from elsewhere and go up, write `ids = \"trusted\"` into the map",
        )
    }
}

/// In Posthaste's own log, whose numbers come from nowhere else. Whoever set it back may not have been the relay's role, and may be
/// restoring still, so the relay does not set it right by itself.
pub(super) fn own_was_set_back(shard: &Shard, last: i64, read_to: i64) -> LogError {
    let Shard { number, sequence, .. } = shard;
    let sequence_text = sequence.replace('\'', "''");
    LogError::refuse(
        format!(
            "shard {number} of the log was read up to number {read_to}, but its sequence stands at {last}: it was set back \
             (`truncate … restart identity`, `setval`, a restored sequence), so that new messages have numbers which count as \
             read, and would never be delivered; `select setval('{sequence_text}', {read_to})` sets it right"
        ),
        "then give what was written meanwhile new numbers: see \"A sequence that was set back\" in docs/log-layout.md",
    )
}
