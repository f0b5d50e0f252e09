//! Which database and which publisher: the only place that names them, besides the demonstration, which is an
//! application of its own.

mod native_log;

use std::fs::OpenOptions;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use log::LevelFilter;
use posthaste_core::alert::AlertSink;
use posthaste_core::readable::Readable;
use posthaste_core::store::{Store, StoreErrorKind};
use posthaste_core::{Publisher, StoreError};
use posthaste_mysql::{MySqlCatalogue, MySqlStore};
use posthaste_postgres::{
    DEFAULT_SCHEMA, LogLayoutOptions, Pooling, PostgresCatalogue, PostgresLogStore, PostgresStore,
};
use posthaste_publishers::Routed;
use posthaste_publishers::http::WebhookAlerts;
use posthaste_relay::SafetyNet;
use posthaste_sql::TableMap;
use posthaste_sql::table::{self, Catalogue, Identifier, Kind, Layout, Strategy};
use posthaste_sqlite::{SqliteCatalogue, SqliteLogStore, SqliteStore};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection, PgConnection};

use crate::config::{Config, Database, DatabaseUrl, PoolingMode};
use crate::pool;

pub use self::native_log::{FIRST_LOG_VERSION, NativeLog, any_native_log, native_log, served_log};

/// What to do about a SQLite file that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// Make it.
    Create,
    /// Say so.
    Refuse,
    /// Answer as an empty one would, and leave the disk as it is.
    Pretend,
}

/// The configured store. A server is connected to when it is first used, so that a relay may start before it.
pub async fn store(database: &Database, if_missing: IfMissing) -> anyhow::Result<Arc<dyn Store>> {
    match database.url() {
        DatabaseUrl::Postgres(url) => {
            let pool = pool::options(database).connect_lazy_with(postgres_options(&url)?);
            postgres_store(database, pool)
        }
        DatabaseUrl::MySql(url) => {
            let pool = pool::options(database).connect_lazy_with(mysql_options(&url)?);
            mysql_store(database, pool)
        }
        DatabaseUrl::Sqlite(path) => sqlite_store(database, sqlite_pool(database, &path, if_missing).await?),
    }
}

async fn sqlite_pool(database: &Database, path: &Path, if_missing: IfMissing) -> anyhow::Result<sqlx::SqlitePool> {
    let path = match if_missing {
        _ if path.exists() => path,
        IfMissing::Create => path,
        IfMissing::Refuse => return Err(no_file(path).into()),
        IfMissing::Pretend => Path::new(":memory:"),
    };
    let opened = SqliteStore::connect(path).await?;
    if path == Path::new(":memory:") {
        return Ok(opened.pool().clone());
    }
    // The store knows best how to open a file; how many connections and how patient is for the settings to say.
    let pool = SqlitePoolOptions::new()
        .max_connections(database.max_connections)
        .acquire_timeout(database.acquire_timeout)
        .connect_lazy_with(quietly((*opened.pool().connect_options()).clone()));
    opened.pool().close().await;
    Ok(pool)
}

fn postgres_store(database: &Database, pool: sqlx::PgPool) -> anyhow::Result<Arc<dyn Store>> {
    let map = table_map(database, Backend::Postgres)?;
    let direct = match &database.direct_url {
        Some(DatabaseUrl::Postgres(url)) => Some(postgres_options(url)?),
        _ => None,
    };
    if map.strategy() == Strategy::Log {
        return Ok(Arc::new(postgres_log(database, pool, map)?));
    }
    let store = PostgresStore::with_map(pool, map)
        .context("database.map")?
        .pooling(pooling(database));
    Ok(Arc::new(match direct {
        Some(direct) => store.direct(direct),
        None => store,
    }))
}

/// Its reader keeps a lock in its session, which only a connection of its own can have: past a pooler, if a way is known.
fn postgres_log(database: &Database, pool: sqlx::PgPool, map: TableMap) -> anyhow::Result<PostgresLogStore> {
    let options = LogLayoutOptions::of(&map)
        .max_retries(database.max_attempts().saturating_sub(1))
        .segment_age(database.log.segment_age)
        .segment_rows(database.log.segment_rows)
        .max_readers(database.log.max_readers.get());
    let (pool, pooling) = match &database.direct_url {
        Some(DatabaseUrl::Postgres(url)) => {
            let direct = pool::options(database).connect_lazy_with(postgres_options(url)?);
            (direct, Pooling::Detect)
        }
        _ => (pool, pooling(database)),
    };
    let store = PostgresLogStore::with_options(pool, map, options).context("database.map")?;
    Ok(store.pooling(pooling))
}

