//! Enqueueing in the caller's transaction.

use std::collections::BTreeMap;

use chrono::{SubsecRound, Utc};
use posthaste_core::integrity::{ContentHash, StoredHash};
use posthaste_core::lifecycle::State;
use posthaste_core::store::ProducerStore;
use posthaste_core::validate::{InvalidMessage, Limits};
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions};

use super::steps::{DAY, HOUR, Worker, enqueue_new, keyed, plain, record, records, try_enqueue};
use crate::backend::Backend;

/// Proves B3.
pub async fn a_new_row_is_pending_due_and_unleased<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let row = record(b, ids[0]).await;
    assert_eq!(row.state, State::Pending);
    assert_eq!(row.attempts, 0);
    assert_eq!(row.next_attempt_at, row.created_at, "due at once");
    assert_eq!(row.updated_at, row.created_at);
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    assert_eq!((row.last_error, row.delivered_at), (None, None));
}

/// Proves A2, B2.
pub async fn a_rollback_leaves_neither_message_nor_business_row<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    b.write_business_row(&mut tx, "order 1").await;
    let outcome = b.enqueue(&mut tx, vec![plain("1")], &OutboxOptions::default()).await;
    assert!(matches!(outcome.as_deref(), Ok([Enqueued::Inserted(_)])), "{outcome:?}");
    b.rollback(tx).await;

    assert_eq!(b.business_rows().await, Vec::<String>::new());
    assert_eq!(records(b).await, []);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), []);
}

/// Proves A2, B2.
pub async fn a_dropped_transaction_is_a_rollback<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    b.write_business_row(&mut tx, "order 1").await;
    b.enqueue(&mut tx, vec![plain("1")], &OutboxOptions::default())
        .await
        .expect("the message is good");
    drop(tx);

    // The next transaction waits for the end of the dropped one where there is one writer at a time.
    let ids = enqueue_new(b, [plain("2")]).await;
    assert_eq!(b.business_rows().await, Vec::<String>::new());
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids);
}

/// Proves A2, B2.
pub async fn a_commit_leaves_both_message_and_business_row<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    b.write_business_row(&mut tx, "order 1").await;
    let written = b.enqueue(&mut tx, vec![plain("1")], &OutboxOptions::default()).await;
    let id = written.expect("the message is good")[0].id();
    b.commit(tx).await;

    assert_eq!(b.business_rows().await, ["order 1"]);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [id]);
}

/// Proves A2, A4.
pub async fn an_uncommitted_message_is_not_claimed<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    let written = b.enqueue(&mut tx, vec![plain("1")], &OutboxOptions::default()).await;
    let id = written.expect("the message is good")[0].id();
    assert_eq!(Worker::new().claim(b, 10).await.ids(), []);
    assert_eq!(Worker::new().unordered().claim(b, 10).await.ids(), []);
    b.commit(tx).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [id]);
}

/// Proves B2 and pitfall 1.
pub async fn a_transaction_that_commits_late_is_not_overlooked<B: Backend>(b: &B) {
    let mut slow = b.begin().await;
    let options = OutboxOptions::default();
    let written = b.enqueue(&mut slow, vec![plain("early")], &options).await;
    let early = written.expect("the message is good")[0].id();
    let late = enqueue_new(b, [plain("late")]).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), late, "nobody waits for an open transaction");
    work.deliver(b).await;
    b.commit(slow).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [early]);
}

/// A table may have a column for what the event is published under, which is its id unless the message says otherwise.
fn as_given(stored: Message) -> Message {
    assert_eq!(stored.effective_event_id(), stored.id.to_string());
    Message {
        event_id: None,
        ..stored
    }
}

