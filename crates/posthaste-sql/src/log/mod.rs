//! Reading an append-only log by a cursor, without losing rows that commit late.
//!
//! Ids are taken before commit, so a row may appear below ids that were read long ago. [`Gaps`] remembers the ids that
//! were passed over and closes each of them by proof, never by a timer; [`ClosedGaps`] is the net below it for writers that
//! break its premises. [`Window`] remembers the rows that were read and are not settled, and in which order they may go.
//! [`LogReader`] holds all of them, and says how far everything is settled: that is the cursor to store, so a restart can
//! repeat but never skip. [`ReaderState`] is what it leaves to a successor beyond the cursor, so that a restart repeats no
//! more than what was in flight. [`Suspects`] are the rows that may have killed their reader,
//! [`SuspectedRetries`] those among them that failed before. [`plan_seats`] spreads the shards of a log over those that read it.

mod closed;
mod gaps;
mod lanes;
mod move_plan;
mod policy;
mod ranges;
mod reader;
mod retry_looks;
mod rows;
mod shards;
mod state;
mod suspected_retries;
mod suspects;
mod window;

pub use closed::{ClosedGaps, Probe};
pub use gaps::{Gaps, Holder, Proof};
pub use lanes::Lane;
pub use move_plan::{MovePlan, Unfit};
pub use policy::Policy;
pub use ranges::Ranges;
pub use reader::{LogReader, LogRow, Plan, ReadResult, Risk, Sorted};
pub use retry_looks::RetryLooks;
pub use shards::{SHARD_BITS, Seat, SeatPlan, plan_seats, quota, shard_hash, spread};
pub use state::{InvalidReaderState, ReaderState};
pub use suspected_retries::SuspectedRetries;
pub use suspects::{AHEAD, HandedOut, InvalidHandedOut, Suspects};
pub use window::{Failure, LaneRule, Pass, Rewrite, Standing, Turn, Window};
