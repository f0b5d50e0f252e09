//! Reading on at the end of the log, which is what a reader does nearly always: no look at locks nor at rows that wait, at failures
//! only where there are some, more rows in one statement than a claim takes, and the next statement beside what is done with them.
//!
//! Rows that were read so are handed out once all ids that are open below them have been looked at in a later snapshot, which is one
//! more statement for all rows of a read. So a transaction that stays open costs a backlog little.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use posthaste_core::store::{ClaimRequest, ClaimedMessage};
use posthaste_sql::log::{Failure, Holder, LogRow, Plan, Policy};
use sqlx::Row;

use super::Reader;
use super::chunk::{Chunk, READ_BYTES, Wanted};
use super::claim::Read;
use super::error::LogResult;
use super::read_ahead::ReadAhead;
use super::reader_lock::shared_session;
use super::relay_store::say_refused;
use super::rows::Texts;
use super::session::Session;

/// The first read takes so many rows, and each that found as many is followed by one of twice as many.
const FIRST_ROWS: u32 = 128;

/// Most rows of a read, unless a claim asks for more.
const MAX_ROWS: u32 = 2_000;

/// Others than the reader may empty the table of failures; after so long it is looked at again.
const FAILURES_INTERVAL: Duration = Duration::from_secs(1);

/// A look at all ids below the tail that are open, after it was read.
type Look = (Plan, Read);

/// Rows that were read beyond the highest id that is taken in, as one snapshot had them.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The highest id below them.
    after: i64,
    /// All ids that are open below them were looked at after they were read.
    is_over_gaps: bool,
    rows: VecDeque<LogRow>,
    messages: VecDeque<ClaimedMessage>,
    /// How many rows are read next.
    next_rows: u32,
    /// Bytes of payload of one row, by the last read.
    row_bytes: u64,
    /// When there were failures, and it was not known which rows wait behind them.
    failures_at: Option<Instant>,
    texts: Texts,
    ahead: ReadAhead,
}

impl Tail {
    /// What was read ahead is worth nothing any more.
    pub(super) fn clear(&mut self) {
        self.ahead.forget();
        if !self.rows.is_empty() {
            self.rows.clear();
            self.messages.clear();
            self.next_rows = 0;
        }
    }

    /// There are more rows beyond this id, which is the highest that was read.
    pub(super) fn expect_more(&mut self, after: i64) {
        self.clear();
        self.after = after;
        self.next_rows = self.next_rows.max(FIRST_ROWS);
    }

    /// Whether rows are here, or more were seen than were read.
    fn is_expected(&self) -> bool {
        !self.rows.is_empty() || self.next_rows > 0
    }

    /// How many rows a claim takes beside so many others with so many bytes: those that go are counted, not those among them
    /// that stay back.
    fn fitting(&self, request: &ClaimRequest, (mut count, mut bytes): (u32, u64)) -> usize {
        let is_ordered = Policy::of(&request.ordering).ordered;
        let least = usize::from(count == 0);
        let fits = |(row, claimed): &(&LogRow, &ClaimedMessage)| {
            let stays_back = row.kept || (row.held && is_ordered);
            if !stays_back {
                count += 1;
                bytes += claimed.message.payload.len() as u64;
            }
            count <= request.limit && bytes <= request.max_bytes
        };
        let fitting = self.rows.iter().zip(&self.messages).take_while(fits).count();
        fitting.max(least).min(self.rows.len())
    }

    /// Whether a claim takes more than there is, and there is more. What follows ids that were passed over is not read before
    /// these are looked at: a transaction's second row must not come without its first.
    fn wants_more(&self, request: &ClaimRequest, has_read: bool) -> bool {
        if self.rows.is_empty() {
            return !has_read;
        }
        let count = self.rows.len();
        let is_too_few = count < request.limit as usize && self.fitting(request, (0, 0)) == count;
        is_too_few && self.may_go_on()
    }

    /// Whether there is more to read, and no id was passed over before it.
    fn may_go_on(&self) -> bool {
        let count = i64::try_from(self.rows.len());
        let is_whole = |last: &LogRow| count.is_ok_and(|count| self.after.checked_add(count) == Some(last.id));
        self.next_rows > 0 && self.rows.back().is_some_and(is_whole)
    }

    /// Whether so much is left that it is worth another connection: as much as is read at a time. What is read beyond rows that
    /// have to wait is worth nothing once they are written to where they wait.
    fn is_backlog(&self, is_ordered: bool) -> bool {
        let next_bytes = u64::from(self.next_rows).saturating_mul(self.row_bytes);
        let is_large = self.next_rows >= MAX_ROWS || next_bytes >= READ_BYTES;
        is_large && !self.rows.is_empty() && !(is_ordered && self.rows.iter().any(|row| row.held))
    }

