//! The command as a user has it: the real binary, on SQLite files, PostgreSQL and MariaDB.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod config;
mod ddl_fixes;
mod dead;
mod dead_connections;
mod demo;
#[cfg(feature = "kafka")]
mod dlq;
mod enqueue;
mod failures;
mod fleet;
#[cfg(feature = "kafka")]
mod kafka_run;
mod listener;
mod lists;
mod log;
mod log_dead;
mod log_layout;
mod log_move;
mod log_move_sqlite;
mod logs;
mod manners;
mod maps;
mod metrics;
mod migrate;
mod moved;
mod notify;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "kafka")]
#[path = "../../../posthaste-kafka/tests/support/patient_admin.rs"]
mod patient_admin;
mod pooler;
mod probes;
mod refused_verdicts;
mod run;
mod safety_net;
mod spool_log;
mod sql;
mod standstill;
mod status;
#[cfg(target_os = "linux")]
mod systemd;
#[cfg(feature = "kafka")]
mod topics;
