//! The usage outbox on a database without partial indexes.

use posthaste_core::store::{ProducerStore, RelayStore, Scope};
use posthaste_core::{Enqueued, Message, OutboxOptions};
use posthaste_mysql::MySqlStore;
use posthaste_relay::Relay;
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use posthaste_testkit::RecordingPublisher;
use sqlx::MySqlPool;

use crate::support;

/// The design's table, with the types that MySQL has. NULL keys are all different to a unique index, so it says what the
/// partial index says.
const DDL: &str = "create table modkit_outbox_events (
    id char(36) primary key,
    namespace varchar(100) not null,
    topic varchar(100) not null,
    tenant_id char(36) null,
    dedupe_key varchar(250) null,
    payload json not null,
    status varchar(20) not null,
    attempts int not null default 0,
    next_attempt_at datetime(6) not null default now(6),
    locked_by char(36) null,
    locked_until datetime(6) null,
    last_error text null,
    created_at datetime(6) not null default now(6),
    updated_at datetime(6) not null default now(6),
    index modkit_outbox_events_claim (status, created_at, id),
    index modkit_outbox_events_due (status, next_attempt_at),
    index modkit_outbox_events_leases (locked_until),
    unique index modkit_outbox_events_dedupe (namespace, topic, dedupe_key)
) character set utf8mb4";

async fn store() -> (MySqlPool, MySqlStore) {
    let pool = support::pool(12).await;
    support::run(&pool, DDL).await;
    let toml = BuiltinMap::find("usage")
        .unwrap()
        .toml
        .replace("kind = \"jsonb\"", "kind = \"json\"");
    let store = MySqlStore::with_map(pool.clone(), TableMap::from_toml(&toml).unwrap()).unwrap();
    (pool, store)
}

/// Proves B1 and B4.
#[tokio::test(flavor = "multi_thread")]
async fn a_dedupe_key_is_taken_once_without_a_partial_index() {
    let (pool, store) = store().await;
    let outbox = store.outbox(OutboxOptions::default());
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (pool, outbox) = (pool.clone(), outbox.clone());
        racers.spawn(async move {
            let mut tx = pool.begin().await.unwrap();
            let done = outbox
                .enqueue(&mut tx, Message::new("usage", "{}").dedupe_key("turn-1"))
                .await
                .unwrap();
            tx.commit().await.unwrap();
            done
        });
    }
    let outcomes = racers.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_new()).count(), 1);
    let first = outcomes[0].id();
    assert!(
        outcomes.iter().all(|outcome| outcome.id() == first),
        "all are told the same id"
    );
    for _ in 0..3 {
        let mut tx = pool.begin().await.unwrap();
        let done = outbox.enqueue(&mut tx, Message::new("usage", "{}")).await.unwrap();
        assert!(
            matches!(done, Enqueued::Inserted(_)),
            "messages without a key are never duplicates"
        );
        tx.commit().await.unwrap();
    }
    let broker = RecordingPublisher::new();
    let report = Relay::new(store, broker).drain().await.unwrap();
    assert_eq!(report.delivered, 4);
    let delivered: i64 = sqlx::query_scalar("select count(*) from modkit_outbox_events where status = 'delivered'")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(delivered, 4);
}

/// Their trigger is theirs: it must not stop a relay of others, whether that has rows or not.
#[tokio::test]
async fn a_trial_leaves_the_rows_of_other_namespaces_topics_and_tenants_alone() {
    let tenant = |n: u32| Some(format!("01890a5d-ac96-774b-bcce-b302099a805{n}"));
    let ours = Scope {
        namespace: "ours".to_owned(),
        topics: vec!["orders".to_owned()],
        tenant: tenant(1),
    };
    let theirs = [
        Scope {
            namespace: "theirs".to_owned(),
            ..ours.clone()
        },
        Scope {
            topics: vec!["invoices".to_owned()],
            ..ours.clone()
        },
        Scope {
            tenant: tenant(2),
            ..ours.clone()
        },
    ];
    for scope in &theirs {
        let (pool, store) = store().await;
        enqueue_in(&store, scope).await;
        let trigger = format!(
            "create trigger theirs before update on modkit_outbox_events for each row
             begin
                if new.namespace = '{}' and new.topic = '{}' and new.tenant_id = '{}' then
                    signal sqlstate '45000' set message_text = 'theirs';
                end if;
             end",
            scope.namespace,
            scope.topics[0],
            scope.tenant.as_deref().unwrap()
        );
        support::run(&pool, trigger).await;
        let error = store.check_for(scope).await.expect_err("it is for them");
        assert!(error.message.contains("theirs"), "{error}");
        store.check_for(&ours).await.unwrap();
        enqueue_in(&store, &ours).await;
        store.check_for(&ours).await.unwrap();
        support::drop_database(&pool).await;
    }
}

async fn enqueue_in(store: &MySqlStore, scope: &Scope) {
    let options = OutboxOptions::new().namespace(scope.namespace.clone());
    let mut message = Message::new(&*scope.topics[0], "{}");
    message.tenant = scope.tenant.as_deref().map(Into::into);
    store.enqueue_and_commit(&options, vec![message]).await.unwrap();
}
