//! What is peculiar to the log on SQLite: one reader under a fenced lease, and a state that outlives it.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, State, Verdict};
use posthaste_core::store::{
    ClaimRequest, ClaimedMessage, DeadHead, ExtendRequest, Filter, KeyOrdering, PurgeRequest, SchemaStore, Scope,
    WorkerId,
};
use posthaste_core::{AdminStore, Message, MessageId, Outbox as _, OutboxOptions, RelayStore};
use posthaste_sqlite::SqliteLogStore;
use sqlx::{Row, SqlitePool};

use crate::support;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit,
        max_bytes: u64::from(u32::MAX),
        scan_limit: None,
        lease: LEASE,
        max_attempts: 3,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// A relay of its own over the file, as another process would be.
pub(crate) fn another(pool: &SqlitePool) -> SqliteLogStore {
    SqliteLogStore::new(pool.clone()).retrying_at_once()
}

pub(crate) async fn enqueue(store: &SqliteLogStore, messages: impl IntoIterator<Item = Message>) -> Vec<MessageId> {
    let messages: Vec<Message> = messages.into_iter().collect();
    let ids = messages.iter().map(|message| message.id).collect();
    let outbox = store.outbox(OutboxOptions::default());
    let mut tx = outbox.begin().await.unwrap();
    outbox.enqueue_all(&mut tx, messages).await.unwrap();
    outbox.commit(tx).await.unwrap();
    ids
}

pub(crate) async fn claim(store: &SqliteLogStore, request: &ClaimRequest) -> Vec<MessageId> {
    let claim = store.claim(request).await.unwrap();
    claim.messages.iter().map(|claimed| claimed.message.id).collect()
}

pub(crate) async fn settle(
    store: &SqliteLogStore,
    request: &ClaimRequest,
    ids: &[MessageId],
    verdict: &Verdict,
) -> Vec<MessageId> {
    let settlement = |id: &MessageId| Settlement {
        verdict: verdict.clone(),
        ..Settlement::delivered(*id, request.token)
    };
    let settlements: Vec<_> = ids.iter().map(settlement).collect();
    store.settle(&settlements).await.unwrap().lost
}

/// The reader's lease is over, as if it had crashed long ago.
pub(crate) async fn let_lease_run_out(pool: &SqlitePool) {
    let update = sqlx::query("update posthaste_log_reader set leased_until = 0");
    update.execute(pool).await.unwrap();
}

pub(crate) async fn fresh() -> (SqliteLogStore, tempfile::TempDir) {
    let (pool, directory) = support::pool(5).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    (store, directory)
}

pub(crate) fn keyed(key: &str) -> Message {
    Message::new("orders", "{}").key(key)
}

/// Proves B3.
#[tokio::test]
async fn a_successor_repeats_what_was_in_flight_and_nothing_else() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, (0..100).map(|n| keyed(&n.to_string()))).await;
    let first = request(40);
    assert_eq!(claim(&store, &first).await, ids[..40]);
    // Out of order: the head is not answered, and all that follows is.
    assert_eq!(settle(&store, &first, &ids[10..40], &Verdict::Delivered).await, []);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let second = request(40);
    assert_eq!(claim(&store, &second).await, ids[40..80]);
    assert_eq!(settle(&store, &second, &ids[45..80], &Verdict::Delivered).await, []);

    let successor = another(store.pool());
    assert_eq!(claim(&successor, &request(100)).await, [], "there is a reader");
    let_lease_run_out(store.pool()).await;
    let mut repeated = Vec::new();
    loop {
        let next = request(1_000);
        let claimed = claim(&successor, &next).await;
        if claimed.is_empty() {
            break;
        }
        assert_eq!(settle(&successor, &next, &claimed, &Verdict::Delivered).await, []);
        repeated.extend(claimed);
    }
    // What was settled after the last checkpoint is repeated as well.
    let expected: Vec<_> = ids[..10].iter().chain(&ids[40..]).copied().collect();
    assert_eq!(repeated, expected);
}

