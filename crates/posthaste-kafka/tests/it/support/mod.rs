//! The real cluster that all tests share.

use posthaste_kafka::Connection;

/// The shared cluster, unless the test runner said that this machine has none.
pub fn cluster() -> Option<Connection> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "kafka") {
        eprintln!("not tested: there is no Kafka on this machine");
        return None;
    }
    let brokers = std::env::var("POSTHASTE_TEST_KAFKA")
        .ok()
        .filter(|brokers| !brokers.is_empty());
    let brokers = brokers.expect(
        "POSTHASTE_TEST_KAFKA names no brokers: run these tests with `cargo xtask test`, or start them with `cargo xtask \
         services up`",
    );
    Some(Connection::to(&brokers))
}

/// A name that nobody else uses.
pub fn unique(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::new_v4().simple())
}
