mod broker;
mod cluster;
mod jars;
mod listeners;
mod metadata;
mod options;
mod storage;
mod tls;

pub use cluster::KafkaCluster;
pub use jars::KafkaJars;
pub use options::KafkaOptions;
