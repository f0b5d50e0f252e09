//! The path of a record: received from the source into its lane, attempted until it is settled, and then committed.

mod attempt;
mod committer;
mod engine;
mod lane;
mod lanes;
mod poll;
mod process_span;
mod progress;
mod runtime;
mod signal;
mod worker;

pub(crate) use self::engine::Engine;
pub(crate) use self::runtime::run;
