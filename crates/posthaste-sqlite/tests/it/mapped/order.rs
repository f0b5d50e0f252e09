//! Claims in the table's order, where the statement takes paths of its own.

use std::time::Duration;

use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, ProducerStore, RelayStore};
use posthaste_core::{Message, MessageId, OutboxOptions};

use super::tables::{MappedTable, UNUSUAL_DDL, payloads, request, unusual_map};

async fn fresh(rows: &[(&str, &str)]) -> MappedTable {
    let mapped = MappedTable::new(UNUSUAL_DDL, unusual_map()).await;
    let message = |(key, body): &(&str, &str)| Message::new("t", (*body).to_owned()).key(*key);
    let messages = rows.iter().map(message).collect();
    let options = OutboxOptions::default();
    mapped.store.enqueue_and_commit(&options, messages).await.unwrap();
    mapped
}

fn two() -> ClaimRequest {
    ClaimRequest { limit: 2, ..request() }
}

/// Proves pitfall 18.
#[tokio::test]
async fn a_claim_looks_further_when_all_that_it_saw_is_held_back() {
    let mut rows = vec![("hot", "h"); 100];
    rows.push(("cold", "c"));
    let mapped = fresh(&rows).await;
    assert_eq!(payloads(&mapped.store.claim(&two()).await.unwrap()), ["h", "h"]);
    let claim = mapped.store.claim(&two()).await.unwrap();
    assert_eq!(payloads(&claim), ["c"], "past ninety-eight rows of a key in flight");
    let shallow = ClaimRequest {
        scan_limit: Some(50),
        ..two()
    };
    mapped
        .execute(r#"update "Order; --" set "select" = 10 where "Id" = 101"#)
        .await;
    assert!(
        mapped.store.claim(&shallow).await.unwrap().messages.is_empty(),
        "no further than it may"
    );
}

/// Proves pitfall 4.
#[tokio::test]
async fn what_a_vanished_worker_left_is_not_taken_before_what_lies_beyond_the_look() {
    // The head of the key is pending again and lies far behind in the table's order of looking.
    let mut rows = vec![("other", "o"); 40];
    rows.extend([("k", "k1"), ("k", "k2")]);
    let mapped = fresh(&rows).await;
    mapped
        .execute(r#"update "Order; --" set "select" = 20, "Lease'Ends" = 0, "Tries" = 1 where "Id" = 42"#)
        .await;
    let claim = mapped.store.claim(&two()).await.unwrap();
    assert_eq!(
        (payloads(&claim), claim.reclaimed),
        (vec!["o".to_owned(), "o".to_owned()], false)
    );
    mapped
        .execute(r#"update "Order; --" set "select" = 30 where "Id" <= 41"#)
        .await;
    let claim = mapped.store.claim(&two()).await.unwrap();
    assert_eq!((payloads(&claim), claim.reclaimed), (vec!["k2".to_owned()], true));
}

/// Proves pitfall 17.
#[tokio::test]
async fn a_dead_head_blocks_or_is_skipped_as_declared() {
    let mapped = fresh(&[("k", "k1"), ("k", "k2")]).await;
    mapped
        .execute(r#"update "Order; --" set "select" = -1 where "Id" = 1"#)
        .await;
    let block = ClaimRequest {
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Block,
            except: Vec::new(),
        },
        ..request()
    };
    assert!(mapped.store.claim(&block).await.unwrap().messages.is_empty());
    let except = ClaimRequest {
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Block,
            except: vec!["t".to_owned()],
        },
        ..request()
    };
    assert_eq!(payloads(&mapped.store.claim(&except).await.unwrap()), ["k2"]);
}

/// Proves pitfall 13.
#[tokio::test]
async fn rows_come_in_the_tables_order_and_not_in_that_of_their_ids() {
    let mapped = fresh(&[("a", "1"), ("b", "2"), ("c", "3")]).await;
    mapped
        .execute(r#"update "Order; --" set "created" = "created" - "Id""#)
        .await;
    let claim = mapped.claim().await;
    assert_eq!(payloads(&claim), ["3", "2", "1"]);
    let ids: Vec<MessageId> = claim.messages.iter().map(|claimed| claimed.message.id).collect();
    assert_eq!(ids, [3.into(), 2.into(), 1.into()]);
}

/// A retry that is due goes alone: if it fails again, nothing after it was touched.
#[tokio::test]
async fn a_retry_goes_before_its_followers_and_alone() {
    let mapped = fresh(&[("k", "k1"), ("k", "k2"), ("j", "j1")]).await;
    let request = two();
    mapped.store.claim(&request).await.unwrap();
    let retry = Settlement::retry(1.into(), request.token, Duration::ZERO, "no");
    let settlements = [retry, Settlement::released(2.into(), request.token)];
    assert!(mapped.store.settle(&settlements).await.unwrap().lost.is_empty());
    assert_eq!(payloads(&mapped.claim().await), ["k1", "j1"]);
}

/// A table that is ordered by time and id, with a column for times of the kind.
async fn by_time(kind: &str) -> MappedTable {
    let ddl = "create table outbox (id text primary key, topic text, k text, body text, status text, tries integer,
        who text, until text, at);
        create index outbox_claim on outbox (status, at, id)";
    let map = r#"
name = "by time"
order = ["created_at", "id"]
topic = "column"
[tables]
outbox = "outbox"
[columns]
id = { column = "id", kind = "text" }
topic = "topic"
ordering_key = "k"
payload = { column = "body", kind = "text" }
status = "status"
attempts = "tries"
locked_by = { column = "who", kind = "text" }
locked_until = { column = "until", kind = "timestamptz" }
created_at = { column = "at", kind = "KIND" }
[states]
pending = "new"
processing = "busy"
delivered = "done"
dead = "dead"
"#;
    let map = posthaste_sql::TableMap::from_toml(&map.replace("KIND", kind)).unwrap();
    MappedTable::new(ddl, map).await
}

/// Messages of one key whose ids go down.
fn descending(count: u32) -> Vec<Message> {
    let mut messages: Vec<_> = (0..count).map(|n| Message::new("t", n.to_string()).key("k")).collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.id));
    messages
}

