//! A donation service on MySQL or MariaDB whose outbox table was there before Posthaste, and stays as it is.

pub mod donate;
pub mod relay;
pub mod setup;
