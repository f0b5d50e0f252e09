//! The store on a real MariaDB or MySQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod backlog;
mod call_order;
mod catalogue;
mod conformance;
mod contention;
mod donation;
mod enqueue;
mod injection;
mod languages;
mod long_ids;
mod odd_rows;
mod plans;
mod prepare;
mod row_locks;
mod statements;
mod tables;
mod unsigned;
mod usage;
mod verdicts;
