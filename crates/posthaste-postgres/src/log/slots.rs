//! How many readers of an instance have a connection at once. There may be more shards than the server has connections, so
//! readers that have nothing to do make room for those that have.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use posthaste_core::StoreError;
use posthaste_sql::table::Identifier;
use sqlx::{AssertSqlSafe, PgPool};

use super::error::LogResult;

/// How long no further connection is asked for after the server refused one, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often the same is said.
const SAY_INTERVAL: Duration = Duration::from_mins(1);

/// The connections of the readers of an instance.
#[derive(Debug)]
pub(super) struct Slots {
    /// How many there may be.
    max: usize,
    statement: Arc<str>,
    refusal: Mutex<Option<Refusal>>,
    waiting_said_at: Mutex<Option<Instant>>,
    unreadable_said_at: Mutex<Option<Instant>>,
    has_said_turns: AtomicBool,
}

/// The server gave no connection.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    until: Instant,
    pause: Duration,
}

impl Slots {
    pub(super) fn new(schema: &Identifier, max: u32) -> Self {
        let file = include_str!("../../queries/log/shards/waiting.sql");
        Self {
            max: usize::try_from(max.max(1)).unwrap_or(usize::MAX),
            statement: file.replace("\"posthaste\"", &schema.quoted('"')).into(),
            refusal: Mutex::default(),
            waiting_said_at: Mutex::default(),
            unreadable_said_at: Mutex::default(),
            has_said_turns: AtomicBool::new(false),
        }
    }

    /// How many readers may be connected, given how many are: no more than these for a while after a refusal.
    pub(super) fn allowed(&self, connected: usize) -> usize {
        let refusal = *locked(&self.refusal);
        match refusal.filter(|refusal| Instant::now() < refusal.until) {
            Some(_) => connected.clamp(1, self.max),
            None => self.max,
        }
    }

    /// The server gave no connection: no further one is asked for, for a while.
    pub(super) fn refused(&self, error: &StoreError) {
        {
            let mut refusal = locked(&self.refusal);
            // One that comes long after the last one is the first of others.
            let recent = refusal.filter(|refusal| refusal.until.elapsed() < LONGEST_PAUSE);
            let pause = recent.map_or(FIRST_PAUSE, |refusal| (refusal.pause * 2).min(LONGEST_PAUSE));
            let until = Instant::now() + pause;
            *refusal = Some(Refusal { until, pause });
        }
        self.say_waiting(error);
    }

    /// Which of these shards have something to hand out.
    pub(super) async fn waiting(&self, pool: &PgPool, shards: &[i32]) -> LogResult<BTreeSet<i32>> {
        let shards: Vec<i32> = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&self.statement)))
            .bind(shards)
            .fetch_all(pool)
            .await?;
        Ok(shards.into_iter().collect())
    }

    pub(super) fn say_waiting(&self, error: &StoreError) {
        if is_time(&self.waiting_said_at) {
            tracing::warn!(
                %error,
                "shards of the log wait for a connection, and take turns with those that have one; raise max_connections or \
                 the limit of the role, or lower database.log.max_readers"
            );
        }
    }

    pub(super) fn say_unreadable(&self, shard: i32, error: &StoreError) {
        if is_time(&self.unreadable_said_at) {
            tracing::warn!(shard, %error, "a shard of the log cannot be read");
        }
    }

    /// Says once that there are more shards than connections for them.
    pub(super) fn say_turns(&self, shards: usize) {
        if shards > self.max && !self.has_said_turns.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                shards,
                max_readers = self.max,
                "this relay has more shards of the log than it may have connections for, and reads them in turn; start more \
                 relays, or raise database.log.max_readers if the server has the connections"
            );
        }
    }
}

/// Whether something may be said again.
fn is_time(said_at: &Mutex<Option<Instant>>) -> bool {
    let mut said_at = locked(said_at);
    let is_time = said_at.is_none_or(|at| at.elapsed() >= SAY_INTERVAL);
    if is_time {
        *said_at = Some(Instant::now());
    }
    is_time
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
