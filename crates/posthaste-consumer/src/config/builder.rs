//! Settings one by one, from the defaults on.

use std::time::Duration;

use posthaste_core::RetryPolicy;
use posthaste_kafka::Connection;

use super::settings::{Assignment, ConsumerConfig, OffsetReset, Tombstones, TooLarge, Unhandled};

macro_rules! builder {
    ($($field:ident: $type:ty),* $(,)?) => {
        impl ConsumerConfig {
            $(
                #[doc = concat!("With another [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

builder! {
    connection: Connection,
    max_poll_records: u32,
    queue_size: u32,
    prefetch_bytes: u64,
    session_timeout: Duration,
    heartbeat_interval: Duration,
    max_poll_interval: Duration,
    auto_offset_reset: OffsetReset,
    assignment: Assignment,
    retry: RetryPolicy,
    handler_timeout: Duration,
    inbox_timeout: Duration,
    unhandled: Unhandled,
    tombstones: Tombstones,
    too_large: TooLarge,
    revoke_grace: Duration,
    shutdown_grace: Duration,
    inbox_retention: Duration,
    janitor_interval: Duration,
}

impl ConsumerConfig {
    /// With another [`group`](Self#structfield.group).
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// With other [`topics`](Self#structfield.topics).
    #[must_use]
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics = topics.into_iter().map(Into::into).collect();
        self
    }
}