fn pooling(database: &Database) -> Pooling {
    match database.pooling {
        PoolingMode::Detect => Pooling::Detect,
        PoolingMode::Session => Pooling::Session,
        PoolingMode::Transaction => Pooling::Transaction,
    }
}

/// Refuses a pooler in front of the log that is served: what a command does there would fail, or succeed by luck.
pub async fn refuse_pooled_log(database: &Database) -> anyhow::Result<()> {
    let DatabaseUrl::Postgres(url) = database.url() else {
        return Ok(());
    };
    let map = table_map(database, Backend::Postgres)?;
    if map.strategy() != Strategy::Log {
        return Ok(());
    }
    let pool = pool::options(database).connect_lazy_with(postgres_options(&url)?);
    Ok(postgres_log(database, pool, map)?.refuse_pooler().await?)
}

/// Whether delivered rows are removed by whole segments: of Posthaste's own log on PostgreSQL.
pub fn has_segments(database: &Database) -> bool {
    database.layout == Layout::Log && Backend::of(database) == Backend::Postgres
}

/// Whether rows are known by numbers that are no ids of messages: those of a log on PostgreSQL.
pub fn numbers_rows(database: &Database) -> bool {
    let is_mapped_log = |map: &TableMap| map.strategy() == Strategy::Log;
    has_segments(database) || database.table_map().is_some_and(is_mapped_log)
}

fn mysql_store(database: &Database, pool: sqlx::MySqlPool) -> anyhow::Result<Arc<dyn Store>> {
    let map = table_map(database, Backend::Mysql)?;
    Ok(Arc::new(MySqlStore::with_map(pool, map).context("database.map")?))
}

fn sqlite_store(database: &Database, pool: sqlx::SqlitePool) -> anyhow::Result<Arc<dyn Store>> {
    if database.layout == Layout::Log {
        return Ok(Arc::new(sqlite_log(database, pool)?));
    }
    let map = table_map(database, Backend::Sqlite)?;
    Ok(Arc::new(SqliteStore::with_map(pool, map).context("database.map")?))
}

fn sqlite_log(database: &Database, pool: sqlx::SqlitePool) -> anyhow::Result<SqliteLogStore> {
    let prefix = database.prefix.as_deref().unwrap_or(posthaste_sqlite::DEFAULT_PREFIX);
    SqliteLogStore::with_prefix(pool, prefix).context("database.prefix")
}

/// The configured table map: that of existing tables, or of Posthaste's own.
pub fn table_map(database: &Database, backend: Backend) -> anyhow::Result<TableMap> {
    if let Some(map) = database.table_map() {
        if let Some(reason) = backend.database().refuses(map.strategy()) {
            bail!("the table map `{}` cannot be used here: {reason}", map.name());
        }
        return Ok(match &database.schema {
            Some(schema) => map.clone().within(&Identifier::new(schema).context("database.schema")?),
            None => map.clone(),
        });
    }
    let prefix = |default| database.prefix.as_deref().unwrap_or(default);
    match backend {
        Backend::Postgres => {
            let schema = database.schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
            let map = match database.layout {
                Layout::Queue => TableMap::in_schema(schema),
                Layout::Log => TableMap::native_log(schema),
            };
            map.context("database.schema")
        }
        Backend::Mysql => {
            posthaste_mysql::native_map(prefix(posthaste_mysql::DEFAULT_PREFIX)).context("database.prefix")
        }
        Backend::Sqlite => {
            let prefix = prefix(posthaste_sqlite::DEFAULT_PREFIX);
            let map = match database.layout {
                Layout::Queue => TableMap::with_prefix(prefix),
                Layout::Log => TableMap::log_with_prefix(prefix),
            };
            let map = map.context("database.prefix")?;
            Ok(map.with_times(Kind::EpochMs))
        }
    }
}

