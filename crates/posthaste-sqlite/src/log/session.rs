//! What the log's one reader remembers, and the lease under which it reads.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use posthaste_core::MessageId;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{RefusedVerdict, WorkerId};
use posthaste_sql::RowChange;
use posthaste_sql::log::{
    HandedOut, Lane, LogReader, Proof, Ranges, ReaderState, RetryLooks, Rewrite, Standing, SuspectedRetries, Suspects,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::Inner;
use crate::begin::begin;
use crate::rows::{millis, undecodable};

/// The reader's lease is longer by this part than that of what it hands out, so that it is not renewed with every claim. Not by
/// more: after a crash nobody reads until it is over.
const EXTRA_LEASE: u32 = 4;

pub(super) fn reader_lease(lease: Duration) -> Duration {
    lease + lease / EXTRA_LEASE
}

/// So often the reader looks whether numbers are still given out above what it has read.
const SEQUENCE_INTERVAL: Duration = Duration::from_secs(1);

/// What the log's one reader has.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) epoch: i64,
    /// By this process's clock, begun before the lease was asked for.
    pub(super) leased_until: Instant,
    pub(super) lease: Duration,
    pub(super) reader: LogReader,
    /// Rows of the log that are handed out, by the ids under which they were.
    pub(super) fresh: HashMap<MessageId, i64>,
    pub(super) retries: HashMap<MessageId, Retry>,
    /// Failed rows that may have killed an earlier reader.
    pub(super) suspected: SuspectedRetries,
    /// Failed rows that are left alone for a while, by number: the database refused what was to be written to them.
    pub(super) held_retries: HashMap<i64, Held>,
    /// Whose verdicts the call that is under way has brought.
    pub(super) asking: Asking,
    /// Those of them that were refused.
    pub(super) refusals: Vec<RefusedVerdict>,
    /// How long what was handed out is good for.
    pub(super) leases: HashMap<LeaseToken, Instant>,
    pub(super) claimed_at: Instant,
    /// When failed rows are looked at next.
    pub(super) retry_looks: RetryLooks,
    sequence_at: Instant,
    /// The last claim was of failed rows, so the next one is of fresh ones first.
    pub(super) fresh_first: bool,
    pub(super) guard: CrashGuard,
    /// As it is written down: no row beyond this one may be handed out.
    pub(super) reach: i64,
    /// As far as it is known.
    pub(super) stored: Option<ReaderState>,
    /// What is written down of failed rows.
    pub(super) stored_retried: Suspects,
    pub(super) stored_at: Instant,
}

/// What is done so that a successor knows what killed this reader.
#[derive(Debug, Default)]
pub(super) struct CrashGuard {
    /// The next row is handed out once nothing else is in flight.
    pub(super) waits_to_be_alone: bool,
    /// The same of suspects among the failed rows.
    pub(super) retries_wait_to_be_alone: bool,
    /// It is written down that rows are in flight which may have killed an earlier reader.
    pub(super) is_trying: bool,
}

/// A failed row that is handed out.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) number: i64,
    pub(super) token: LeaseToken,
    pub(super) lane: Option<Lane>,
    /// The attempts that its table counts.
    pub(super) counted: u32,
    /// What became of it, if that is not written down yet.
    pub(super) outcome: Option<RowChange>,
    /// The database refused to write that.
    pub(super) refused: Option<Rewrite>,
}

/// A failed row that is left alone for a while. It comes again for its verdict, and is not sent.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) until: Rewrite,
    pub(super) lane: Option<Lane>,
}

/// Whose verdicts a call has brought.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// By rows of the log.
    pub(super) rows: HashMap<i64, MessageId>,
    /// Of rows beside it.
    pub(super) retries: HashSet<MessageId>,
}

impl Session {
    /// How many rows are handed out.
    pub(super) fn in_flight(&self) -> usize {
        self.fresh.len() + self.retried().count()
    }

    /// The failed rows that are handed out.
    pub(super) fn retried(&self) -> impl Iterator<Item = i64> {
        let retries = self.retries.values().filter(|retry| retry.outcome.is_none());
        retries.map(|retry| retry.number)
    }

    /// Whether something is in flight beside which nothing else may be.
    pub(super) fn is_alone(&self) -> bool {
        self.reader.is_alone() || self.tries_suspected()
    }

    /// Whether failed rows are handed out that may have killed an earlier reader. They are by themselves.
    pub(super) fn tries_suspected(&self) -> bool {
        !self.suspected.is_empty() && self.retried().any(|row| self.suspected.contains(row))
    }