/// Proves B2 and pitfall 24.
pub async fn every_field_comes_back_as_it_was_given<B: Backend>(b: &B) {
    let message = Message::new("orders.eu", r#"{"b": 1,  "a": "ü"}"#)
        .namespace("shop")
        .key("order/42 'quoted' \"twice\" \\ %_ ✉")
        .tenant("tenant-1")
        .dedupe_key("tenant-1/order-42")
        .event_type("acme.order.created.v1")
        .source("urn:shop")
        .aggregate("Order", "42")
        .content_type("application/vnd.acme+json; charset=utf-8")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("X-Note", "'; drop table outbox; --\té");
    enqueue_new(b, [message.clone()]).await;
    assert_eq!(as_given(record(b, message.id).await.message), message);
    let scope = posthaste_core::store::Scope {
        namespace: "shop".into(),
        ..Default::default()
    };
    let work = Worker::new().scope(scope).claim(b, 1).await;
    assert_eq!(as_given(work.messages[0].message.clone()), message);
    assert_eq!(
        work.messages[0].hash,
        Some(StoredHash::native(Some(ContentHash::of_message(&message))))
    );
}

/// Proves B2.
pub async fn absent_fields_stay_absent_and_defaults_are_filled_in<B: Backend>(b: &B) {
    let options = OutboxOptions::new().namespace("billing").source("urn:billing");
    let message = plain("{}");
    try_enqueue(b, vec![message.clone()], &options)
        .await
        .expect("the message is good");
    let completed = Message {
        namespace: Some("billing".into()),
        source: Some("urn:billing".into()),
        ..message
    };
    assert_eq!(as_given(record(b, completed.id).await.message), completed);
}

/// Proves pitfall 24.
pub async fn bytes_of_any_kind_survive<B: Backend>(b: &B) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads = [
        Vec::new(),
        every_byte.clone(),
        b"{\"a\":1.0, \"a\" : 1e2}\r\n\0".to_vec(),
        every_byte.repeat(1 << 10),
    ];
    let messages: Vec<_> = payloads
        .iter()
        .map(|bytes| Message::new("binary", bytes.clone()).content_type("application/octet-stream"))
        .collect();
    enqueue_new(b, messages).await;
    let work = Worker::new().claim(b, 10).await;
    let stored: Vec<_> = work
        .messages
        .iter()
        .map(|claimed| claimed.message.payload.to_vec())
        .collect();
    assert!(stored == payloads, "the payloads are stored byte for byte");
    for claimed in &work.messages {
        assert_eq!(
            claimed.hash.as_ref().map(|hash| hash.verify(&claimed.message)),
            Some(Ok(()))
        );
    }
}

/// Proves D3.
pub async fn a_payload_changed_in_the_table_no_longer_matches_its_hash<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    b.corrupt_payload(ids[0]).await;
    let work = Worker::new().claim(b, 10).await;
    let matches: BTreeMap<_, _> = work
        .messages
        .iter()
        .map(|claimed| {
            (
                claimed.message.id,
                claimed
                    .hash
                    .as_ref()
                    .is_some_and(|hash| hash.verify(&claimed.message).is_ok()),
            )
        })
        .collect();
    assert_eq!(matches, BTreeMap::from([(ids[0], false), (ids[1], true)]));
}

/// Proves B2.
pub async fn a_thousand_messages_of_one_call_keep_their_order<B: Backend>(b: &B) {
    let messages: Vec<_> = (0..1_000)
        .map(|n| keyed(&(n % 7).to_string(), &n.to_string()))
        .collect();
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    assert_eq!(enqueue_new(b, messages).await, ids);
    assert_eq!(Worker::new().claim(b, 1_000).await.ids(), ids);
}

/// Proves B2.
pub async fn an_empty_call_writes_nothing<B: Backend>(b: &B) {
    let outcomes = try_enqueue(b, Vec::new(), &OutboxOptions::default()).await;
    assert!(matches!(outcomes.as_deref(), Ok([])), "{outcomes:?}");
    assert_eq!(records(b).await, []);
}

/// Proves B2 and pitfall 32.
pub async fn the_same_id_again_is_the_same_event<B: Backend>(b: &B) {
    let enqueue = async |messages| {
        let outcomes = try_enqueue(b, messages, &OutboxOptions::default()).await;
        outcomes.expect("an id that is there is no error")
    };
    let message = plain("1");
    enqueue_new(b, [message.clone()]).await;
    let again = enqueue(vec![message.clone(), plain("2")]).await;
    assert_eq!(again[0], Enqueued::Duplicate(message.id));
    assert!(again[1].is_new());
    assert_eq!(enqueue(vec![message.clone()]).await, [Enqueued::Duplicate(message.id)]);
    let third = plain("3");
    let twice = enqueue(vec![third.clone(), plain("4"), third.clone()]).await;
    assert_eq!(twice[0], Enqueued::Inserted(third.id));
    assert_eq!(twice[2], Enqueued::Duplicate(third.id), "it was in the same call");
    assert_eq!(records(b).await.len(), 4);
}

