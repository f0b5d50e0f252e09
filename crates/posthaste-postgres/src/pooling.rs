//! Poolers that give every transaction another server session, such as `PgBouncer` in transaction mode.
//!
//! Behind one, what a session remembers is not there for the next transaction, or is another client's: a named prepared
//! statement, a `LISTEN`, an advisory lock of the session. sqlx names its statements, and sends one in two steps between
//! which such a pooler may change the session. So unless every connection is known to be a session of its own, statements
//! are unnamed; and each runs within a transaction, which also says for how long locks are waited for and is read committed
//! whatever the default is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Execute, PgConnection, PgPool, Postgres, Row, SqlSafeStr, SqlStr,
    Transaction,
};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::PostgresStore;
use crate::rights::explained;
use crate::table_locks::BEGIN_BOUNDED;

/// What a connection to the database is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// Found out before the first statement that depends on it. The default.
    #[default]
    Detect,
    /// Each connection is one session of the server: there is no pooler, or one in session mode.
    Session,
    /// Each transaction has another session of the server: a pooler in transaction mode.
    Transaction,
}

/// How often the marker is looked for. A pooler that takes its sessions in turn, or has other clients that take them in
/// between, hides it in about one round of five.
const ROUNDS: usize = 8;

/// Two connections and a few questions. The caller must not wait for them for long.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(3);

const UNKNOWN: u8 = 0;
const SESSION: u8 = 1;
const TRANSACTION: u8 = 2;

/// What is known of the way to the server; shared by all statements of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: AtomicU8,
    detection: OnceCell<()>,
}

impl Sessions {
    pub(crate) fn new(pooling: Pooling) -> Self {
        let sessions = Self::default();
        sessions.know(pooling);
        sessions
    }

    pub(crate) fn know(&self, pooling: Pooling) {
        let known = match pooling {
            Pooling::Detect => UNKNOWN,
            Pooling::Session => SESSION,
            Pooling::Transaction => TRANSACTION,
        };
        self.0.known.store(known, Ordering::Relaxed);
    }

    /// Whether a session keeps what was prepared on it. Not, as long as nothing is known: unnamed statements are right in
    /// any case.
    pub(crate) fn keep_statements(&self) -> bool {
        self.0.known.load(Ordering::Relaxed) == SESSION
    }

    /// Finds out what the connections are, once. If that fails, nothing is known and the next call tries again.
    pub(crate) async fn detect(&self, pool: &PgPool) -> Pooling {
        if self.0.known.load(Ordering::Relaxed) == UNKNOWN {
            let detection = self.0.detection.get_or_try_init(|| async {
                let options = pool.connect_options();
                let found = tokio::time::timeout(DETECTION_TIMEOUT, detect(&options)).await;
                let found = found.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
                if found == Pooling::Transaction {
                    tracing::info!(
                        "the database is behind a pooler in transaction mode: statements are not prepared, and new \
                         messages are found by polling unless a direct address is given"
                    );
                }
                self.know(found);
                Ok::<_, sqlx::Error>(())
            });
            if let Err(error) = detection.await {
                tracing::debug!(%error, "whether a pooler is in between is not known yet");
            }
        }
        match self.0.known.load(Ordering::Relaxed) {
            SESSION => Pooling::Session,
            TRANSACTION => Pooling::Transaction,
            _ => Pooling::Detect,
        }
    }

    /// Begins to find out without waiting for it: a caller with an open transaction must not wait for other connections.
    pub(crate) fn detect_in_background(&self, pool: &PgPool) {
        if self.0.known.load(Ordering::Relaxed) == UNKNOWN && !self.0.detection.initialized() {
            let (sessions, pool) = (self.clone(), pool.clone());
            tokio::spawn(async move { sessions.detect(&pool).await });
        }
    }
}

/// Begins a transaction, in a task of its own: a `begin` that is given up half way would leave its transaction open on a
/// connection that goes back to the pool, and what is written there next would not be committed. One that is not waited for
/// any more is rolled back.
pub(crate) async fn begin(
    pool: &PgPool,
    statement: impl SqlSafeStr + Send + 'static,
) -> sqlx::Result<Transaction<'static, Postgres>> {
    let pool = pool.clone();
    match tokio::spawn(async move { pool.begin_with(statement).await }).await {
        Ok(begun) => begun,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        // The runtime is going down.
        Err(_) => Err(sqlx::Error::WorkerCrashed),
    }
}

/// A connection whose transaction begins with statements that may fail or wait. One that fails, or is given up, leaves its
/// transaction open, and the driver does not know of it: such a connection is closed rather than given back to the pool.
pub(crate) struct Beginning {
    conn: PoolConnection<Postgres>,
    has_begun: bool,
}