/// Where the tables are looked for, as an error says it, and that the settings which say so are right.
pub fn place(database: &Database) -> (String, &'static str) {
    let prefix = |default| database.prefix.as_deref().unwrap_or(default);
    match Backend::of(database) {
        Backend::Postgres => {
            let schema = database.schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
            (format!("in schema {schema:?}"), "database.schema is")
        }
        Backend::Mysql => (
            format!("with the prefix {:?}", prefix(posthaste_mysql::DEFAULT_PREFIX)),
            "database.url and database.prefix are",
        ),
        Backend::Sqlite => (
            format!("with the prefix {:?}", prefix(posthaste_sqlite::DEFAULT_PREFIX)),
            "database.url and database.prefix are",
        ),
    }
}

/// The catalogue of the configured database.
pub async fn catalogue(database: &Database) -> anyhow::Result<Box<dyn Catalogue>> {
    Ok(match database.url() {
        DatabaseUrl::Postgres(url) => {
            let pool = PgPoolOptions::new().acquire_timeout(database.acquire_timeout);
            Box::new(PostgresCatalogue::new(pool.connect_lazy_with(postgres_options(&url)?)))
        }
        DatabaseUrl::MySql(url) => {
            let pool = MySqlPoolOptions::new().acquire_timeout(database.acquire_timeout);
            Box::new(MySqlCatalogue::new(pool.connect_lazy_with(mysql_options(&url)?)))
        }
        DatabaseUrl::Sqlite(path) if path.exists() => {
            Box::new(SqliteCatalogue::new(SqliteStore::connect(path).await?.pool().clone()))
        }
        DatabaseUrl::Sqlite(path) => return Err(no_file(&path).into()),
    })
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// PostgreSQL
    Postgres,
    /// MySQL and MariaDB
    Mysql,
    /// SQLite
    Sqlite,
}

impl Backend {
    /// That of the configured database.
    pub fn of(database: &Database) -> Self {
        match database.url() {
            DatabaseUrl::Postgres(_) => Self::Postgres,
            DatabaseUrl::MySql(_) => Self::Mysql,
            DatabaseUrl::Sqlite(_) => Self::Sqlite,
        }
    }

    /// What it calls its types and what it can do.
    pub fn database(self) -> table::Database {
        match self {
            Self::Postgres => table::Database::Postgres,
            Self::Mysql => table::Database::MySql,
            Self::Sqlite => table::Database::Sqlite,
        }
    }
}

/// A store that is there only to be asked for its SQL. It is connected to nothing.
pub async fn detached_store(database: &Database, backend: Option<Backend>) -> anyhow::Result<Arc<dyn Store>> {
    match backend.unwrap_or_else(|| Backend::of(database)) {
        Backend::Postgres => {
            let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new_without_pgpass());
            postgres_store(database, pool)
        }
        Backend::Mysql => {
            let pool = MySqlPoolOptions::new().connect_lazy_with(MySqlConnectOptions::new());
            mysql_store(database, pool)
        }
        Backend::Sqlite => {
            let opened = SqliteStore::connect(":memory:").await?;
            sqlite_store(database, opened.pool().clone())
        }
    }
}

/// Whether the database can be reached. A pool cannot tell: a server that is unavailable, one that is full and a pool
/// that is too small are all "no connection in time" to it.
pub async fn probe(database: &Database) -> anyhow::Result<()> {
    match database.url() {
        DatabaseUrl::Postgres(url) => {
            let options = postgres_options(&url)?;
            let connecting = PgConnection::connect_with(&options);
            let connection = match tokio::time::timeout(database.acquire_timeout, connecting).await {
                Ok(connected) => connected.map_err(posthaste_postgres::store_error)?,
                Err(_) => return Err(no_answer(database).into()),
            };
            // The probe has served its purpose, however it ends.
            let _ = connection.close().await;
            Ok(())
        }
        DatabaseUrl::MySql(url) => {
            let options = mysql_options(&url)?;
            let connecting = MySqlConnection::connect_with(&options);
            let connection = match tokio::time::timeout(database.acquire_timeout, connecting).await {
                Ok(connected) => connected.map_err(posthaste_mysql::store_error)?,
                Err(_) => return Err(no_answer(database).into()),
            };
            let _ = connection.close().await;
            Ok(())
        }
        // A file is never unavailable; opening it has shown that it is there.
        DatabaseUrl::Sqlite(_) => Ok(()),
    }
}

