//! Writing to existing tables, through the library.

use posthaste_core::store::{ProducerStore, RelayStore};
use posthaste_core::{EnqueueError, Enqueued, Message, MessageId, OutboxOptions};
use posthaste_sql::TableMap;
use posthaste_testkit::{RecordingPublisher, drain};
use sqlx::Row;

use super::tables::{MappedTable, USAGE_DDL, usage_map};

const KINDS_DDL: &str = "
create table events (
    pk blob primary key,
    aggregate integer not null,
    seq integer not null default 0,
    body blob not null,
    meta text,
    tenant blob,
    digest text,
    state text not null,
    tries integer not null,
    token text,
    until integer
);";

const KINDS_TOML: &str = r#"
name = "kinds"
order = ["id"]
topic = { fixed = "t" }
[tables]
outbox = "events"
[columns]
id = { column = "pk", kind = "uuid_bytes" }
aggregate_id = { column = "aggregate", kind = "integer" }
ordering_key = { column = "aggregate", kind = "integer" }
payload = { column = "body", kind = "bytes" }
headers = { column = "meta", kind = "text" }
tenant = { column = "tenant", kind = "uuid_bytes" }
content_hash = { column = "digest", kind = "text" }
status = "state"
attempts = "tries"
lease_token = { column = "token", kind = "text" }
locked_until = { column = "until", kind = "epoch_s" }
[states]
pending = "new"
processing = "busy"
delivered = "done"
dead = "gone"
"#;

async fn kinds() -> MappedTable {
    MappedTable::new(KINDS_DDL, TableMap::from_toml(KINDS_TOML).unwrap()).await
}

async fn enqueue(mapped: &MappedTable, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
    mapped
        .store
        .enqueue_and_commit(&OutboxOptions::default(), messages)
        .await
}

#[tokio::test]
async fn every_kind_of_column_is_written_and_read() {
    let mapped = kinds().await;
    let tenant = "0192b7a6-1df8-7c7c-8d6e-0f3e6a0f3c11";
    let message = Message::new("t", vec![0, 159, 146, 150])
        .key("42")
        .tenant(tenant)
        .header("trace", "x\"y");
    let id = message.id;
    let outcomes = enqueue(&mapped, vec![message.clone()]).await.unwrap();
    assert_eq!(outcomes, [Enqueued::Inserted(id)]);
    assert_eq!(
        enqueue(&mapped, vec![message]).await.unwrap(),
        [Enqueued::Duplicate(id)],
        "the same event"
    );
    let row = sqlx::query("select pk, aggregate, tenant, length(digest) as digits from events")
        .fetch_one(mapped.store.pool())
        .await
        .unwrap();
    assert_eq!(row.get::<Vec<u8>, _>("pk"), id.uuid().unwrap().as_bytes());
    assert_eq!((row.get::<i64, _>("aggregate"), row.get::<i64, _>("digits")), (42, 64));
    assert_eq!(row.get::<Vec<u8>, _>("tenant").len(), 16);
    let broker = RecordingPublisher::new();
    drain(mapped.store.clone(), broker.clone()).await;
    let sent = &broker.deliveries()[0].message;
    assert_eq!(sent.id, id);
    assert_eq!(
        (sent.ordering_key.as_deref(), sent.aggregate_id.as_deref()),
        (Some("42"), Some("42"))
    );
    assert_eq!(
        (sent.tenant.as_deref(), sent.payload.as_ref()),
        (Some(tenant), [0, 159, 146, 150].as_ref())
    );
    assert_eq!(sent.headers["trace"], "x\"y");
    assert_eq!(mapped.text("select state from events").await, "done");
}

