//! An order service whose outbox was there before Posthaste.

pub mod orders;
pub mod relay;
pub mod setup;
