//! The settings, from defaults, file, environment and flags, each overriding the one before.

mod database_url;
#[cfg(feature = "kafka")]
mod kafka;
mod line;
mod load;
mod log;
mod lookup;
mod map;
mod otel;
mod overlay;
mod problem;
mod publisher;
mod safety_net;
mod secret;
mod service_link;
mod syntax;
mod variable;

use std::net::SocketAddr;
use std::time::Duration;

use figment::value::Value;
use posthaste_core::validate::{Limits, TypeNameRule};
use posthaste_core::{OutboxOptions, RetryPolicy};
use posthaste_publishers::{PublisherContext, Route};
use posthaste_relay::RelayConfig;
use posthaste_sql::TableMap;
use posthaste_sql::table::Layout;
use serde::Deserialize;

pub use self::log::LogSettings;
pub use database_url::DatabaseUrl;
pub use load::{Origin, load};
pub use map::NamedMap;
pub use otel::OtelConfig;
use problem::Problem;
pub use publisher::NamedPublisher;
pub use safety_net::SafetyNetConfig;

/// Everything that can be set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the outbox is.
    pub database: Database,
    /// How messages are delivered.
    pub relay: RelayConfig,
    /// Where they go, if to one publisher. Read with `publishers`.
    publisher: Option<Value>,
    /// Where they go, if to several.
    #[serde(rename = "publishers")]
    several: Option<Value>,
    /// Which messages go to which of `publishers`, tried in order; the last is for all that are left.
    pub routes: Vec<Route>,
    #[serde(skip)]
    named: Vec<NamedPublisher>,
    /// What is wrong with `publisher`, `publishers` or `routes`.
    #[serde(skip)]
    unusable: Option<Problem>,
    /// Which Kafka cluster, and which topics it should have.
    #[cfg(feature = "kafka")]
    pub kafka: kafka::KafkaConfig,
    #[cfg(not(feature = "kafka"))]
    kafka: Option<figment::value::Value>,
    /// How `enqueue` writes them.
    pub outbox: OutboxConfig,
    /// Where dead letters go that the database does not take.
    pub safety_net: SafetyNetConfig,
    /// Where Prometheus finds the figures.
    pub metrics: MetricsConfig,
    /// Where traces and metrics are sent by OTLP.
    pub otel: OtelConfig,
    /// What is written to standard error.
    pub log: LogConfig,
}

impl Config {
    /// The publishers, one at least. What is delivered is marked as delivered, so a database that was named needs a publisher
    /// that was named: standard output would swallow its messages for good. The default database has standard output.
    pub fn publishers(&self) -> Result<Vec<NamedPublisher>, Problem> {
        if let Some(problem) = &self.unusable {
            return Err(problem.clone());
        }
        if !self.named.is_empty() {
            return Ok(self.named.clone());
        }
        if self.database.is_named() {
            return Err(Problem::new(format!(
                "publisher.kind: is missing; messages of {} would count as delivered, so it has to be said where they go: \
                 set publisher.kind = \"kafka\", \"http\", \"file\" or \"log\", or --set publisher.kind=stdout to print them",
                self.database.url()
            )));
        }
        Ok(vec![NamedPublisher::stdout()])
    }

    /// What publishers take from the other settings.
    pub fn publisher_context(&self) -> PublisherContext {
        #[cfg_attr(not(feature = "kafka"), expect(unused_mut, reason = "only Kafka adds to it"))]
        let mut context = PublisherContext::new(self.relay.publish_timeout);
        #[cfg(feature = "kafka")]
        {
            context.kafka = self.kafka.settings();
        }
        context
    }
}

/// Where the outbox is.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    url: Option<DatabaseUrl>,
    /// The table map: the name of one that ships, or the path of a TOML file. Defaults to Posthaste's own tables.
    pub(super) map: Option<String>,
    #[serde(skip)]
    found: Option<NamedMap>,
    #[serde(skip)]
    max_attempts: u32,
    /// How rows live in Posthaste's own tables: `queue`, or `log` on PostgreSQL. Defaults to `queue`.
    pub layout: Layout,
    /// The schema that holds the tables. PostgreSQL only. Defaults to `posthaste`, and with a map to where unqualified names
    /// are looked for.
    pub schema: Option<String>,
    /// What the tables' names begin with. SQLite and MySQL only. Defaults to `posthaste_`.
    pub prefix: Option<String>,
    /// Most connections open at a time. Defaults to 8.
    pub max_connections: u32,
    /// What a connection is: `session`, `transaction` behind a pooler such as `PgBouncer` in transaction mode, or `detect`.
    /// PostgreSQL only. Defaults to `detect`.
    pub pooling: PoolingMode,
    /// A way to the server past such a pooler, for wake-ups and for tables of the log layout, which need a session of their
    /// own. PostgreSQL only. Defaults to none: then wake-ups are left to polling.
    pub direct_url: Option<DatabaseUrl>,
    /// How long to wait for a connection. Defaults to 5 s.
    #[serde(with = "humantime_serde")]
    pub acquire_timeout: Duration,
    /// Segments of Posthaste's own log. PostgreSQL only.
    pub log: LogSettings,
    auto_migrate: Option<bool>,
}

