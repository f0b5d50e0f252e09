//! Enqueueing by statements that somebody else runs: here sqlx, which knows nothing of Posthaste.

use std::time::Duration;

use posthaste_core::store::Filter;
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{AdminStore, EnqueueError, Enqueued, Message, MessageId, OutboxOptions};
use posthaste_mysql::{MySqlEnqueue, MySqlStore};
use posthaste_sql::enqueue::{AnswerRow, Query, Value};
use posthaste_sql::table::BuiltinMap;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::support;

async fn run(conn: &mut MySqlConnection, query: Query<'_, Value<'_>>) -> sqlx::Result<Vec<AnswerRow>> {
    let mut statement = sqlx::query(AssertSqlSafe(query.sql));
    for argument in query.arguments {
        statement = match argument {
            Value::Text(text) => statement.bind(text.map(String::from)),
            Value::Bytes(bytes) => statement.bind(bytes.into_owned()),
            Value::Integer(number) => statement.bind(number),
        };
    }
    if !query.returns_rows {
        statement.execute(conn).await?;
        return Ok(Vec::new());
    }
    let answer = |row: &MySqlRow| {
        Ok(AnswerRow {
            place: row.try_get("place")?,
            id: row.try_get("id")?,
            is_new: row.try_get("is_new")?,
        })
    };
    statement.fetch_all(conn).await?.iter().map(answer).collect()
}

/// In a transaction of its own, with the statements that it took.
async fn enqueue_with(
    store: &MySqlStore,
    statements: &MySqlEnqueue,
    messages: Vec<Message>,
    options: &OutboxOptions,
) -> (Result<Vec<Enqueued>, EnqueueError>, usize) {
    let mut tx = store.pool().begin().await.unwrap();
    let mut pending = statements.prepare(messages, options).unwrap();
    let mut count = 0;
    while let Some(query) = pending.query() {
        count += 1;
        match run(&mut tx, query).await {
            Ok(rows) => pending.answer(rows),
            Err(error) => {
                assert!(error.as_database_error().unwrap().is_unique_violation(), "{error}");
                pending.refused();
            }
        }
    }
    tx.commit().await.unwrap();
    (pending.finish(), count)
}

async fn enqueue(store: &MySqlStore, messages: Vec<Message>) -> (Vec<Enqueued>, usize) {
    let options = OutboxOptions::default();
    let (outcomes, count) = enqueue_with(store, &MySqlEnqueue::new(), messages, &options).await;
    (outcomes.unwrap(), count)
}

async fn stored(store: &MySqlStore) -> Vec<Message> {
    let records = store.list(&Filter::default(), None, 100).await.unwrap();
    records.into_iter().map(|record| record.message).collect()
}

/// Proves B2.
#[tokio::test]
async fn a_prepared_statement_writes_what_the_outbox_would() {
    let store = support::store(2).await;
    let message = |n: u8| {
        Message::new("orders", vec![0, 159, n])
            .key("k")
            .tenant("acme")
            .header("a", "\"b\\")
            .content_type("application/octet-stream")
    };
    let messages: Vec<_> = (0..3).map(message).collect();
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    let (outcomes, count) = enqueue(&store, messages.clone()).await;
    assert_eq!(
        outcomes,
        ids.iter().copied().map(Enqueued::Inserted).collect::<Vec<_>>()
    );
    assert_eq!(count, 1, "without dedupe keys one statement is enough");
    let by_outbox: Vec<_> = (0..3).map(message).collect();
    let mut tx = store.pool().begin().await.unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    outbox.enqueue_all(&mut tx, by_outbox).await.unwrap();
    tx.commit().await.unwrap();
    let mut stored = stored(&store).await;
    let rest = stored.split_off(3);
    for (mut ours, theirs) in stored.into_iter().zip(rest) {
        ours.id = theirs.id;
        assert_eq!(ours, theirs);
    }
    support::drop_database(store.pool()).await;
}

