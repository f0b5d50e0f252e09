//! Apache Kafka, by librdkafka.
//!
//! A batch is handed over in one go and answered by delivery callbacks; there is no future per message. How the order
//! of a lane holds although its messages are on their way side by side is told in `docs/adr/0004-kafka-order.md`.

mod acks;
mod admin;
mod answer_watch;
mod batch;
mod client;
mod context;
mod hand_over;
mod in_flight;
mod lanes;
mod learn;
mod options;
mod polled;
mod producer;
mod publication;
mod publisher;
mod requests;
mod role;
mod route;
mod size;
mod topics;

pub use self::client::Cluster;
pub use self::options::{InvalidKafkaOptions, KafkaOptions, RecordTimestamp, UnknownTopic};
pub use self::producer::wait_for_threads;
pub use self::publisher::KafkaPublisher;
