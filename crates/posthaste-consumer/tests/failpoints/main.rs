//! Processes that die and brokers that do not answer, where the failpoints say so. They are the whole process's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod crash;
mod first_position;
