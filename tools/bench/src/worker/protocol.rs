//! What the measuring process and a worker say to each other: lines on the worker's standard input and output.

use serde::{Deserialize, Serialize};

use crate::tally::Arrived;
use crate::workload::Workload;

/// Said by a worker that has sent the rows that warm it up.
pub(crate) const READY: &str = "ready";
/// Said to a worker: begin.
pub(crate) const GO: &str = "go";
/// Said to a worker that serves: end.
pub(crate) const STOP: &str = "stop";

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkOrder {
    pub(crate) arm: String,
    /// The database.
    pub(crate) url: String,
    /// The brokers; without them what is sent is counted and thrown away.
    pub(crate) brokers: Option<String>,
    /// How many requests a bare producer has under way to each of them.
    pub(crate) requests: usize,
    pub(crate) workload: Workload,
    pub(crate) task: Task,
    /// Whether it sends what is there before it says that it is ready. One that takes over from another does not: it
    /// would do the work twice.
    pub(crate) warms_up: bool,
}

/// Until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// Until the rows of the work were answered.
    Drain,
    /// The same beside other workers: until it is told to stop.
    Share,
    /// Until it is told to stop; it notes when each row was acknowledged.
    Serve,
}

/// What a worker has done since it was told to begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    /// When its last row was answered, in microseconds of the system's clock.
    pub(crate) finished_at: u64,
    pub(crate) cpu_seconds: f64,
    /// In bytes, since the worker was started.
    pub(crate) peak_memory: u64,
    /// What arrived, if it was the worker itself that counted.
    pub(crate) arrived: Option<Arrived>,
    /// Rows, and when they were acknowledged, in microseconds of the system's clock.
    pub(crate) acknowledged: Vec<(u32, u64)>,
}