/// Proves B15.
#[tokio::test]
async fn rows_of_one_call_keep_its_order_where_time_and_id_say_it() {
    for kind in ["timestamptz", "epoch_ms", "epoch_s", "epoch_us"] {
        let mapped = by_time(kind).await;
        let messages = descending(6);
        let expected: Vec<_> = messages.iter().map(|message| message.payload.clone()).collect();
        let options = OutboxOptions::default();
        mapped.store.enqueue_and_commit(&options, messages).await.unwrap();
        assert_eq!(payloads(&mapped.claim().await), expected, "{kind}");
    }
}

/// Proves B15.
#[tokio::test]
async fn rows_of_later_calls_come_behind_where_time_and_id_say_it() {
    for kind in ["timestamptz", "epoch_ms", "epoch_s", "epoch_us"] {
        let mapped = by_time(kind).await;
        let mut messages = descending(1000);
        let expected: Vec<_> = messages.iter().map(|message| message.payload.clone()).collect();
        let later = messages.split_off(900);
        let options = OutboxOptions::default();
        mapped.store.enqueue_and_commit(&options, messages).await.unwrap();
        let claimed = ClaimRequest {
            limit: 300,
            ..request()
        };
        let mut found = payloads(&mapped.store.claim(&claimed).await.unwrap());
        for message in later {
            mapped.store.enqueue_and_commit(&options, vec![message]).await.unwrap();
        }
        mapped
            .execute("update outbox set status = 'done' where status = 'busy'")
            .await;
        let all = ClaimRequest {
            limit: 1000,
            ..request()
        };
        found.extend(payloads(&mapped.store.claim(&all).await.unwrap()));
        assert_eq!(found, expected, "{kind}");
    }
}