/// Proves B9.
#[tokio::test]
async fn a_reader_whose_lease_was_taken_over_writes_nothing_more() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, [keyed("a"), keyed("b")]).await;
    let stale = request(10);
    assert_eq!(claim(&store, &stale).await, ids);
    let_lease_run_out(store.pool()).await;
    let successor = another(store.pool());
    let next = request(1);
    assert_eq!(
        claim(&successor, &next).await,
        ids[..1],
        "what may have killed its reader goes in small groups"
    );
    let failed = Verdict::Retry {
        delay: Duration::ZERO,
        error: "no".to_owned(),
    };
    assert_eq!(
        settle(&store, &stale, &ids, &failed).await,
        ids,
        "they are another one's"
    );
    assert_eq!(store.stats("default").await.unwrap().waiting, 0);
    assert_eq!(settle(&successor, &next, &ids[..1], &Verdict::Delivered).await, []);
}

/// It finds that out when it writes down which of the rows that it read have to wait.
#[tokio::test]
async fn a_reader_whose_lease_was_taken_over_while_it_read_hands_out_nothing() {
    let (store, _directory) = fresh().await;
    let first = enqueue(&store, [keyed("a")]).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, first);
    let (delay, error) = (Duration::from_hours(1), "no".to_owned());
    assert_eq!(
        settle(&store, &work, &first, &Verdict::Retry { delay, error }).await,
        []
    );
    let_lease_run_out(store.pool()).await;
    let successor = another(store.pool());
    assert_eq!(claim(&successor, &request(10)).await, []);
    let ids = enqueue(&store, ["a", "b"].map(keyed)).await;
    assert_eq!(claim(&store, &request(10)).await, [], "they are another one's");
    assert_eq!(claim(&successor, &request(10)).await, ids[1..]);
}

/// Proves pitfall 33.
#[tokio::test]
async fn a_message_that_kills_every_reader_dies_and_its_neighbours_do_not() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, (0..20).map(|n| keyed(&n.to_string()))).await;
    let killer = ids[7];
    let mut delivered = Vec::new();
    // Each reader is a process that dies when it sends the killer.
    for _ in 0..100 {
        let_lease_run_out(store.pool()).await;
        let reader = another(store.pool());
        let died = loop {
            let next = request(1_000);
            let claimed = reader.claim(&next).await.unwrap();
            let ids: Vec<_> = claimed.messages.iter().map(|claimed| claimed.message.id).collect();
            if ids.is_empty() {
                break true;
            }
            if ids.contains(&killer) {
                break false;
            }
            assert_eq!(settle(&reader, &next, &ids, &Verdict::Delivered).await, []);
            tokio::time::sleep(Duration::from_millis(260)).await;
            delivered.extend(ids);
        };
        if died {
            break;
        }
    }
    let dead = store
        .list(
            &Filter {
                state: Some(posthaste_core::lifecycle::State::Dead),
                ..Filter::default()
            },
            None,
            10,
        )
        .await
        .unwrap();
    assert_eq!(
        dead.iter().map(|record| record.message.id).collect::<Vec<_>>(),
        [killer]
    );
    delivered.sort();
    delivered.dedup();
    assert_eq!(delivered.len(), 19);
}

/// Proves B5.
#[tokio::test]
async fn what_follows_a_scheduled_message_of_its_key_waits_and_what_precedes_it_does_not() {
    let (store, _directory) = fresh().await;
    let later = chrono::Utc::now() + chrono::Duration::hours(1);
    let ids = enqueue(
        &store,
        [keyed("k"), keyed("k").not_before(later), keyed("k"), keyed("other")],
    )
    .await;
    let first = request(10);
    assert_eq!(claim(&store, &first).await, [ids[0], ids[3]]);
    assert_eq!(settle(&store, &first, &[ids[0], ids[3]], &Verdict::Delivered).await, []);
    assert_eq!(claim(&store, &request(10)).await, []);
    let due = sqlx::query("update posthaste_log_failed set next_attempt_at = 0");
    due.execute(store.pool()).await.unwrap();
    let second = request(10);
    assert_eq!(claim(&store, &second).await, ids[1..3]);
}

