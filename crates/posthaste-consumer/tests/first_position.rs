//! Brokers that do not say where a group begins.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "failpoints")]

mod support;

use posthaste_consumer::{Consumer, ConsumerConfig, OffsetReset, Once, Received};
use sqlx::PgConnection;
use support::{Running, SOLD, Sale, World, logs};

/// Where a group begins must be known before it reads. As long as the brokers do not say, the consumer joins again, and
/// handles neither what was there before nor less than what came since.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_position_that_cannot_be_settled_is_tried_again() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let points = fail::FailScenario::setup();
    fail::cfg("first_position", "2*return->off").unwrap();
    let config = ConsumerConfig {
        auto_offset_reset: OffsetReset::Latest,
        ..world.config()
    };
    let effects = world.clone();
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| Ok(effects.effect(tx, "a", event.payload.n).await?),
    ));
    world.until_committed(0, 1).await;
    world.send(&world.sale("a", 2), Some(0)).await;
    world.until_committed(0, 2).await;
    running.stop().await;
    points.teardown();
    assert_eq!(world.effects().await, [("a".to_owned(), 2)]);
    let told = logs::with(&["WARN", "first position is not settled", &world.group]);
    assert_eq!(told.len(), 1, "{told:?}");
}