/// Proves B4.
#[tokio::test]
async fn what_was_there_before_is_told_by_its_id() {
    let store = support::store(2).await;
    let keyed = |key: &str| Message::new("orders", "{}").dedupe_key(key);
    let first = keyed("a");
    let plain = Message::new("orders", "{}");
    let (outcomes, _) = enqueue(&store, vec![first.clone(), plain.clone()]).await;
    assert_eq!(outcomes, [Enqueued::Inserted(first.id), Enqueued::Inserted(plain.id)]);

    let fresh = keyed("b");
    let call = vec![keyed("a"), plain.clone(), fresh.clone(), keyed("b"), first.clone()];
    let (outcomes, _) = enqueue(&store, call).await;
    let expected = [
        Enqueued::Duplicate(first.id),
        Enqueued::Duplicate(plain.id),
        Enqueued::Inserted(fresh.id),
        Enqueued::Duplicate(fresh.id),
        Enqueued::Duplicate(first.id),
    ];
    assert_eq!(outcomes, expected);
    let ids: Vec<_> = stored(&store).await.iter().map(|message| message.id).collect();
    assert_eq!(ids, [first.id, plain.id, fresh.id]);
    support::drop_database(store.pool()).await;
}

/// Proves B4.
#[tokio::test]
async fn a_key_whose_window_is_over_is_taken_over_once_its_row_is_gone() {
    let store = support::store(2).await;
    let options = OutboxOptions::new().dedupe_window(Duration::ZERO);
    let keyed = || Message::new("orders", "{}").dedupe_key("a");
    let statements = MySqlEnqueue::new();
    let first = keyed();
    enqueue_with(&store, &statements, vec![first.clone()], &options)
        .await
        .0
        .unwrap();
    let (outcomes, _) = enqueue_with(&store, &statements, vec![keyed()], &options).await;
    assert_eq!(outcomes.unwrap(), [Enqueued::Duplicate(first.id)], "its row is there");

    support::run(store.pool(), "delete from posthaste_outbox").await;
    let next = keyed();
    let (outcomes, _) = enqueue_with(&store, &statements, vec![next.clone()], &options).await;
    assert_eq!(outcomes.unwrap(), [Enqueued::Inserted(next.id)]);
    let (outcomes, _) = enqueue_with(&store, &statements, vec![keyed()], &options).await;
    assert_eq!(outcomes.unwrap(), [Enqueued::Duplicate(next.id)]);
    support::drop_database(store.pool()).await;
}

/// Proves B4.
#[tokio::test]
async fn an_existing_table_gives_its_own_ids_and_says_what_was_in_the_way() {
    let pool = support::pool(2).await;
    let shipped = BuiltinMap::find("donation").unwrap();
    support::run(&pool, shipped.ddl).await;
    let store = MySqlStore::with_map(pool.clone(), shipped.map().unwrap()).unwrap();
    let statements = MySqlEnqueue::with_map(shipped.map().unwrap()).unwrap();
    let options = OutboxOptions::new().type_names(TypeNameRule::Any);
    let donation = |request: &str| {
        let mut message = Message::new("donation-events", r#"{"n": 1}"#).event_type("DONATION_COMPLETED");
        message.event_id = Some(request.into());
        message
    };
    let call = vec![donation("r1"), donation("r2"), donation("r1")];
    let (outcomes, _) = enqueue_with(&store, &statements, call, &options).await;
    let [one, two] = [1, 2].map(MessageId::Number);
    let expected = [
        Enqueued::Inserted(one),
        Enqueued::Inserted(two),
        Enqueued::Duplicate(one),
    ];
    assert_eq!(outcomes.unwrap(), expected);

    support::drop_database(&pool).await;
}

/// Proves B2.
#[tokio::test]
async fn a_rollback_leaves_nothing_and_a_refused_message_runs_nothing() {
    let store = support::store(2).await;
    let statements = MySqlEnqueue::new();
    let mut tx = store.pool().begin().await.unwrap();
    let mut pending = statements
        .prepare([Message::new("t", "1").dedupe_key("k")], &OutboxOptions::default())
        .unwrap();
    while let Some(query) = pending.query() {
        let rows = run(&mut tx, query).await.unwrap();
        pending.answer(rows);
    }
    assert!(pending.finish().unwrap()[0].is_new());
    tx.rollback().await.unwrap();
    assert_eq!(stored(&store).await, []);

    let pending = statements.prepare([Message::new("t", "1")], &OutboxOptions::default());
    let error = pending.unwrap().finish().unwrap_err().to_string();
    assert!(error.contains("statements left to run"), "{error}");
    let refused = statements.prepare([Message::new("", "1")], &OutboxOptions::default());
    assert!(matches!(refused, Err(EnqueueError::Invalid { position: 0, .. })));
    support::drop_database(store.pool()).await;
}
