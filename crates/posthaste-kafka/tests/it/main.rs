//! Topics and dead-letter topics, on a real cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod dlq;
#[path = "../support/patient_admin.rs"]
mod patient_admin;
mod topics;
