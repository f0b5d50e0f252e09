//! The command as a user has it: the real binary, on SQLite files and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod config;
mod dead;
mod demo;
mod enqueue;
mod failures;
mod migrate;
mod run;
mod status;
