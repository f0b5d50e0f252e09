//! The servers that tests and developers use, all alike.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::Command,
};

use posthaste_servers::{
    KafkaCluster, KafkaJars, MariaDbBinaries, MariaDbServer, MySqlServer, MySqlTree, PostgresBinaries, PostgresOptions,
    PostgresServer, RedisServer,
};

use crate::{apt, kafka, mysql, postgres18, process, workspace};

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Postgres,
    #[value(name = "mariadb")]
    MariaDb,
    Kafka,
    Redis,
    #[value(name = "mysql")]
    MySql,
    #[value(name = "postgres-18")]
    Postgres18,
}

/// One that runs.
#[derive(Debug)]
pub(crate) enum Server {
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
    Kafka(KafkaCluster),
    Redis(RedisServer),
    MySql(MySqlServer),
    Postgres18(PostgresServer),
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Postgres,
        Self::MariaDb,
        Self::Kafka,
        Self::Redis,
        Self::MySql,
        Self::Postgres18,
    ];

    /// Those that all tests are run on. The others stand in for one of them, for some tests, in a second run.
    pub(crate) const FIRST: [Self; 4] = [Self::Postgres, Self::MariaDb, Self::Kafka, Self::Redis];

    /// What users read.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::Kafka => "Apache Kafka (three brokers)",
            Self::Redis => "Redis",
            Self::MySql => "MySQL",
            Self::Postgres18 => "PostgreSQL 18",
        }
    }

    /// What tests and the command line call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::Kafka => "kafka",
            Self::Redis => "redis",
            Self::MySql => "mysql",
            Self::Postgres18 => "postgres-18",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Starts one in a directory below target/xtask. Installs what the machine lacks.
    pub(crate) fn start(self, parent: &str) -> anyhow::Result<Server> {
        let parent = workspace::scratch(parent);
        Ok(match self {
            Self::Postgres => {
                install_postgres()?;
                Server::Postgres(PostgresServer::start(&parent)?)
            }
            Self::MariaDb => {
                install_mariadb()?;
                Server::MariaDb(MariaDbServer::start(&parent)?)
            }
            Self::Kafka => {
                kafka::jars()?;
                Server::Kafka(KafkaCluster::start(&parent)?)
            }
            Self::Redis => {
                if !RedisServer::is_installed() && env::var_os(RedisServer::VARIABLE).is_none() {
                    apt::install(&["redis-server"])?;
                }
                Server::Redis(RedisServer::start(&parent)?)
            }
            Self::MySql => {
                mysql::provide()?;
                Server::MySql(MySqlServer::start(&parent)?)
            }
            Self::Postgres18 => {
                let options = PostgresOptions {
                    binaries: Some(postgres18::provide()?),
                    ..PostgresOptions::default()
                };
                Server::Postgres18(PostgresServer::start_with(&parent, &options)?)
            }
        })
    }

    /// Becomes the owner of one that was left running.
    pub(crate) fn attach(self, home: &Path) -> posthaste_servers::Result<Server> {
        Ok(match self {
            Self::Postgres => Server::Postgres(PostgresServer::attach(home)?),
            Self::MariaDb => Server::MariaDb(MariaDbServer::attach(home)?),
            Self::Kafka => Server::Kafka(KafkaCluster::attach(home)?),
            Self::Redis => Server::Redis(RedisServer::attach(home)?),
            Self::MySql => Server::MySql(MySqlServer::attach(home)?),
            Self::Postgres18 => Server::Postgres18(PostgresServer::attach(home)?),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

impl Server {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Postgres(_) => Kind::Postgres,
            Self::MariaDb(_) => Kind::MariaDb,
            Self::Kafka(_) => Kind::Kafka,
            Self::Redis(_) => Kind::Redis,
            Self::MySql(_) => Kind::MySql,
            Self::Postgres18(_) => Kind::Postgres18,
        }
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Postgres(server) | Self::Postgres18(server) => server.url(),
            Self::MariaDb(server) => server.url(),
            Self::Kafka(cluster) => cluster.bootstrap(),
            Self::Redis(server) => server.url(),
            Self::MySql(server) => server.url(),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        match self {
            Self::Postgres(server) | Self::Postgres18(server) => server.is_running(),
            Self::MariaDb(server) => server.is_running(),
            Self::Kafka(cluster) => cluster.is_running(),
            Self::Redis(server) => server.is_running(),
            Self::MySql(server) => server.is_running(),
        }
    }

    pub(crate) fn detach(self) -> PathBuf {
        match self {
            Self::Postgres(server) | Self::Postgres18(server) => server.detach(),
            Self::MariaDb(server) => server.detach(),
            Self::Kafka(cluster) => cluster.detach(),
            Self::Redis(server) => server.detach(),
            Self::MySql(server) => server.detach(),
        }
    }

    /// The environment in which tests find the server, and the programs to start others like it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let address = self.address();
        match self {
            Self::Postgres(server) | Self::Postgres18(server) => vec![
                ("POSTHASTE_TEST_POSTGRES_URL", address),
                (
                    PostgresBinaries::VARIABLE,
                    server.binaries().dir().display().to_string(),
                ),
            ],
            Self::MariaDb(server) => vec![
                ("POSTHASTE_TEST_MYSQL_URL", address),
                (MariaDbBinaries::VARIABLE, server.binaries().variable()),
            ],
            Self::Kafka(_) => {
                let jars = KafkaJars::find().map(|jars| jars.dir().display().to_string());
                let libs = jars.ok().map(|dir| (KafkaJars::VARIABLE, dir));
                [("POSTHASTE_TEST_KAFKA", address)].into_iter().chain(libs).collect()
            }
            Self::Redis(_) => vec![("POSTHASTE_TEST_REDIS_URL", address)],
            Self::MySql(server) => vec![
                ("POSTHASTE_TEST_MYSQL_URL", address),
                (MySqlTree::VARIABLE, server.binaries().root().display().to_string()),
            ],
        }
    }
}

fn install_postgres() -> anyhow::Result<()> {
    if PostgresBinaries::find().is_err() && env::var_os(PostgresBinaries::VARIABLE).is_none() {
        apt::install(&["postgresql"])?;
    }
    let psql = PostgresBinaries::find()?.program("psql");
    if !psql.is_file() && !process::succeeds(Command::new("psql").arg("--version")) {
        apt::install(&["postgresql-client"])?;
    }
    Ok(())
}

fn install_mariadb() -> anyhow::Result<()> {
    if MariaDbBinaries::find().is_err() && env::var_os(MariaDbBinaries::VARIABLE).is_none() {
        apt::install(&["mariadb-server"])?;
    }
    let client = MariaDbBinaries::find()?.program("mariadb");
    if !process::succeeds(Command::new(client).arg("--version")) {
        apt::install(&["mariadb-client"])?;
    }
    Ok(())
}
