//! Kafka as a source of records. Nothing outside of this folder knows its client library.

mod commit;
mod context;
mod dead_letters;
mod first_position;
mod initial_partitions;
mod loss;
mod offsets;
mod partitions;
mod properties;
mod rebalance;
mod record;
mod retention;
mod source;
mod unsettled;

pub(crate) use self::retention::watch;
pub use self::retention::{RetentionGap, retention_gaps};
pub(crate) use self::source::KafkaSource;
