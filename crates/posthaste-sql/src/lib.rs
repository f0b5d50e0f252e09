//! How a message and what becomes of it are written into a SQL table.
//!
//! [`posthaste_core`] says what a message is and what happens to it; a store says what its database does differently.
//! What is equal for all databases stands here, without a driver and without a socket: which column plays which role and what
//! a row means ([`table`]), what a verdict writes into a row ([`row_change`]), statements with marked parts ([`template`]) in
//! groups by what a table has ([`statements!`]), statements for any driver ([`mod@enqueue`]), the differences between databases
//! ([`dialect`]), schema migrations ([`migrate`]), savepoints ([`savepoint`]) and the reader of append-only tables ([`log`]).

mod closest;
pub mod dialect;
pub mod enqueue;
pub mod log;
pub mod migrate;
pub mod row_change;
pub mod savepoint;
mod statements;
pub mod table;
pub mod template;

pub use row_change::RowChange;
pub use table::TableMap;

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
