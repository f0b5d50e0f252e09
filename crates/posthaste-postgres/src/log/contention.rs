//! A reader that has the seat of its shard and not its lock: a connection that nobody uses any more may keep it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Row};

use super::Reader;
use super::error::LogResult;
use super::reader_lock::Link;

/// How often it is looked who has the lock, and said.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
const SAY_INTERVAL: Duration = Duration::from_mins(1);

/// Without placeholders, as its arguments name all that it is about.
const END_HOLDER: &str = include_str!("../../queries/log/shards/end_holder.sql");

#[derive(Debug, Default)]
pub(super) struct Contention(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    looked_at: Option<Instant>,
    said_at: Option<Instant>,
    notice: Option<String>,
}

impl Contention {
    /// Whether another one has had the lock for longer than a lease, so that it is time to look who.
    fn is_due(&self, now: Instant, lease: Duration) -> bool {
        let mut state = self.state();
        let since = *state.since.get_or_insert(now);
        let looked = state.looked_at.is_some_and(|at| now.duration_since(at) < LOOK_INTERVAL);
        if now.duration_since(since) < lease || looked {
            return false;
        }
        state.looked_at = Some(now);
        true
    }

    /// The lock was had.
    pub(super) fn ended(&self) {
        *self.state() = State::default();
    }

    /// What an operator should know.
    pub(super) fn notice(&self) -> Option<String> {
        self.state().notice.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Whoever has had the lock of this reader's shard for a lease without having the seat is ended, if it is of the same role:
    /// it may be frozen in a way that no timeout of the server ends. It can write nothing any more, whatever it believes.
    pub(super) async fn end_holder(&self, link: &mut Link, lease: Duration) -> LogResult<bool> {
        let Some(shard) = &self.shard else { return Ok(false) };
        if !self.contention.is_due(self.now(), lease) || self.is_fenced(&mut link.connection).await? {
            return Ok(false);
        }
        let holder = sqlx::query(AssertSqlSafe(END_HOLDER))
            .bind(&self.cursor_table)
            .bind(shard.number)
            .fetch_optional(&mut link.connection)
            .await?;
        let Some(holder) = holder else { return Ok(false) };
        let (pid, role): (i32, String) = (holder.try_get("pid")?, holder.try_get("role")?);
        let (application, client): (String, String) = (holder.try_get("application")?, holder.try_get("client")?);
        if holder.try_get("ended")? {
            tracing::warn!(
                shard = shard.number,
                pid,
                application,
                client,
                "ended a connection that kept a shard of the log for longer than a lease, without having its seat"
            );
            return self.wait_for_lock(link).await;
        }
        let mut state = self.contention.state();
        let notice = format!(
            "shard {} of the log is not read: process {pid} of the role {role} ({application}, from {client}) keeps its lock; \
             call pg_terminate_backend({pid}) as a role that may",
            shard.number
        );
        let now = self.now();
        if state.said_at.is_none_or(|at| now.duration_since(at) >= SAY_INTERVAL) {
            state.said_at = Some(now);
            tracing::warn!(shard = shard.number, pid, "{notice}");
        }
        state.notice = Some(notice);
        Ok(false)
    }
}