/// Proves B5.
pub async fn a_foreign_dedupe_key_is_refused_and_the_transaction_goes_on<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    let options = OutboxOptions::default();
    let bad = vec![plain("1"), plain("2").tenant("t1").dedupe_key("t2/order-1")];
    let refused = b.enqueue(&mut tx, bad, &options).await;
    assert!(
        matches!(
            refused,
            Err(EnqueueError::Invalid {
                position: 1,
                reason: InvalidMessage::ForeignDedupeKey { .. }
            })
        ),
        "{refused:?}"
    );
    let good = plain("3").tenant("t1").dedupe_key("t1/order-1");
    b.enqueue(&mut tx, vec![good.clone()], &options)
        .await
        .expect("the transaction is still usable");
    b.commit(tx).await;
    let stored: Vec<_> = records(b).await.into_iter().map(|row| row.message.id).collect();
    assert_eq!(stored, [good.id], "of the refused call nothing was written");
}

/// Proves B5, C3.
pub async fn a_bad_message_is_refused_before_any_sql_runs<B: Backend>(b: &B) {
    let options = OutboxOptions::new().limits(Limits::new().payload_bytes(10).header_bytes(10));
    let mut tx = b.begin().await;
    for bad in [
        Message::new("", "{}"),
        Message::new("to\0pic", "{}"),
        plain("{}").key(" "),
        plain("{}").key("k".repeat(513)),
        plain("{}").event_type("OrderCreated"),
        plain("{}").header("a", "12345678901"),
        plain("{}").header("id", "1"),
        plain("12345678901"),
    ] {
        let refused = b.enqueue(&mut tx, vec![bad.clone()], &options).await;
        assert!(
            matches!(refused, Err(EnqueueError::Invalid { position: 0, .. })),
            "{bad:?}: {refused:?}"
        );
    }
    b.write_business_row(&mut tx, "order 1").await;
    b.commit(tx).await;
    assert_eq!(b.business_rows().await, ["order 1"], "the transaction was still usable");
    assert_eq!(records(b).await, []);
}

/// Proves B3.
pub async fn a_scheduled_message_waits_for_its_time<B: Backend>(b: &B) {
    let time = (Utc::now() + HOUR).trunc_subsecs(3);
    let ids = enqueue_new(b, [plain("later").not_before(time), plain("now")]).await;
    let row = record(b, ids[0]).await;
    assert_eq!(row.next_attempt_at, time);
    assert_eq!((row.state, row.attempts), (State::Pending, 0));
    for worker in [Worker::new(), Worker::new().unordered()] {
        let work = worker.claim(b, 10).await;
        assert!(!work.ids().contains(&ids[0]), "it is not due");
        work.deliver(b).await;
    }
    b.pass_time(HOUR + super::steps::MINUTE).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [ids[0]]);
}

/// Proves B3.
pub async fn a_time_in_the_past_is_now<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1").not_before(Utc::now() - DAY)]).await;
    let row = record(b, ids[0]).await;
    assert_eq!(row.next_attempt_at, row.created_at);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids);
}

/// Proves B2.
pub async fn a_producer_without_a_transaction_is_served_too<B: Backend>(b: &B) {
    let (first, second) = (plain("1").dedupe_key("k"), plain("2").dedupe_key("k"));
    let options = OutboxOptions::default();
    let outcomes = b
        .store()
        .enqueue_and_commit(&options, vec![first.clone(), second])
        .await;
    let expected = [Enqueued::Inserted(first.id), Enqueued::Duplicate(first.id)];
    assert_eq!(outcomes.expect("the messages are good"), expected);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [first.id]);
}

/// Proves B15.
pub async fn rows_of_one_call_keep_its_order_whatever_their_ids_are<B: Backend>(b: &B) {
    let mut messages: Vec<_> = (0..5).map(|n| keyed("k", &n.to_string())).collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.id));
    let ids = enqueue_new(b, messages).await;
    assert!(ids.is_sorted_by(|a, b| a > b));
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids);
}

/// Proves B15.
pub async fn rows_of_a_later_call_come_behind_those_of_an_earlier_one<B: Backend>(b: &B) {
    let mut messages: Vec<_> = (0..1000).map(|n| keyed("k", &n.to_string())).collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.id));
    let later = messages.split_off(600);
    let mut ids = enqueue_new(b, messages).await;
    for message in later {
        ids.extend(enqueue_new(b, [message]).await);
    }
    assert_eq!(Worker::new().claim(b, 2000).await.ids(), ids);
}