    /// What to write down of what is in flight.
    pub(super) fn handed_out(&mut self) -> HandedOut {
        let mut handed_out = self.handing_out(self.reader.gaps().hi());
        if self.fresh.is_empty() && self.retried().next().is_some() {
            // No row of the log can be the cause if this reader crashes now. Before one goes, that is written down.
            handed_out.reach = None;
        }
        handed_out
    }

    /// What to write down before rows up to `last` are handed out.
    pub(super) fn handing_out(&mut self, last: i64) -> HandedOut {
        let mut handed_out = self.reader.handed_out(last);
        handed_out.retried = self.suspected.counting(self.retried());
        handed_out
    }

    /// What to write down where the reader ends: what it has in flight has not killed it.
    pub(super) fn ending(&mut self) -> HandedOut {
        let mut ended = self.reader.ended();
        ended.retried = self.suspected.counting([]);
        ended
    }

    /// Whether nothing was claimed for the time of a lease, and nothing is handed out.
    pub(super) fn is_idle(&mut self, now: Instant) -> bool {
        self.release_expired(now);
        self.in_flight() == 0 && now.duration_since(self.claimed_at) > self.lease
    }

    /// Puts back what a worker of this process held beyond its lease.
    pub(super) fn release_expired(&mut self, now: Instant) {
        let expired: Vec<LeaseToken> = self
            .leases
            .iter()
            .filter_map(|(token, until)| (*until < now).then_some(*token))
            .collect();
        for token in expired {
            self.release(token);
        }
    }

    /// Puts back what was handed out under a token and has no verdict.
    pub(super) fn release(&mut self, token: LeaseToken) {
        self.leases.remove(&token);
        let window = &mut self.reader.window;
        self.fresh.retain(|_, row| !window.is_held(*row, token));
        window.put_back_all(token);
        self.retries
            .retain(|_, retry| retry.token != token || retry.outcome.is_some());
    }

    fn lease_left(&self, now: Instant) -> Duration {
        self.leased_until.saturating_duration_since(now)
    }
}

impl Inner {
    /// Makes this the reader, or keeps it so, for longer than what it hands out is leased. Nothing while another one reads.
    pub(super) async fn keep_reading(
        &self,
        session: &mut Option<Session>,
        worker: WorkerId,
        lease: Duration,
    ) -> sqlx::Result<bool> {
        let now = self.now();
        match session {
            Some(kept) if kept.lease_left(now) > lease => return Ok(true),
            Some(kept) => {
                kept.lease = lease;
                if self.renew(kept).await? {
                    return Ok(true);
                }
                tracing::warn!("another relay reads the log now; what was in flight comes again from there");
                *session = None;
            }
            None => {}
        }
        *session = self.take(worker, lease).await?;
        Ok(session.is_some())
    }

    async fn take(&self, worker: WorkerId, lease: Duration) -> sqlx::Result<Option<Session>> {
        // Asked first, so that a relay that stands by writes nothing.
        let row = sqlx::query(self.statements.reading.reader.sql())
            .fetch_one(self.common.pool())
            .await?;
        let (owner, is_leased): (Option<String>, bool) = (row.try_get("owner")?, row.try_get("is_leased")?);
        let ours = worker.as_uuid().hyphenated().to_string();
        let is_ours = owner.as_ref() == Some(&ours);
        if is_leased && owner.is_some() && !is_ours {
            if !self.stands_by.swap(true, Ordering::Relaxed) {
                tracing::info!(
                    reader = owner,
                    "another relay reads the log, or has crashed and its lease runs; standing by"
                );
            }
            return Ok(None);
        }
        self.stands_by.store(false, Ordering::Relaxed);
        let now = self.now();
        // All of it: the driver ends a statement after its first row without a word on whether that was committed.
        let taken = sqlx::query(self.statements.reading.take_reader.sql())
            .bind(ours)
            .bind(millis(reader_lease(lease)))
            .fetch_all(self.common.pool())
            .await?;
        let Some(row) = taken.first() else { return Ok(None) };
        let stored = written_state(row)?;
        let mut handed_out = handed_out(&row.try_get::<String, _>("handed_out")?)?;
        if is_ours {
            // It lives.
            handed_out.reach = None;
        }
        let suspected = if is_ours {
            SuspectedRetries::of_survivor(&handed_out, now)
        } else {
            SuspectedRetries::after_crash(&handed_out, now)
        };
        let suspects = handed_out.suspects(&stored);
        let after_crash = !(suspects.is_empty() && suspected.is_empty());
        tracing::info!(hi = stored.hi, after_crash, "reading the log");
        Ok(Some(Session {
            epoch: row.try_get("epoch")?,
            leased_until: now + reader_lease(lease),
            lease,
            reader: LogReader::resume(&stored, Proof::Required)
                .keeping_places()
                .suspecting(suspects),
            fresh: HashMap::new(),
            retries: HashMap::new(),
            suspected,
            held_retries: HashMap::new(),
            asking: Asking::default(),
            refusals: Vec::new(),
            leases: HashMap::new(),
            claimed_at: now,
            retry_looks: RetryLooks::new(now),
            sequence_at: now,
            fresh_first: false,
            guard: CrashGuard::default(),
            reach: i64::MIN,
            stored: Some(stored),
            stored_retried: handed_out.retried,
            stored_at: now,
        }))
    }

