use std::time::Duration;

use posthaste_kafka::Connection;

use super::*;

fn config() -> ConsumerConfig {
    ConsumerConfig::new(Connection::to("127.0.0.1:9092"), "statistics", ["order-events"])
}

/// What librdkafka itself makes of the settings.
fn effective(config: &ConsumerConfig, property: &str) -> String {
    let native = config.consumer_properties().unwrap().create_native_config().unwrap();
    native.get(property).unwrap()
}

/// Offsets are committed by hand, whatever the settings say; every other default can be overridden, by its field and by
/// the property.
///
/// Proves C12.
#[test]
fn the_defaults_are_in_effect_and_each_can_be_overridden() {
    let defaults = config();
    assert_eq!(defaults.validate(), Ok(()));
    assert_eq!(defaults.max_poll_records, 100);
    let by_field = config()
        .max_poll_records(7)
        .session_timeout(Duration::from_secs(45))
        .heartbeat_interval(Duration::from_secs(3))
        .max_poll_interval(Duration::from_mins(1))
        .auto_offset_reset(OffsetReset::Earliest)
        .assignment(Assignment::CooperativeSticky)
        .prefetch_bytes(1 << 20);
    assert_eq!(by_field.validate(), Ok(()));
    assert_eq!(by_field.max_poll_records, 7);
    for (property, default, field, given) in [
        ("session.timeout.ms", "30000", "45000", "20000"),
        ("heartbeat.interval.ms", "10000", "3000", "2000"),
        ("max.poll.interval.ms", "300000", "60000", "400000"),
        ("auto.offset.reset", "largest", "smallest", "error"),
        (
            "partition.assignment.strategy",
            "range",
            "cooperative-sticky",
            "roundrobin",
        ),
        ("queued.max.messages.kbytes", "4096", "1024", "99"),
    ] {
        assert_eq!(effective(&defaults, property), default, "{property}");
        assert_eq!(effective(&by_field, property), field, "{property}");
        let mut by_property = by_field.clone();
        by_property.connection = by_property.connection.property(property, given);
        assert_eq!(effective(&by_property, property), given, "{property}");
    }
    for property in ["enable.auto.commit", "enable.auto.offset.store"] {
        assert_eq!(effective(&defaults, property), "false", "{property}");
        let mut by_property = config();
        by_property.connection = by_property.connection.property(property, "true");
        let refused = by_property.validate().unwrap_err();
        assert_eq!(refused.field, format!("connection.properties.{property}"));
        assert!(refused.remedy.contains("leave it out"), "{refused}");
    }
}

#[test]
fn settings_that_cannot_work_are_named() {
    let with = |change: fn(&mut ConsumerConfig)| {
        let mut config = config();
        change(&mut config);
        config.validate().unwrap_err().field
    };
    assert_eq!(with(|config| config.group.clear()), "group");
    assert_eq!(with(|config| config.topics.clear()), "topics");
    assert_eq!(with(|config| config.topics.push("^order-.*".into())), "topics");
    assert_eq!(with(|config| config.topics.push("order-events.dlq".into())), "topics");
    assert_eq!(with(|config| config.max_poll_records = 0), "max_poll_records");
    assert_eq!(with(|config| config.queue_size = 0), "queue_size");
    assert_eq!(with(|config| config.retry.max_attempts = 0), "retry.max_attempts");
    assert_eq!(with(|config| config.prefetch_bytes = 0), "prefetch_bytes");
    assert_eq!(
        with(|config| config.inbox_retention = Duration::ZERO),
        "inbox_retention"
    );
    assert_eq!(
        with(|config| config.janitor_interval = Duration::ZERO),
        "janitor_interval"
    );
    assert_eq!(with(|config| config.heartbeat_interval *= 2), "heartbeat_interval");
    assert_eq!(with(|config| config.max_poll_interval /= 20), "max_poll_interval");
    assert_eq!(with(|config| config.revoke_grace *= 30), "revoke_grace");
    assert_eq!(with(|config| config.connection.brokers.clear()), "connection.brokers");
    let group = |config: &mut ConsumerConfig| {
        config.connection.properties.insert("group.id".into(), "x".into());
    };
    assert_eq!(with(group), "connection.properties.group.id");
}

/// A property has the last word, so the checks are made of it.
#[test]
fn checks_are_made_of_what_is_in_effect() {
    let mut config = config();
    config.connection = config.connection.property("session.timeout.ms", "9000");
    assert_eq!(config.validate().unwrap_err().field, "heartbeat_interval");
    config.connection = config.connection.property("heartbeat.interval.ms", "3000");
    assert_eq!(config.validate(), Ok(()));
}

#[test]
fn settings_are_read_from_a_file_and_unknown_ones_refused() {
    let read = |text: &str| serde_json::from_str::<ConsumerConfig>(text);
    let config = read(
        r#"{"connection": {"brokers": ["a:1"]}, "group": "g", "topics": ["t"], "session_timeout": "40s",
            "auto_offset_reset": "earliest", "assignment": "cooperative-sticky", "unhandled": "dead-letter",
            "retry": {"max_attempts": 3, "backoff": {"kind": "schedule", "delays": ["1s"]}}, "inbox_retention": "30days"}"#,
    )
    .unwrap();
    assert_eq!(config.session_timeout, Duration::from_secs(40));
    assert_eq!(config.auto_offset_reset, OffsetReset::Earliest);
    assert_eq!(config.assignment, Assignment::CooperativeSticky);
    assert_eq!(config.unhandled, Unhandled::DeadLetter);
    assert_eq!(config.retry.max_attempts, 3);
    assert_eq!(config.inbox_retention, Duration::from_hours(720));
    let error = read(r#"{"sesion_timeout": "40s"}"#).unwrap_err().to_string();
    assert!(error.contains("sesion_timeout"), "{error}");
}
