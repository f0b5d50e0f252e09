//! The command as a user has it: the real binary, on SQLite files, PostgreSQL and MariaDB.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod config;
mod ddl_fixes;
mod dead;
mod demo;
#[cfg(feature = "kafka")]
mod dlq;
mod enqueue;
mod failures;
#[cfg(feature = "kafka")]
mod kafka_run;
mod lists;
mod manners;
mod maps;
mod metrics;
mod migrate;
mod notify;
mod probes;
mod refused_verdicts;
mod run;
mod sql;
mod status;
#[cfg(feature = "kafka")]
mod topics;