/// Proves A3.
#[tokio::test]
async fn rows_are_never_changed_and_a_view_says_what_became_of_them() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, ["a", "b", "c"].map(keyed)).await;
    let trigger = "create trigger no_change before update on posthaste_log begin select raise(abort, 'changed'); end";
    sqlx::query(trigger).execute(store.pool()).await.unwrap();
    let work = request(2);
    assert_eq!(claim(&store, &work).await, ids[..2]);
    let dead = Verdict::Dead { error: "no".to_owned() };
    assert_eq!(settle(&store, &work, &ids[..1], &Verdict::Delivered).await, []);
    assert_eq!(settle(&store, &work, &ids[1..2], &dead).await, []);
    store.close().await.unwrap();
    let states: Vec<(String, String)> = sqlx::query_as("select id, status from posthaste_log_states order by seq")
        .fetch_all(store.pool())
        .await
        .unwrap();
    let expected = [(ids[0], "delivered"), (ids[1], "dead"), (ids[2], "pending")];
    let expected = expected.map(|(id, state)| (id.to_string(), state.to_owned()));
    assert_eq!(states, expected);
}

/// Nor is it listed as one that was.
#[tokio::test]
async fn what_was_removed_dead_is_not_shown_as_delivered() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, ["a", "b", "c"].map(keyed)).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    let dead = Verdict::Dead { error: "no".to_owned() };
    assert_eq!(settle(&store, &work, &ids[..1], &Verdict::Delivered).await, []);
    assert_eq!(settle(&store, &work, &ids[1..], &dead).await, []);
    store.close().await.unwrap();
    let discarded = Filter {
        ids: vec![ids[1]],
        ..Filter::default()
    };
    assert_eq!(store.discard(&discarded, 1).await.unwrap(), [ids[1]]);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let old = PurgeRequest {
        namespace: None,
        delivered: None,
        dead: Some(Duration::ZERO),
        cursor: None,
        dedupe: false,
        limit: 10,
    };
    assert_eq!(store.purge(&old).await.unwrap().dead, [ids[2]]);
    let shown: Vec<(String, String)> = sqlx::query_as("select id, status from posthaste_log_states")
        .fetch_all(store.pool())
        .await
        .unwrap();
    assert_eq!(shown, [(ids[0].to_string(), "delivered".to_owned())]);
    assert_eq!(store.show(ids[2]).await.unwrap(), None);
}

/// What died is listed from the failures, however long the log is, and each page from where the last one ended.
///
/// Proves pitfall 28.
#[tokio::test]
async fn a_list_of_the_dead_reads_its_page_and_nothing_of_the_log() {
    let (store, _directory) = fresh().await;
    let statements = store.statements();
    let (_, sql) = statements.iter().find(|(name, _)| *name == "list_dead").unwrap();
    let explain = sqlx::AssertSqlSafe(format!("explain query plan {sql}"));
    let rows = sqlx::query(explain).fetch_all(store.pool()).await.unwrap();
    let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
    let plan = steps.join("\n");
    let page = "SEARCH f USING INDEX posthaste_log_failed_dead (log_id>?)";
    assert!(plan.contains(page), "{plan}");
    let sorts = steps.iter().filter(|step| step.contains("FOR ORDER BY")).count();
    assert_eq!(sorts, 1, "only what it begins after: {plan}");
    // But for where to go on, which is looked up by its id.
    let reads_log = |step: &&String| step.contains("posthaste_log ") && !step.contains("posthaste_log_id (id=?)");
    assert_eq!(steps.iter().find(reads_log), None, "{plan}");
}

#[tokio::test]
async fn the_dead_are_listed_in_their_order_page_by_page() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, (0..20).map(|n| keyed(&n.to_string()))).await;
    let work = request(20);
    assert_eq!(claim(&store, &work).await, ids);
    let dead = Verdict::Dead { error: "no".to_owned() };
    // They die in another order than they stand in the log.
    for ids in [&ids[10..15], &ids[..5]] {
        assert_eq!(settle(&store, &work, ids, &dead).await, []);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(claim(&store, &request(1)).await, []);
    }
    assert_eq!(settle(&store, &work, &ids[5..10], &Verdict::Delivered).await, []);
    let list = async |after, limit| -> Vec<MessageId> {
        let filter = Filter {
            state: Some(State::Dead),
            ..Filter::default()
        };
        let records = store.list(&filter, after, limit).await.unwrap();
        assert!(records.iter().all(|record| record.state == State::Dead));
        records.iter().map(|record| record.message.id).collect()
    };
    let expected = [&ids[..5], &ids[10..15]].concat();
    assert_eq!(list(None, 100).await, expected);
    assert_eq!(list(None, 3).await, expected[..3]);
    assert_eq!(list(Some(expected[2]), 4).await, expected[3..7]);
    // Nobody's page ends early because its last one was replayed, or delivered, meanwhile.
    let replayed = Filter {
        ids: vec![expected[6]],
        ..Filter::default()
    };
    assert_eq!(store.replay(&replayed, 1).await.unwrap(), [expected[6]]);
    assert_eq!(list(Some(expected[6]), 100).await, expected[7..]);
    let again = request(1);
    assert_eq!(claim(&store, &again).await, [expected[6]]);
    assert_eq!(settle(&store, &again, &[expected[6]], &Verdict::Delivered).await, []);
    assert_eq!(list(Some(expected[6]), 100).await, expected[7..]);
}