#[tokio::test]
async fn what_has_no_place_is_refused_before_anything_is_written() {
    let mapped = kinds().await;
    let good = || Message::new("t", "x").key("1");
    for (bad, said) in [
        (good().source("s"), "message 1 was refused: source"),
        (good().aggregate("Order", "1"), "aggregate_type"),
        (Message::new("t", "x").key("seven"), "kind integer"),
        (Message::new("u", "x").key("1"), "this message would go to `t`"),
        (good().dedupe_key("k"), "dedupe_key"),
        (good().not_before(chrono::Utc::now()), "not_before"),
    ] {
        let error = enqueue(&mapped, vec![good(), bad]).await.unwrap_err();
        assert!(error.to_string().contains(said), "`{error}` does not say `{said}`");
    }
    assert_eq!(mapped.number("select count(*) from events").await, 0);
}

#[tokio::test]
async fn a_failure_in_the_middle_leaves_nothing_and_the_transaction_goes_on() {
    let mapped = MappedTable::new(super::tables::UNUSUAL_DDL, super::tables::unusual_map()).await;
    let guard = r#"create trigger no_third before insert on "Order; --" when new."it's ""quoted""" = 'bad'
        begin select raise(abort, 'no'); end"#;
    mapped.execute(guard).await;
    let mut tx = mapped.store.pool().begin().await.unwrap();
    let outbox = mapped.store.outbox(OutboxOptions::default());
    let messages = ["a", "b", "bad"].map(|body| Message::new("t", body));
    outbox.enqueue_all(&mut tx, messages).await.unwrap_err();
    outbox.enqueue(&mut tx, Message::new("t", "after")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(mapped.number(r#"select count(*) from "Order; --""#).await, 1);
}

/// Some libraries keep UUIDs in capital letters; a row must be found again by what it says.
#[tokio::test]
async fn ids_in_another_spelling_are_found_again() {
    let mapped = MappedTable::new(USAGE_DDL, usage_map()).await;
    let id = "0192B7A6-1DF8-7C7C-8D6E-0F3E6A0F3C11";
    let insert = format!(
        "insert into modkit_outbox_events (id, namespace, topic, payload, status) values ('{id}', 'default', 't', '{{}}', 'pending')"
    );
    mapped.execute(&insert).await;
    let broker = RecordingPublisher::new();
    drain(mapped.store.clone(), broker.clone()).await;
    assert_eq!(broker.ids().iter().map(MessageId::to_string).collect::<Vec<_>>(), [id]);
    assert_eq!(
        mapped.text("select status from modkit_outbox_events").await,
        "delivered"
    );
}

/// A text may look like a path or a number; ids and errors must still find each other.
#[tokio::test]
async fn ids_that_are_any_text_keep_their_own_errors() {
    use posthaste_core::lifecycle::Settlement;
    let toml = KINDS_TOML.replace("kind = \"uuid_bytes\" }\naggregate", "kind = \"text\" }\naggregate");
    let mapped = MappedTable::new(
        &KINDS_DDL
            .replace("pk blob", "pk text")
            .replace("until integer", "until integer, error text"),
        TableMap::from_toml(&toml.replace("[states]", "last_error = \"error\"\n[states]")).unwrap(),
    )
    .await;
    let ids = [
        "$", "$.a", "[0]", "42", "042", "a\"b", "a'b", "x.y", " ", "\\", "ü", "k",
    ];
    for id in ids {
        let insert =
            sqlx::query("insert into events (pk, aggregate, body, state, tries) values (?1, 0, x'00', 'new', 0)");
        insert.bind(id).execute(mapped.store.pool()).await.unwrap();
    }
    let request = posthaste_core::store::ClaimRequest {
        limit: 100,
        ..super::tables::request()
    };
    let claim = mapped.store.claim(&request).await.unwrap();
    assert_eq!(claim.messages.len(), ids.len());
    let dead = |claimed: &posthaste_core::store::ClaimedMessage| {
        Settlement::dead(
            claimed.message.id,
            request.token,
            format!("error of {}", claimed.message.id),
        )
    };
    let settlements: Vec<_> = claim.messages.iter().map(dead).collect();
    assert!(mapped.store.settle(&settlements).await.unwrap().lost.is_empty());
    let kept = "select count(*) from events where state = 'gone' and error = 'error of ' || pk";
    assert_eq!(mapped.number(kept).await, i64::try_from(ids.len()).unwrap());
}