/// What a connection to PostgreSQL is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolingMode {
    /// To be found out.
    #[default]
    Detect,
    /// One session of the server.
    Session,
    /// Another session for each transaction.
    Transaction,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: None,
            map: None,
            found: None,
            max_attempts: RetryPolicy::default().max_attempts,
            layout: Layout::Queue,
            schema: None,
            prefix: None,
            max_connections: 8,
            pooling: PoolingMode::default(),
            direct_url: None,
            acquire_timeout: Duration::from_secs(5),
            log: LogSettings::default(),
            auto_migrate: None,
        }
    }
}

impl Database {
    /// The database. Defaults to the SQLite file `posthaste.db`.
    pub fn url(&self) -> DatabaseUrl {
        self.url.clone().unwrap_or_default()
    }

    /// Whether it was said which database, or which tables in it.
    fn is_named(&self) -> bool {
        self.url.is_some() || self.found.is_some()
    }

    /// The first setting that only a database behind a pooler can have, if one is set.
    pub(super) fn pooler_setting(&self) -> Option<&'static str> {
        let pooling = (self.pooling != PoolingMode::Detect).then_some("database.pooling");
        pooling.or(self.direct_url.is_some().then_some("database.direct_url"))
    }

    /// Whether missing tables are created. Defaults to true for the default file, so that a first run
    /// just works, and to false for a database that was chosen.
    pub fn auto_migrate(&self) -> bool {
        self.found.is_none() && self.auto_migrate.unwrap_or(self.url.is_none())
    }

    /// The map of existing tables; none for Posthaste's own.
    pub fn table_map(&self) -> Option<&TableMap> {
        self.found.as_ref().map(|found| &found.map)
    }

    /// The command that compares the tables with their map, wherever the map was named.
    pub fn check_command(&self) -> String {
        match &self.found {
            Some(found) => format!("posthaste maps check --map {}", found.argument),
            None => "posthaste maps check".to_owned(),
        }
    }

    /// The command that prints the tables of the map, wherever it was named.
    pub fn ddl_command(&self) -> String {
        let argument = self.found.as_ref().map_or("FILE", |found| found.argument.as_str());
        format!("posthaste maps show {argument} --ddl")
    }

    /// After how many attempts a relay gives up, which a log must know to tell which of its rows are dead.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The same database with another map, which a command was given.
    pub fn with_map(mut self, found: NamedMap) -> Self {
        self.found = Some(found);
        self
    }
}

/// How `enqueue` writes messages.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutboxConfig {
    /// See [`OutboxOptions::namespace`].
    pub namespace: String,
    /// See [`OutboxOptions::source`].
    pub source: Option<String>,
    /// See [`OutboxOptions::limits`].
    pub limits: Limits,
    /// See [`OutboxOptions::type_names`].
    pub type_names: TypeNameRule,
    /// See [`OutboxOptions::dedupe_window`].
    #[serde(with = "humantime_serde")]
    pub dedupe_window: Duration,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        let OutboxOptions {
            namespace,
            source,
            limits,
            type_names,
            dedupe_window,
            ..
        } = OutboxOptions::default();
        Self {
            namespace,
            source,
            limits,
            type_names,
            dedupe_window,
        }
    }
}

impl OutboxConfig {
    /// The same, as the stores take it.
    pub fn options(&self) -> OutboxOptions {
        let mut options = OutboxOptions::new()
            .namespace(&self.namespace)
            .limits(self.limits)
            .type_names(self.type_names)
            .dedupe_window(self.dedupe_window);
        options.source.clone_from(&self.source);
        options
    }
}

/// Where Prometheus finds the figures.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// The address to listen on. Defaults to none.
    pub listen: Option<SocketAddr>,
    /// Whether that address may be reachable from other machines; anybody who can reach it can read it. Defaults to
    /// false.
    pub allow_remote: bool,
}

/// What is written to standard error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How a line looks. Defaults to `auto`.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,sqlx=debug`. Defaults to `info`.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::Auto,
            level: "info".to_owned(),
        }
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// For people.
    Text,
    /// For programs: one JSON object per line.
    Json,
}