    fn take_in(&mut self, chunk: Chunk, now: Instant) {
        self.is_over_gaps = false;
        if chunk.beside_failures {
            self.failures_at = Some(now);
            return;
        }
        let count = u32::try_from(chunk.rows.len()).unwrap_or(u32::MAX);
        if count > 0 {
            // A few small rows among large ones do not make the next read a large one.
            self.row_bytes = (chunk.bytes / u64::from(count)).max(self.row_bytes / 2);
        }
        self.next_rows = if chunk.is_full {
            self.next_rows.max(count.saturating_mul(2))
        } else {
            0
        };
        append(&mut self.rows, chunk.rows);
        append(&mut self.messages, chunk.messages);
    }

    /// Rows for whole claims, and where there are too few for one, no more than it lacks: what was read is handed out as it
    /// lies then, while the rest of a read would have to be copied twice, and so that of each read after it.
    fn rows_to_read(&self, limit: u32) -> u32 {
        let by_bytes = READ_BYTES / self.row_bytes.max(1);
        let most = u32::try_from(by_bytes).unwrap_or(u32::MAX).min(limit.max(MAX_ROWS));
        let there = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let lacking = limit.checked_sub(there).filter(|lacking| there > 0 && *lacking > 0);
        let rows = self.next_rows.clamp(FIRST_ROWS, MAX_ROWS.max(limit)).min(most);
        let whole = if rows > limit { rows - rows % limit } else { rows };
        whole.min(lacking.unwrap_or(u32::MAX)).max(1)
    }
}

impl Reader {
    /// Hands out rows at the end of the log; `None` if others may have to go first, so that all of it has to be looked at.
    pub(super) async fn claim_tail(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        now: Instant,
    ) -> LogResult<Option<Vec<ClaimedMessage>>> {
        let has_gaps = session.reader.gaps().first().is_some();
        if !may_read_on(session, has_gaps, now) {
            session.tail.ahead.rest_if_unused(now);
            return Ok(None);
        }
        let (mut has_read, mut is_confirmed) = (false, false);
        while session.tail.wants_more(request, has_read) {
            is_confirmed = self.read_tail(session, request, now).await?;
            has_read |= is_confirmed;
            if session.tail.failures_at == Some(now) {
                session.tail.clear();
                return Ok(None);
            }
        }
        if has_gaps && session.tail.rows.is_empty() {
            return Ok(None);
        }
        let look = if has_gaps && !session.tail.is_over_gaps {
            Some(self.look_at_gaps(session, request, now).await?)
        } else {
            None
        };
        if !is_confirmed && look.is_none() {
            // Whoever has lost the lock hands out nothing more, and it may be lost since the last read of its own.
            self.confirm_reader(session).await?;
        }
        let count = match &look {
            None => session.tail.fitting(request, (0, 0)),
            Some((_, read)) if read.is_whole() => session.tail.fitting(request, read.load()),
            Some(_) => 0,
        };
        let last = count.checked_sub(1).map(|last| session.tail.rows[last].id);
        if look.is_none() && last.is_none() {
            return Ok(Some(Vec::new()));
        }
        let holders = match &look {
            Some((_, read)) => read.result.holders.clone(),
            None if last.is_some_and(|last| session.reader.passes_over(last, count)) => self.holders(session).await?,
            None => BTreeSet::new(),
        };
        if let Some(last) = last {
            self.write_ahead(session, last, now).await?;
        }
        let (messages, goes_on) = hand_out(session, request, look, count, &holders);
        if messages.is_empty() {
            // Else the next call writes them down: this one would be cut short with rows in its hands.
            say_refused(&self.flush(session, &[], now).await?.refused);
        }
        let may_be_more_below = !goes_on || last.is_none();
        Ok((!messages.is_empty() || !may_be_more_below).then_some(messages))
    }

    /// Reads all ids below the tail that are open, as far as a claim takes what is found there.
    async fn look_at_gaps(&self, session: &mut Session, request: &ClaimRequest, now: Instant) -> LogResult<Look> {
        let plan = session.reader.plan_known(now, request.limit as usize);
        let plan = plan.pipelined(request.pipelined);
        let read = self.read_plan(session, request, &plan, request.limit).await?;
        Ok((plan, read))
    }

    /// Reads on, or takes what was read ahead; says whether it was the reader's own connection that read.
    async fn read_tail(&self, session: &mut Session, request: &ClaimRequest, now: Instant) -> LogResult<bool> {
        let wanted = |after, rows| Wanted {
            after,
            rows,
            ordering: request.ordering.clone(),
        };
        let hi = session.reader.gaps().hi();
        let lease = session.idle_limit;
        let Session { link, tail, .. } = session;
        let Some(link) = link else { return Ok(true) };
        let after = tail.rows.back().map_or(hi, |last| last.id);
        let ahead = tail.ahead.take(after, lease, now).await;
        let is_ahead = ahead.is_some();
        let chunk = if let Some(chunk) = ahead {
            chunk
        } else {
            let wanted = wanted(after, tail.rows_to_read(request.limit));
            self.log
                .read_chunk(link, self.shard.as_ref(), &wanted, &mut tail.texts, now)
                .await?
        };
        (tail.after, tail.failures_at) = (hi, None);
        tail.take_in(chunk, now);
        if tail.rows.is_empty() {
            tail.ahead.rest();
        } else if tail.is_backlog(Policy::of(&request.ordering).ordered)
            && let Some(last) = tail.rows.back()
        {
            let wanted = wanted(last.id, tail.rows_to_read(request.limit));
            tail.ahead.begin(&self.log, self.shard.as_ref(), wanted, lease, now);
        } else {
            tail.ahead.rest_if_unused(now);
        }
        Ok(!is_ahead)
    }

