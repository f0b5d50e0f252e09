//! Numbers without a sign, which many a table has for what cannot be negative.

use posthaste_core::store::{AdminStore, Filter, ProducerStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_mysql::MySqlStore;
use posthaste_relay::Relay;
use posthaste_sql::table::Database;
use posthaste_testkit::{RecordingPublisher, ddl, everything};

use crate::support;

#[tokio::test]
async fn a_table_may_count_without_a_sign() {
    let pool = support::pool(4).await;
    support::run(&pool, ddl(&everything(), Database::MySql)).await;
    let unsigned = "alter table everything modify number bigint unsigned not null auto_increment,
        modify tries tinyint unsigned not null, modify most_tries int unsigned, modify changes int unsigned not null,
        auto_increment = 3000000000";
    support::run(&pool, unsigned).await;
    let store = MySqlStore::with_map(pool.clone(), everything()).unwrap();
    let messages = vec![Message::new("t", "1"), Message::new("t", "2")];
    let enqueued = store.enqueue_and_commit(&OutboxOptions::default(), messages).await;
    assert_eq!(enqueued.unwrap().len(), 2);
    let listed = store.list(&Filter::default(), None, 10).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|record| record.sequence).collect();
    assert_eq!(listed, [Some(3_000_000_000), Some(3_000_000_001)]);
    let broker = RecordingPublisher::new();
    assert_eq!(Relay::new(store, broker.clone()).drain().await.unwrap().delivered, 2);
    let told: Vec<_> = broker
        .deliveries()
        .into_iter()
        .map(|delivery| delivery.sequence)
        .collect();
    assert_eq!(told, listed);
    support::drop_database(&pool).await;
}
