//! Which database and which publisher: the only place that names them, besides the demonstration, which is an
//! application of its own.

use std::fs::OpenOptions;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use posthaste_core::store::{Store, StoreErrorKind};
use posthaste_core::{PublishError, Publisher, StoreError};
use posthaste_postgres::{DEFAULT_SCHEMA, PostgresStore};
#[cfg(feature = "kafka")]
use posthaste_publishers::KafkaPublisher;
use posthaste_publishers::{FileOptions, FilePublisher, LogPublisher, Stdout, WebhookPublisher};
use posthaste_sqlite::{DEFAULT_PREFIX, SqliteStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Connection, PgConnection};

use crate::config::{Config, Database, DatabaseUrl, PublisherKind};

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

/// The configured store. PostgreSQL is connected to when it is first used, so that a relay may start before it.
pub async fn store(database: &Database, if_missing: IfMissing) -> anyhow::Result<Arc<dyn Store>> {
    match database.url() {
        DatabaseUrl::Postgres(url) => {
            let pool = PgPoolOptions::new()
                .max_connections(database.max_connections)
                .acquire_timeout(database.acquire_timeout)
                .connect_lazy_with(postgres_options(&url)?);
            Ok(Arc::new(postgres_store(database, pool)?))
        }
        DatabaseUrl::Sqlite(path) => {
            let path = match if_missing {
                _ if path.exists() => path.as_path(),
                IfMissing::Create => path.as_path(),
                IfMissing::Refuse => return Err(no_file(&path).into()),
                IfMissing::Pretend => Path::new(":memory:"),
            };
            let opened = SqliteStore::connect(path).await?;
            if path == Path::new(":memory:") {
                return Ok(Arc::new(sqlite_store(database, opened.pool().clone())?));
            }
            // The store knows best how to open a file; how many connections and how patient is for the settings to say.
            let pool = SqlitePoolOptions::new()
                .max_connections(database.max_connections)
                .acquire_timeout(database.acquire_timeout)
                .connect_lazy_with((*opened.pool().connect_options()).clone());
            opened.pool().close().await;
            Ok(Arc::new(sqlite_store(database, pool)?))
        }
    }
}

fn postgres_store(database: &Database, pool: sqlx::PgPool) -> anyhow::Result<PostgresStore> {
    let schema = database.schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
    PostgresStore::in_schema(pool, schema).context("database.schema")
}

fn sqlite_store(database: &Database, pool: sqlx::SqlitePool) -> anyhow::Result<SqliteStore> {
    let prefix = database.prefix.as_deref().unwrap_or(DEFAULT_PREFIX);
    SqliteStore::with_prefix(pool, prefix).context("database.prefix")
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// PostgreSQL
    Postgres,
    /// SQLite
    Sqlite,
}

/// A store that is there only to be asked for its SQL. It is connected to nothing.
pub async fn detached_store(database: &Database, backend: Option<Backend>) -> anyhow::Result<Arc<dyn Store>> {
    let backend = backend.unwrap_or(match database.url() {
        DatabaseUrl::Postgres(_) => Backend::Postgres,
        DatabaseUrl::Sqlite(_) => Backend::Sqlite,
    });
    match backend {
        Backend::Postgres => {
            let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new_without_pgpass());
            Ok(Arc::new(postgres_store(database, pool)?))
        }
        Backend::Sqlite => {
            let opened = SqliteStore::connect(":memory:").await?;
            Ok(Arc::new(sqlite_store(database, opened.pool().clone())?))
        }
    }
}

/// Whether the database can be reached. A pool cannot tell: a server that is away, one that is full and a pool that is
/// too small are all "no connection in time" to it.
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
        // A file is never away; opening it has shown that it is there.
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
        .context("database.url: not an address of PostgreSQL; write postgres://user:password@host:5432/database")
}

fn no_file(path: &Path) -> StoreError {
    StoreError {
        kind: StoreErrorKind::SchemaMissing,
        message: format!("SQLite: there is no file {}", path.display()),
        remedy: Some("create it with `posthaste migrate up`, or correct database.url"),
        source: None,
    }
}

fn no_answer(database: &Database) -> StoreError {
    StoreError {
        kind: StoreErrorKind::Unavailable,
        message: format!(
            "{} did not answer within {:?}",
            database.url(),
            database.acquire_timeout
        ),
        remedy: Some("check host, port and firewall, or raise database.acquire_timeout"),
        source: None,
    }
}

/// The configured publisher.
pub struct Outlet {
    /// To hand to a relay.
    pub publisher: Arc<dyn Publisher>,
    way: Way,
}

/// How to find out whether messages could go out.
enum Way {
    /// By trying.
    Open,
    Log(LogPublisher),
    #[cfg(feature = "kafka")]
    Kafka(Arc<KafkaPublisher>),
    Webhook(WebhookPublisher),
}

impl Outlet {
    fn new(publisher: impl Publisher, way: Way) -> Self {
        Self {
            publisher: Arc::new(publisher),
            way,
        }
    }

    /// Whether messages could go out now: what was found, or why not.
    pub async fn probe(&self) -> Result<String, PublishError> {
        let name = self.publisher.name();
        match &self.way {
            Way::Open => Ok(name.to_owned()),
            Way::Log(log) => log.check().map(|()| name.to_owned()),
            Way::Webhook(webhook) => Ok(format!("{name}, {}", webhook.probe().await?)),
            #[cfg(feature = "kafka")]
            Way::Kafka(kafka) => {
                let cluster = kafka.cluster().await?;
                let (count, brokers) = (cluster.brokers.len(), cluster.brokers.join(", "));
                let s = if count == 1 { "" } else { "s" };
                let id = cluster.id.unwrap_or_else(|| "unknown".to_owned());
                Ok(format!("{name}, {count} broker{s}: {brokers} (cluster {id})"))
            }
        }
    }
}

/// The configured publisher. Nothing is connected to yet, so that a relay may start before its broker.
pub fn publisher(config: &Config) -> anyhow::Result<Outlet> {
    let settings = &config.publisher;
    Ok(match settings.kind {
        PublisherKind::Stdout => Outlet::new(Stdout::new(), Way::Open),
        PublisherKind::File => {
            let path = settings.path.as_ref().context("publisher.path: is missing")?;
            let options = FileOptions {
                fsync: settings.fsync.unwrap_or(true),
                ..FileOptions::new(path)
            };
            Outlet::new(FilePublisher::open(options).context("publisher.path")?, Way::Open)
        }
        PublisherKind::Log => {
            let log = LogPublisher::new(settings.log());
            Outlet::new(log.clone(), Way::Log(log))
        }
        PublisherKind::Webhook => {
            let options = settings.webhook(config.relay.publish_timeout);
            let options = options.context("publisher.url: is missing")?;
            let webhook = WebhookPublisher::new(options).context("publisher")?;
            Outlet::new(webhook.clone(), Way::Webhook(webhook))
        }
        #[cfg(feature = "kafka")]
        PublisherKind::Kafka => {
            let kafka = Arc::new(KafkaPublisher::new(config.kafka_options()).context("kafka")?);
            Outlet::new(Arc::clone(&kafka), Way::Kafka(kafka))
        }
        #[cfg(not(feature = "kafka"))]
        PublisherKind::Kafka => anyhow::bail!("publisher.kind: this program was built without Kafka"),
    })
}

/// Lets the threads of client libraries end, so that the process ends with its own exit code.
pub fn farewell() {
    #[cfg(feature = "kafka")]
    posthaste_publishers::kafka::wait_for_threads(std::time::Duration::from_secs(5));
}
