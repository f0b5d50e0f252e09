//! The consumer group that replays a dead-letter topic.

/// The consumer group whose committed offset is how far a dead-letter topic was replayed.
pub fn group_of(topic: &str) -> String {
    format!("posthaste-dlq-replay.{topic}")
}
