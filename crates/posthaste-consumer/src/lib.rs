//! Kafka consumer over the Posthaste inbox.
