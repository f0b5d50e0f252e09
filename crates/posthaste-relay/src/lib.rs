//! The relay engine.
pub mod config;