/// Proves A1.
#[tokio::test]
async fn any_language_appends_with_a_plain_insert() {
    let (store, _directory) = fresh().await;
    let insert =
        "insert into posthaste_log (topic, ordering_key, payload) values ('order-events', '42', '{\"orderId\": 42}')";
    sqlx::query(insert).execute(store.pool()).await.unwrap();
    let claimed = store.claim(&request(10)).await.unwrap();
    assert_eq!(claimed.messages[0].message.payload, r#"{"orderId": 42}"#);
    assert_eq!(claimed.messages[0].message.ordering_key.as_deref(), Some("42"));
}

async fn insert(store: &SqliteLogStore, columns: &str, values: &str) -> sqlx::Result<()> {
    let insert = format!("insert into posthaste_log ({columns}topic, payload) values ({values}'orders', '{{}}')");
    let insert = sqlx::query(sqlx::AssertSqlSafe(insert));
    insert.execute(store.pool()).await.map(drop)
}

#[tokio::test]
async fn a_number_that_was_read_beyond_is_refused() {
    let (store, _directory) = fresh().await;
    for n in ["-5", "0"] {
        let refused = insert(&store, "seq, ", &format!("{n}, ")).await.unwrap_err();
        assert!(refused.to_string().contains("leave it out"), "{refused}");
    }
    let ids = enqueue(&store, (0..5).map(|n| keyed(&n.to_string()))).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    assert_eq!(settle(&store, &work, &ids, &Verdict::Delivered).await, []);
    assert_eq!(claim(&store, &request(10)).await, []);
    let remove = sqlx::query("delete from posthaste_log where seq = 3");
    remove.execute(store.pool()).await.unwrap();
    let refused = insert(&store, "seq, ", "3, ").await.unwrap_err();
    assert!(refused.to_string().contains("leave seq out"), "{refused}");
    insert(&store, "seq, ", "9, ").await.unwrap();
    assert_eq!(claim(&store, &request(10)).await.len(), 1, "what is ahead is read");
}

#[tokio::test]
async fn a_log_that_was_emptied_goes_on_above_what_was_read_and_loses_nothing() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, (0..5).map(|n| keyed(&n.to_string()))).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    assert_eq!(settle(&store, &work, &ids, &Verdict::Delivered).await, []);
    assert_eq!(claim(&store, &request(10)).await, []);
    for emptied in ["delete from sqlite_sequence", "update sqlite_sequence set seq = 1"] {
        for statement in ["delete from posthaste_log", emptied] {
            sqlx::query(sqlx::AssertSqlSafe(statement))
                .execute(store.pool())
                .await
                .unwrap();
        }
        let refused = insert(&store, "", "").await.unwrap_err();
        assert!(refused.to_string().contains("the sequence was set back"), "{refused}");
        store.pass_time(Duration::from_secs(2));
        assert_eq!(claim(&store, &request(10)).await, []);
        let ids = enqueue(&store, [keyed("a")]).await;
        let work = request(10);
        assert_eq!(claim(&store, &work).await, ids);
        assert_eq!(settle(&store, &work, &ids, &Verdict::Delivered).await, []);
        assert_eq!(claim(&store, &request(10)).await, []);
    }
}