    /// Who may still commit rows that the last read passed over.
    async fn holders(&self, session: &mut Session) -> LogResult<BTreeSet<Holder>> {
        let rows = sqlx::query(self.statements.reading.holders.sql())
            .bind(self.lock_source())
            .fetch_all(session.connection()?)
            .await?;
        let holder = |row: &sqlx::postgres::PgRow| -> sqlx::Result<Holder> {
            let (name, prepared) = (row.try_get(0)?, row.try_get(1)?);
            Ok(Holder { name, prepared })
        };
        Ok(rows.iter().map(holder).collect::<sqlx::Result<_>>()?)
    }

    /// Whether the connection that has the lock is there, and is this reader's own.
    async fn confirm_reader(&self, session: &mut Session) -> LogResult<()> {
        let mark: Option<String> = sqlx::query_scalar("select current_setting('posthaste.reader', true)")
            .fetch_one(session.connection()?)
            .await?;
        let is_own = session
            .link
            .as_ref()
            .is_some_and(|link| Some(&link.mark) == mark.as_ref());
        if is_own { Ok(()) } else { Err(shared_session()) }
    }
}

/// Whether what is beyond the highest id that was read may be next, and a statement for that alone is worth it.
fn may_read_on(session: &mut Session, has_gaps: bool, now: Instant) -> bool {
    let recent = |at: Instant| now.duration_since(at) < FAILURES_INTERVAL;
    let beside_failures = session.tail.failures_at.is_some_and(recent);
    if beside_failures || !session.reader.may_append() || session.tail.after != session.reader.gaps().hi() {
        session.tail.clear();
    }
    // Without a backlog one statement for the gaps and the tail is less than two.
    let is_worth_it = !has_gaps || session.tail.is_expected();
    let may_append = session.reader.may_append() && session.reader.has_room();
    session.reader.suspects.is_empty() && !beside_failures && may_append && is_worth_it
}

/// Takes in what a look at the gaps found, and behind that so many rows of the tail; says whether these could follow. Nothing is
/// waited for, so that a call that is cut short has taken nothing.
fn hand_out(
    session: &mut Session,
    request: &ClaimRequest,
    look: Option<Look>,
    count: usize,
    holders: &BTreeSet<Holder>,
) -> (Vec<ClaimedMessage>, bool) {
    let policy = Policy::of(&request.ordering);
    let (mut messages, mut park) = (Vec::new(), Vec::new());
    if let Some((plan, mut read)) = look {
        let sorted = session.reader.read(&plan, &read.result, request.token, policy.ordered);
        session.tail.is_over_gaps = read.is_whole();
        messages = read.take(&sorted.handed_out);
        park = sorted.park;
    }
    // What waits or failed below is written down before anything follows it.
    let goes_on = park.is_empty() && session.reader.may_append();
    if goes_on && count > 0 {
        let tail = &mut session.tail;
        let rows: Vec<LogRow> = take_first(&mut tail.rows, count);
        let mut appended: Vec<ClaimedMessage> = take_first(&mut tail.messages, count);
        tail.after = rows.last().map_or(tail.after, |last| last.id);
        tail.is_over_gaps &= !session.reader.passes_over(tail.after, count);
        let lanes = policy.lanes(request.pipelined);
        let sorted = session.reader.append(&rows, holders, request.token, lanes);
        if sorted.handed_out.len() < rows.len() {
            let mut goes = sorted.handed_out.iter().peekable();
            let mut rows = rows.iter();
            appended.retain(|_| rows.next().is_some_and(|row| goes.next_if_eq(&&row.id).is_some()));
        }
        park = sorted.park;
        if messages.is_empty() {
            messages = appended;
        } else {
            messages.append(&mut appended);
        }
    }
    for id in park {
        session.reader.window.fail(Failure::parked(id));
    }
    (messages, goes_on)
}

/// Behind what is there, or in its place.
fn append<T>(queue: &mut VecDeque<T>, more: Vec<T>) {
    if queue.is_empty() {
        *queue = more.into();
    } else {
        queue.extend(more);
    }
}

/// The first of a queue. Messages are large, so all of them are taken as they lie.
fn take_first<T>(queue: &mut VecDeque<T>, count: usize) -> Vec<T> {
    if count == queue.len() {
        std::mem::take(queue).into()
    } else {
        queue.drain(..count).collect()
    }
}
