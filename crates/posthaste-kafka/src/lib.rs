//! What both ends of Kafka share: connection, record format, topics and dead-letter topics.
