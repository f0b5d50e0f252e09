//! The store on files and in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod catalogue;
mod conformance;
mod conformance_in_order;
mod connections;
mod faults;
mod log;
mod log_beside_queue;
mod log_commits;
mod log_conformance;
mod log_crashes;
mod log_delayed;
mod log_draining;
mod log_looks;
mod log_moving;
mod log_standstill;
mod log_upkeep;
mod mapped;
mod odd_rows;
mod plans;
mod prepare;
mod rules;
mod statements;
mod tables;