#[tokio::test]
async fn an_id_that_is_no_text_is_refused_where_it_is_written() {
    let (store, _directory) = fresh().await;
    // As drivers write a UUID that know no type for it.
    let bytes = "x'0199C3A2000070008000000000000001', ";
    let refused = insert(&store, "id, ", bytes).await.unwrap_err();
    assert!(refused.to_string().contains("id is text"), "{refused}");
    insert(&store, "id, ", "'order-17', ").await.unwrap();
    insert(&store, "id, ", "17, ").await.unwrap();
    let work = request(10);
    let ids = claim(&store, &work).await;
    let dead = Verdict::Dead { error: "no".to_owned() };
    assert_eq!(settle(&store, &work, &ids, &dead).await, []);
    let only = |id: &MessageId| Filter {
        ids: vec![*id],
        ..Filter::default()
    };
    for id in &ids {
        assert!(store.show(*id).await.unwrap().is_some(), "{id}");
        assert_eq!(store.replay(&only(id), 10).await.unwrap(), [*id]);
    }
    assert_eq!(claim(&store, &request(10)).await, ids);
}

pub(crate) async fn execute(store: &SqliteLogStore, sql: &'static str) {
    sqlx::query(sql).execute(store.pool()).await.unwrap();
}

pub(crate) fn all(request: &ClaimRequest, verdicts: &[(MessageId, Verdict)]) -> Vec<Settlement> {
    let settlement = |(id, verdict): &(MessageId, Verdict)| Settlement {
        verdict: verdict.clone(),
        ..Settlement::delivered(*id, request.token)
    };
    verdicts.iter().map(settlement).collect()
}

fn refused(settled: &posthaste_core::store::Settled) -> Vec<MessageId> {
    settled.refused.iter().map(|refused| refused.id).collect()
}

#[tokio::test]
async fn a_failure_that_the_table_refuses_stops_its_key_and_no_other() {
    let (store, _directory) = fresh().await;
    execute(
        &store,
        "create trigger no before insert on posthaste_log_failed when new.ordering_key = 'x'
        begin select raise(abort, 'audit: no'); end",
    )
    .await;
    let dead = Verdict::Dead { error: "no".to_owned() };
    let ids = enqueue(&store, ["x", "a", "b"].map(keyed)).await;
    let first = request(10);
    assert_eq!(claim(&store, &first).await, ids);
    let verdicts = [
        (ids[0], dead.clone()),
        (ids[1], Verdict::Delivered),
        (ids[2], dead.clone()),
    ];
    let settled = store.settle(&all(&first, &verdicts)).await.unwrap();
    assert_eq!((settled.lost.as_slice(), refused(&settled)), (&[][..], vec![ids[0]]));
    assert!(settled.refused[0].error.to_string().contains("audit: no"));
    assert_eq!(store.stats("default").await.unwrap().dead, 1, "the other is written");

    let later = enqueue(&store, ["x", "c"].map(keyed)).await;
    let second = request(10);
    assert_eq!(claim(&store, &second).await, later[1..], "others go on");
    assert_eq!(settle(&store, &second, &later[1..], &Verdict::Delivered).await, []);
    store.close().await.unwrap();
    let successor = another(store.pool());
    let third = request(1);
    assert_eq!(claim(&successor, &third).await, ids[..1]);
    let settled = successor.settle(&all(&third, &[(ids[0], dead.clone())])).await.unwrap();
    assert_eq!(refused(&settled), ids[..1]);
    assert_eq!(
        claim(&successor, &request(10)).await,
        [],
        "nothing else is repeated, and it not at once"
    );
    execute(&store, "drop trigger no").await;
    successor.pass_time(Duration::from_secs(3));
    let fourth = request(10);
    let again = claim(&successor, &fourth).await;
    assert_eq!(again[..1], ids[..1], "it comes for its verdict");
    let settled = successor.settle(&all(&fourth, &[(ids[0], dead)])).await.unwrap();
    assert_eq!(refused(&settled), []);
    assert_eq!(successor.stats("default").await.unwrap().dead, 2);
}

