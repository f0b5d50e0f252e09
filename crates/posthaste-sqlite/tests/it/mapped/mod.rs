//! Existing outbox tables: described by a map alone, served by the same code as Posthaste's own.

mod donation;
mod enqueueing;
mod guide;
mod injection;
mod long_ids;
mod order;
mod refused_verdicts;
mod sql;
mod tables;
mod unsupported;
mod unusual;
mod usage;
