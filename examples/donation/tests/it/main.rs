//! The service and its relay, on a real MariaDB.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod drive;
mod relay;
mod write_path;