impl Beginning {
    pub(crate) fn on(conn: PoolConnection<Postgres>) -> Self {
        Self { conn, has_begun: false }
    }

    pub(crate) async fn begin_with(
        &mut self,
        statement: impl SqlSafeStr + Send + 'static,
    ) -> sqlx::Result<Transaction<'_, Postgres>> {
        let tx = self.conn.begin_with(statement).await?;
        self.has_begun = true;
        Ok(tx)
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if !self.has_begun {
            self.conn.close_on_drop();
        }
    }
}

/// Whether the server answers. Not asked while all connections are in use.
pub(crate) async fn ping(pool: &PgPool) -> sqlx::Result<()> {
    if pool.num_idle() == 0 && pool.size() >= pool.options().get_max_connections() {
        return Ok(());
    }
    // Not prepared, so that nothing stays behind in a session that others may use.
    sqlx::raw_sql("select 1").execute(pool).await.map(drop)
}

/// One statement on a connection of the pool, whatever the connections are.
impl PostgresStore {
    /// A transaction in which nobody is waited for without end, and that is read committed whatever the default is.
    pub(crate) async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        self.begin_with(BEGIN_BOUNDED).await
    }

    pub(crate) async fn begin_with(&self, statement: &'static str) -> sqlx::Result<Transaction<'static, Postgres>> {
        self.sessions.detect(&self.pool).await;
        begin(&self.pool, statement).await
    }

    /// By what is known now: when the query was made nothing may have been.
    pub(crate) fn named<'q>(&self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        query.persistent(self.sessions.keep_statements())
    }

    pub(crate) async fn fetch_all(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<Vec<PgRow>> {
        let mut tx = self.begin().await?;
        let (query, sql) = with_text(query)?;
        let rows = self.named(query).fetch_all(&mut *tx).await;
        let rows = rows.map_err(|error| explained(error, sql.as_str()))?;
        tx.commit().await?;
        Ok(rows)
    }

    pub(crate) async fn fetch_one(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<PgRow> {
        self.fetch_optional(query).await?.ok_or(sqlx::Error::RowNotFound)
    }

    pub(crate) async fn fetch_optional(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<Option<PgRow>> {
        let mut tx = self.begin().await?;
        let (query, sql) = with_text(query)?;
        let row = self.named(query).fetch_optional(&mut *tx).await;
        let row = row.map_err(|error| explained(error, sql.as_str()))?;
        tx.commit().await?;
        Ok(row)
    }

    pub(crate) async fn execute(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<u64> {
        let mut tx = self.begin().await?;
        let (query, sql) = with_text(query)?;
        let done = self.named(query).execute(&mut *tx).await;
        let done = done.map_err(|error| explained(error, sql.as_str()))?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }

    /// For a statement that reads no table: it waits for no lock, so where every connection is a session it goes by itself.
    pub(crate) async fn execute_alone(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<()> {
        if self.sessions.detect(&self.pool).await == Pooling::Session {
            return self.named(query).execute(&self.pool).await.map(drop);
        }
        self.execute(query).await.map(drop)
    }
}

/// The same query, and its text: a query that was made gives up its text only with itself.
fn with_text<'q>(
    mut query: Query<'_, Postgres, PgArguments>,
) -> sqlx::Result<(Query<'q, Postgres, PgArguments>, SqlStr)> {
    let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?;
    let sql = query.sql();
    Ok((sqlx::query_with(sql.clone(), arguments.unwrap_or_default()), sql))
}

/// Leaves a marker in one session, and looks whether another connection sees it or the first one misses it. Both happen
/// only if sessions are shared. On connections of its own, so that a pool of one is enough, and with simple queries, which
/// every pooler passes on whole.
async fn detect(options: &PgConnectOptions) -> sqlx::Result<Pooling> {
    let marker = Uuid::new_v4().to_string();
    let mut first = options.connect().await?;
    let mut second = options.connect().await?;
    let mut found = Pooling::Session;
    for _ in 0..ROUNDS {
        mark(&mut first, &marker).await?;
        if marked(&mut second, &marker).await? || !marked(&mut first, &marker).await? {
            found = Pooling::Transaction;
            break;
        }
    }
    // Whether they end well changes nothing of what was found.
    let _ = tokio::join!(first.close(), second.close());
    Ok(found)
}

async fn mark(conn: &mut PgConnection, marker: &str) -> sqlx::Result<()> {
    let sql = format!("select set_config('posthaste.session_marker', '{marker}', false)");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop)
}

async fn marked(conn: &mut PgConnection, marker: &str) -> sqlx::Result<bool> {
    let sql = "select current_setting('posthaste.session_marker', true) as marker";
    let row = sqlx::raw_sql(sql).fetch_one(conn).await?;
    Ok(row.try_get::<Option<&str>, _>("marker")? == Some(marker))
}
