//! The in-memory store and the publishers for tests, as applications use them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod application;
mod publishers;