/// Proves pitfall 19. A trigger with `raise(ignore)` makes a write vanish without a word.
#[tokio::test]
async fn a_write_that_a_trigger_swallows_is_refused_too() {
    let dead = Verdict::Dead { error: "no".to_owned() };
    for (write, verdict) in [
        ("insert", dead.clone()),
        ("delete", Verdict::Delivered),
        ("update of died_at", dead),
    ] {
        let (store, _directory) = fresh().await;
        let ids = enqueue(&store, ["a", "x", "b"].map(keyed)).await;
        let mut work = request(10);
        assert_eq!(claim(&store, &work).await, ids);
        if write != "insert" {
            let failed = Verdict::Retry {
                delay: Duration::ZERO,
                error: "no".to_owned(),
            };
            assert_eq!(settle(&store, &work, &ids, &failed).await, []);
            work = request(10);
            assert_eq!(claim(&store, &work).await, ids);
        }
        let row = if write == "delete" { "old" } else { "new" };
        let trigger = format!(
            "create trigger no before {write} on posthaste_log_failed when {row}.ordering_key = 'x'
            begin select raise(ignore); end"
        );
        sqlx::query(sqlx::AssertSqlSafe(trigger))
            .execute(store.pool())
            .await
            .unwrap();
        let verdicts: Vec<_> = ids.iter().map(|id| (*id, verdict.clone())).collect();
        let settled = store.settle(&all(&work, &verdicts)).await.unwrap();
        assert_eq!(refused(&settled), [ids[1]], "{write}");
        let error = settled.refused[0].error.to_string();
        assert!(error.contains("look for a trigger"), "{error}");

        execute(&store, "drop trigger no").await;
        store.pass_time(Duration::from_secs(3));
        let work = request(10);
        assert_eq!(claim(&store, &work).await, [ids[1]], "{write}");
        let settled = store.settle(&all(&work, &[(ids[1], verdict)])).await.unwrap();
        assert_eq!(refused(&settled), [], "{write}");
        let left = store.stats("default").await.unwrap();
        assert_eq!(left.waiting + left.pending, 0, "{write}: {left:?}");
    }
}

/// Rows beside the log, of which the table refuses that they failed again, and the end.
#[tokio::test]
async fn a_retry_that_the_table_refuses_stops_its_key_and_no_other() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, ["count", "end", "good"].map(keyed)).await;
    let first = request(10);
    assert_eq!(claim(&store, &first).await, ids);
    let failed = Verdict::Retry {
        delay: Duration::ZERO,
        error: "no".to_owned(),
    };
    assert_eq!(settle(&store, &first, &ids, &failed).await, []);
    execute(
        &store,
        "create trigger no_count before update on posthaste_log_failed when new.ordering_key = 'count'
        begin select raise(abort, 'audit: no count'); end",
    )
    .await;
    execute(
        &store,
        "create trigger no_end before delete on posthaste_log_failed when old.ordering_key = 'end'
        begin select raise(abort, 'audit: no end'); end",
    )
    .await;
    let second = request(10);
    let claimed = store.claim(&second).await.unwrap();
    let taken: Vec<_> = claimed.messages.iter().map(|claimed| claimed.message.id).collect();
    assert_eq!(taken, ids);
    let verdicts = [
        (ids[0], failed),
        (ids[1], Verdict::Delivered),
        (ids[2], Verdict::Delivered),
    ];
    let settled = store.settle(&all(&second, &verdicts)).await.unwrap();
    assert_eq!(refused(&settled), ids[..2]);
    assert!(settled.refused[0].error.to_string().contains("no count"));
    let fresh = enqueue(&store, [keyed("fresh")]).await;
    assert_eq!(claim(&store, &request(10)).await, fresh, "others go on");

    for _ in 0..5 {
        // However often it comes for its verdict, that is one attempt.
        store.pass_time(Duration::from_mins(2));
        let next = request(1);
        let claimed = store.claim(&next).await.unwrap();
        let mine = |claimed: &&ClaimedMessage| ids[..2].contains(&claimed.message.id);
        let Some(message) = claimed.messages.iter().find(mine) else {
            continue;
        };
        assert_eq!(message.attempts, 2);
        let verdict = verdicts.iter().find(|(id, _)| *id == message.message.id).unwrap();
        let settled = store.settle(&all(&next, std::slice::from_ref(verdict))).await.unwrap();
        assert_eq!(refused(&settled), [verdict.0]);
    }
    execute(&store, "drop trigger no_count").await;
    execute(&store, "drop trigger no_end").await;
    let mut delivered = Vec::new();
    for _ in 0..4 {
        store.pass_time(Duration::from_mins(2));
        let last = request(10);
        let claimed = claim(&store, &last).await;
        assert_eq!(settle(&store, &last, &claimed, &Verdict::Delivered).await, []);
        delivered.extend(claimed);
    }
    assert!(
        delivered.contains(&ids[0]) && delivered.contains(&ids[1]),
        "{delivered:?}"
    );
    assert_eq!(store.stats("default").await.unwrap().waiting, 0);
}

