//! Existing tables, served as they stand.

mod call_order;
mod injection;
mod logistics;
mod long_ids;
mod order_service;
mod place;
mod plans;
mod refusals;
mod refused_verdicts;
mod row_locks;
mod sql;
mod stalled;
mod unseen;
mod usage;
