//! What runs beside the way of a message: renewing, cleaning up, announcing, watching, counting and telling.

pub(crate) mod announce;
pub(crate) mod election;
pub(crate) mod failure_log;
pub(crate) mod health;
pub(crate) mod instrument;
pub(crate) mod janitor;
pub(crate) mod letters;
pub(crate) mod probe;
pub(crate) mod pulse;
pub(crate) mod reclaim_logger;
pub(crate) mod retry_logger;
pub(crate) mod sampler;
pub(crate) mod shards;
pub(crate) mod start;
pub(crate) mod supervisor;
pub(crate) mod totals;
pub(crate) mod undelivered;
pub(crate) mod waiting;
pub(crate) mod wake;
pub(crate) mod watch;