/// Whether the database may be written. PostgreSQL says so itself; a SQLite file that may only be read serves a relay
/// well until there is a message to claim, which is late for finding out.
pub fn writable(database: &Database) -> Result<(), StoreError> {
    match database.url() {
        DatabaseUrl::Sqlite(path) if path.exists() => match OpenOptions::new().append(true).open(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(StoreError {
                kind: StoreErrorKind::ReadOnly,
                message: format!("SQLite: {} cannot be written: {error}", path.display()),
                remedy: Some("make the file and its directory writable for this user"),
                source: None,
            }),
        },
        _ => Ok(()),
    }
}

fn postgres_options(url: &str) -> anyhow::Result<PgConnectOptions> {
    PgConnectOptions::from_str(url)
        .map(quietly)
        .context("database.url: not an address of PostgreSQL; write postgres://user:password@host:5432/database")
}

fn mysql_options(url: &str) -> anyhow::Result<MySqlConnectOptions> {
    MySqlConnectOptions::from_str(url)
        .map(quietly)
        .context("database.url: not an address of MySQL; write mysql://user:password@host:3306/database")
}

/// A statement that takes longer than this is logged.
const SLOW_STATEMENT: Duration = Duration::from_secs(1);

/// The driver warns of slow statements with their whole text, every time. What an operator can do something about is in the
/// relay's own lines and metrics.
fn quietly<O: ConnectOptions>(options: O) -> O {
    options.log_slow_statements(LevelFilter::Debug, SLOW_STATEMENT)
}

fn no_file(path: &Path) -> StoreError {
    StoreError {
        kind: StoreErrorKind::SchemaMissing,
        message: format!("SQLite: there is no file {}", path.display()),
        remedy: Some(
            "go to its directory, or name it by database.url (--database-url); `posthaste migrate up` creates a new one",
        ),
        source: None,
    }
}

fn no_answer(database: &Database) -> StoreError {
    StoreError {
        kind: StoreErrorKind::Unavailable,
        message: format!(
            "{} did not answer within {}",
            database.url(),
            Readable(database.acquire_timeout)
        ),
        remedy: Some("check host, port and firewall, or raise database.acquire_timeout"),
        source: None,
    }
}

/// The configured publisher, or all of them behind their routes. Nothing is connected to yet, so that a relay may start
/// before its broker.
pub fn publisher(config: &Config) -> anyhow::Result<Arc<dyn Publisher>> {
    let context = config.publisher_context();
    let mut built = Vec::new();
    for named in config.publishers()? {
        let publisher = named.config.clone().build(&context);
        let publisher = publisher
            .map_err(|invalid| anyhow!("{} = {}: {}", named.field_of(&invalid), invalid.value, invalid.remedy))?;
        built.push((named.name, publisher));
    }
    if config.routes.is_empty() && built.len() == 1 {
        return Ok(built.remove(0).1);
    }
    Ok(Arc::new(Routed::new(built, config.routes.clone())?))
}

/// Where dead letters go that the database does not take.
pub fn safety_net(config: &Config) -> anyhow::Result<SafetyNet> {
    let mut net = SafetyNet::new();
    if let Some(spool) = config.safety_net.spool() {
        net = net.file(spool);
    }
    if let Some(webhook) = alerts(config)? {
        net = net.alerts(webhook, config.safety_net.alert.policy());
    }
    Ok(net)
}

/// Who is told of those that no place takes.
pub fn alerts(config: &Config) -> anyhow::Result<Option<Arc<dyn AlertSink>>> {
    let alert = &config.safety_net.alert;
    let Some(url) = alert.url.clone() else {
        return Ok(None);
    };
    let webhook = WebhookAlerts::new(url, alert.format).map_err(|invalid| {
        anyhow!(
            "safety_net.alert.{} = {}: {}",
            invalid.field,
            invalid.value,
            invalid.remedy
        )
    })?;
    Ok(Some(Arc::new(webhook)))
}

/// Lets the threads of client libraries end, so that the process ends with its own exit code.
pub fn join_client_threads() {
    #[cfg(feature = "kafka")]
    posthaste_publishers::kafka::wait_for_threads(std::time::Duration::from_secs(5));
}