    /// Sets the sequence right if it was set back. Until then rows that would not be read are refused, so none was missed.
    pub(super) async fn keep_sequence(&self, session: &mut Session) -> sqlx::Result<()> {
        let now = self.now();
        if now < session.sequence_at {
            return Ok(());
        }
        let hi = session.reader.state(now).hi;
        let reading = &self.statements.reading;
        let last: i64 = sqlx::query_scalar(reading.sequence.sql())
            .bind(&self.table)
            .fetch_one(self.common.pool())
            .await?;
        if last < hi {
            let mut tx = begin(self.common.pool()).await?;
            for statement in [&reading.raise_sequence, &reading.make_sequence] {
                let set = sqlx::query(statement.sql()).bind(&self.table).bind(hi);
                set.execute(&mut *tx).await?;
            }
            tx.commit().await?;
            tracing::warn!(
                table = self.table,
                last,
                hi,
                "the numbers of the log were set back below what was read; they go on above it now. Inserts in between were refused"
            );
        }
        session.sequence_at = now + SEQUENCE_INTERVAL;
        Ok(())
    }

    /// Prolongs the reader's lease; returns whether it is still the reader.
    pub(super) async fn renew(&self, session: &mut Session) -> sqlx::Result<bool> {
        let now = self.now();
        let renewed = sqlx::query(self.statements.reading.renew_reader.sql())
            .bind(session.epoch)
            .bind(millis(reader_lease(session.lease)))
            .fetch_all(self.common.pool())
            .await?;
        if renewed.is_empty() {
            return Ok(false);
        }
        session.leased_until = now + reader_lease(session.lease);
        Ok(true)
    }

    /// How far the log is settled: as this store knows it if it reads, else as it was written down.
    pub(super) async fn state(&self) -> sqlx::Result<(ReaderState, InFlight)> {
        if let Some(session) = &*self.session.lock().await {
            let in_flight = InFlight {
                fresh: session.fresh.len() as u64,
                retried: session.retried().count() as u64,
                ids: session.fresh.keys().chain(session.retries.keys()).copied().collect(),
                dead: session.reader.window.standings().filter_map(dead).collect(),
            };
            return Ok((session.reader.state(self.now()), in_flight));
        }
        let row = sqlx::query(self.statements.reading.reader.sql())
            .fetch_one(self.common.pool())
            .await?;
        Ok((written_state(&row)?, InFlight::default()))
    }
}

/// How far the log is settled, as it was written down.
pub(super) fn written_state(row: &SqliteRow) -> sqlx::Result<ReaderState> {
    let open = ranges(&row.try_get::<String, _>("open")?)?;
    let hi = row.try_get("hi")?;
    Ok(ReaderState { hi, open })
}

/// What is handed out, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    pub(super) fresh: u64,
    pub(super) retried: u64,
    pub(super) ids: Vec<MessageId>,
    /// Rows of the log that died, which is not written down yet: earlier ones of their lanes are not settled.
    pub(super) dead: Vec<i64>,
}

fn dead((row, standing): (i64, Standing)) -> Option<i64> {
    matches!(standing, Standing::Failed(failure) if failure.dead).then_some(row)
}

fn handed_out(text: &str) -> sqlx::Result<HandedOut> {
    let handed_out = text.parse::<HandedOut>();
    handed_out.map_err(|error| undecodable("handed_out", format!("{error}; restore it from a backup")))
}

fn ranges(json: &str) -> sqlx::Result<Ranges> {
    let open: Vec<(i64, i64)> = serde_json::from_str(json)
        .map_err(|error| undecodable("open", format!("{error}; restore it from a backup")))?;
    let mut ranges = Ranges::default();
    for (first, last) in open {
        ranges.insert(first..=last);
    }
    Ok(ranges)
}