/// SQLite has rolled back by itself, as it also does when the disk is full.
#[tokio::test]
async fn a_connection_that_lost_its_transaction_is_not_used_for_ever() {
    for connections in [1, 3] {
        let (pool, _directory) = support::pool(connections).await;
        let store = another(&pool);
        store.migrate().await.unwrap();
        execute(
            &store,
            "create trigger lost before insert on posthaste_log_failed begin select raise(rollback, 'lost'); end",
        )
        .await;
        let ids = enqueue(&store, [keyed("a")]).await;
        let work = request(10);
        assert_eq!(claim(&store, &work).await, ids);
        let failed = Verdict::Dead { error: "no".to_owned() };
        for _ in 0..4 {
            // It is remembered.
            store.settle(&all(&work, &[(ids[0], failed.clone())])).await.unwrap();
            assert!(store.claim(&request(10)).await.is_err());
        }
        execute(&store, "drop trigger lost").await;
        assert_eq!(claim(&store, &request(10)).await, []);
        assert_eq!(store.stats("default").await.unwrap().dead, 1);
        let next = enqueue(&store, [keyed("b")]).await;
        assert_eq!(claim(&store, &request(10)).await, next);
    }
}

/// The lease is as long as what is handed out needs it, and little longer.
#[tokio::test]
async fn a_log_whose_reader_crashed_is_read_again_soon_after_the_lease() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, [keyed("a")]).await;
    assert_eq!(claim(&store, &request(10)).await, ids);
    let left: i64 = sqlx::query_scalar(
        "select leased_until - cast(unixepoch('subsec') * 1000 as integer) from posthaste_log_reader",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    let lease = i64::try_from(LEASE.as_millis()).unwrap();
    assert!(left <= lease * 5 / 4, "{left}");
}

/// Such as one whose circuit is open, or that lost the lead: it says that it lives, but claims nothing.
#[tokio::test]
async fn a_reader_that_claims_nothing_lets_others_read() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, [keyed("a")]).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    let other = another(store.pool());
    store.pass_time(LEASE * 2 / 3);
    let extend = ExtendRequest::new(work.token, &ids, LEASE);
    assert_eq!(store.extend(extend).await.unwrap().held, ids);
    store.pass_time(LEASE * 2 / 3);
    store.keep_alive().await.unwrap();
    let next = enqueue(&store, [keyed("b")]).await;
    assert_eq!(claim(&other, &request(10)).await, [], "an answer is open");
    assert_eq!(settle(&store, &work, &ids, &Verdict::Delivered).await, []);
    store.keep_alive().await.unwrap();
    assert_eq!(claim(&other, &request(10)).await, next, "and nothing is repeated");
    assert_eq!(claim(&store, &request(10)).await, []);
}

/// As while a broker hangs.
#[tokio::test]
async fn a_list_costs_no_more_while_many_ranges_are_open() {
    let (pool, _directory) = support::pool(1).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    let ids = enqueue(&store, (0..1_000).map(|n| keyed(&n.to_string()))).await;
    let work = support::Work::of(&pool).await;
    let mut costs = Vec::new();
    // Every third row.
    for ranges in [0, 300] {
        let open: Vec<_> = (0..ranges).map(|range| [3 * range + 1, 3 * range + 1]).collect();
        let read = sqlx::query("update posthaste_log_reader set hi = 900, open = ?");
        read.bind(sqlx::types::Json(open)).execute(&pool).await.unwrap();
        work.done();
        let records = store.list(&Filter::default(), None, 1_000).await.unwrap();
        costs.push(work.done());
        let pending = records.iter().filter(|record| record.state == State::Pending);
        let pending: Vec<_> = pending.map(|record| record.message.id).collect();
        let open = ids[..900].iter().step_by(3).take(ranges);
        assert_eq!(pending, open.chain(&ids[900..]).copied().collect::<Vec<_>>());
    }
    assert!(costs[1] < costs[0] * 2, "with none open and with 300: {costs:?}");
}
