//! Private servers for tests, benchmarks and examples.
//!
//! A server started here listens on a free loopback port, keeps everything it writes in a directory of its own, and
//! ends with the value that owns it, also when the owning process is killed. It never touches a server that was
//! already on the machine.
//!
//! ```no_run
//! use posthaste_servers::{PostgresServer, StopMode};
//!
//! let server = PostgresServer::start("target/servers".as_ref())?;
//! println!("connect to {}", server.url());
//!
//! server.stop(StopMode::Immediate)?; // as a crash would
//! server.start_again()?; // on the same port, with the same data
//! # Ok::<(), posthaste_servers::Error>(())
//! ```
//!
//! Kafka is a whole cluster, whose brokers can be ended and started again one by one:
//!
//! ```no_run
//! use posthaste_servers::{KafkaCluster, KafkaOptions};
//!
//! let options = KafkaOptions { tls: true, ..KafkaOptions::default() };
//! let cluster = KafkaCluster::start_with("target/servers".as_ref(), &options)?;
//! println!("connect to {}", cluster.bootstrap());
//!
//! cluster.kill(0)?; // two of three are enough
//! cluster.start_again(0)?;
//! # Ok::<(), posthaste_servers::Error>(())
//! ```

mod account;
mod error;
mod guard;
mod home;
mod kafka;
mod mariadb;
mod mysql;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod prometheus;
mod redis;
#[cfg(test)]
mod test_setup;

pub use error::Error;
pub use kafka::{KafkaCluster, KafkaJars, KafkaOptions};
pub use mariadb::{MariaDbBinaries, MariaDbOptions, MariaDbServer};
pub use mysql::{MySqlServer, MySqlTree};
pub use pgbouncer::{PgBouncer, PoolMode};
pub use postgres::{PostgresBinaries, PostgresOptions, PostgresServer, StopMode};
pub use prometheus::PrometheusServer;
pub use redis::RedisServer;

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
