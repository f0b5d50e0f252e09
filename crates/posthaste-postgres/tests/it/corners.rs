//! Times that never come, durations without end, and the server's own ideas of isolation.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, State, Verdict};
use posthaste_core::store::{ClaimRequest, DeadHead, Filter, KeyOrdering, PurgeRequest, SchemaStore, Scope, WorkerId};
use posthaste_core::{AdminStore, Message, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sql::table::BuiltinMap;
use posthaste_testkit::RecordingPublisher;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::support;

fn request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit,
        max_bytes: 1 << 30,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

async fn run(store: &PostgresStore, sql: String) {
    store.pool().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
}

fn schema(store: &PostgresStore) -> String {
    store.channel().replace("posthaste:", "")
}

async fn enqueue(store: &PostgresStore, options: OutboxOptions, messages: Vec<Message>) {
    let mut tx = store.pool().begin().await.unwrap();
    store.outbox(options).enqueue_all(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}

/// Proves B2. What messages of a call have in common goes over once, and comes back with each of them.
#[tokio::test]
async fn each_message_has_what_is_its_own_and_what_is_common() {
    let store = support::store(2).await;
    let calls = support::calls_in_which_one_differs();
    for messages in calls.clone() {
        enqueue(&store, OutboxOptions::default(), messages).await;
    }
    for given in calls.concat() {
        let record = store.show(given.id).await.unwrap().expect("it was written");
        support::assert_as_given(&record.message, &given);
    }
}

/// Proves B3.
#[tokio::test]
async fn the_function_refuses_a_message_that_would_wait_for_ever() {
    let store = support::store(1).await;
    let schema = schema(&store);
    for never in ["infinity", "-infinity"] {
        let sql = format!("select {schema}.enqueue(topic => 't', payload => '{{}}', not_before => '{never}')");
        let error = store.pool().execute(AssertSqlSafe(sql)).await.unwrap_err();
        let error = error.as_database_error().unwrap();
        assert_eq!(error.code().unwrap(), "22023");
        assert!(error.message().contains("not_before is infinite"), "{error}");
    }
    let sql = format!("select {schema}.enqueue(topic => 't', payload => '{{}}', not_before => '2999-01-01')");
    store.pool().execute(AssertSqlSafe(sql)).await.unwrap();
}

#[tokio::test]
async fn infinite_times_in_the_native_table_are_shown_and_hurt_nobody() {
    let store = support::store(2).await;
    let schema = schema(&store);
    for (status, time) in [("dead", "infinity"), ("pending", "-infinity"), ("pending", "now")] {
        run(
            &store,
            format!(
                "insert into {schema}.outbox (id, namespace, topic, payload, status, created_at, next_attempt_at, updated_at)
                 values (gen_random_uuid(), 'default', 't', 'x', '{status}', '{time}', '{time}', '{time}')"
            ),
        )
        .await;
    }
    assert_eq!(store.list(&Filter::default(), None, 10).await.unwrap().len(), 3);
    store.stats("default").await.unwrap();
    let report = Relay::new(store.clone(), RecordingPublisher::new())
        .drain()
        .await
        .unwrap();
    assert_eq!(report.delivered, 2);
}

#[tokio::test]
async fn infinite_times_in_a_mapped_table_are_delivered_like_any_other() {
    let schema = support::fresh_schema();
    let become_owner = format!("set search_path = {schema}");
    let pool = PgPoolOptions::new().max_connections(3).after_connect(move |conn, _| {
        let become_owner = become_owner.clone();
        Box::pin(async move { conn.execute(AssertSqlSafe(become_owner)).await.map(drop) })
    });
    let pool = pool.connect(&support::server_url()).await.unwrap();
    let builtin = BuiltinMap::find("logistics").unwrap();
    let store = PostgresStore::with_map(pool, builtin.map().unwrap()).unwrap();
    run(&store, format!("create schema {schema}; {}", builtin.ddl)).await;
    for time in ["infinity", "-infinity", "now"] {
        run(
            &store,
            format!(
                "insert into outbox_events (id, aggregate_type, aggregate_id, event_type, payload, occurred_at)
                 values (gen_random_uuid(), 'Shipment', gen_random_uuid(), 'Moved', '{{}}', '{time}')"
            ),
        )
        .await;
    }
    let relay = Relay::new(store.clone(), RecordingPublisher::new());
    assert_eq!(relay.drain().await.unwrap().delivered, 3);
    run(&store, format!("drop schema {schema} cascade")).await;
}

#[tokio::test]
async fn durations_without_end_are_a_thousand_years() {
    let store = support::store(2).await;
    let options = OutboxOptions::new().dedupe_window(Duration::MAX);
    enqueue(&store, options, vec![Message::new("t", "x").dedupe_key("k")]).await;
    let request = request(1);
    let work = store.claim(&request).await.unwrap();
    let retry = Settlement {
        verdict: Verdict::Retry {
            delay: Duration::MAX,
            error: "come back later".into(),
        },
        ..Settlement::delivered(work.messages[0].message.id, request.token)
    };
    assert_eq!(store.settle(&[retry]).await.unwrap().lost, []);
    let pending = Filter {
        state: Some(State::Pending),
        ..Filter::default()
    };
    assert_eq!(store.list(&pending, None, 10).await.unwrap().len(), 1);
    assert_eq!(
        store
            .purge(&PurgeRequest::older_than(Duration::MAX, 10))
            .await
            .unwrap()
            .rows(),
        0
    );
}

/// Proves E2.
#[tokio::test(flavor = "multi_thread")]
async fn three_relays_share_a_server_whose_default_is_serializable() {
    let schema = support::fresh_schema();
    let store = async || {
        let pool = PgPoolOptions::new().max_connections(6).after_connect(|conn, _| {
            let strict = "set default_transaction_isolation = 'serializable'";
            Box::pin(async move { conn.execute(strict).await.map(drop) })
        });
        let pool = pool.connect(&support::server_url()).await.unwrap();
        PostgresStore::in_schema(pool, &schema).unwrap()
    };
    let first = store().await;
    first.migrate().await.unwrap();
    let messages = (0..3_000).map(|n| Message::new("t", n.to_string()).key(format!("k{}", n % 300)));
    enqueue(&first, OutboxOptions::default(), messages.collect()).await;
    let broker = RecordingPublisher::new();
    let config = RelayConfig {
        batch_size: 50,
        ..RelayConfig::default()
    };
    let mut relays = Vec::new();
    for _ in 0..3 {
        let relay = Relay::new(store().await, broker.clone()).config(config.clone());
        relays.push(tokio::spawn(relay.drain()));
    }
    for relay in relays {
        relay.await.unwrap().unwrap();
    }
    assert_eq!(broker.ids().len(), 3_000);
}

/// Proves B15.
#[tokio::test]
async fn a_call_into_a_table_ordered_by_time_keeps_its_order() {
    let schema = support::fresh_schema();
    let path = format!("set search_path = {schema}");
    let pool = PgPoolOptions::new().max_connections(2).after_connect(move |conn, _| {
        let path = path.clone();
        Box::pin(async move { conn.execute(AssertSqlSafe(path)).await.map(drop) })
    });
    let pool = pool.connect(&support::server_url()).await.unwrap();
    let builtin = BuiltinMap::find("logistics").unwrap();
    let store = PostgresStore::with_map(pool, builtin.map().unwrap()).unwrap();
    run(&store, format!("create schema {schema}; {}", builtin.ddl)).await;
    let options = OutboxOptions::new().type_names(posthaste_core::validate::TypeNameRule::Any);
    let shipment = "01890a5d-ac96-774b-bcce-b302099a8057";
    let message = |n: u32| {
        Message::new("shipment-events", format!("{{\"n\": {n}}}"))
            .aggregate("Shipment", shipment)
            .event_type("Moved")
    };
    let mut messages: Vec<_> = (0..20).map(message).collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.id));
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    enqueue(&store, options, messages).await;
    let work = store.claim(&request(100)).await.unwrap();
    let claimed: Vec<_> = work.messages.iter().map(|claimed| claimed.message.id).collect();
    assert_eq!(claimed, ids);
    run(&store, format!("drop schema {schema} cascade")).await;
}

/// Whoever waits for a claim may stop waiting at any moment; the connection it had is used by others.
#[tokio::test]
async fn a_claim_that_is_given_up_leaves_no_transaction_on_its_connection() {
    let store = support::store(1).await;
    store.check().await.unwrap();
    for moment in 0..200 {
        let _ = tokio::time::timeout(Duration::from_micros(moment * 10), store.claim(&request(1))).await;
        let sql = "select now() < statement_timestamp() as within_a_transaction";
        let row = sqlx::raw_sql(sql).fetch_one(store.pool()).await.unwrap();
        assert!(!row.get::<bool, _>("within_a_transaction"), "after {moment}0 µs");
    }
}

/// A claim that has as much as it may carry is over, however much there is beyond it.
#[tokio::test]
async fn a_claim_that_is_full_looks_no_further() {
    let store = support::store(1).await;
    let schema = schema(&store);
    run(
        &store,
        format!(
            "insert into {schema}.outbox (id, namespace, topic, ordering_key, content_type, payload, content_hash)
             select gen_random_uuid(), 'default', 't', 'k' || n, 'text/plain', repeat('x', 1000)::bytea, ''
             from generate_series(1, 1000) n"
        ),
    )
    .await;
    store.check().await.unwrap();
    let full = ClaimRequest {
        max_bytes: 50_500,
        ..request(200)
    };
    assert_eq!(store.claim(&full).await.unwrap().messages.len(), 50);
    assert_eq!(looks(&store).await, 1);
    assert_eq!(store.claim(&request(200)).await.unwrap().messages.len(), 200);
    assert_eq!(looks(&store).await, 2);
    let held = format!("update {schema}.outbox set ordering_key = 'k1' where status = 'pending'");
    run(&store, held).await;
    assert_eq!(store.claim(&request(200)).await.unwrap().messages.len(), 0);
    assert_eq!(looks(&store).await, 4, "rows, and then the one lane they have");
}

/// A relay plans its claims when it starts, mostly on an empty table, and keeps the plan.
#[tokio::test]
async fn a_claim_that_was_planned_on_an_empty_table_does_not_read_all_of_it_later() {
    let store = support::store(1).await;
    let schema = schema(&store);
    run(
        &store,
        format!("analyze {schema}.outbox; alter table {schema}.outbox set (autovacuum_enabled = off)"),
    )
    .await;
    assert_eq!(store.claim(&request(100)).await.unwrap().messages.len(), 0);
    // A destination is unavailable: the first row of each of its keys waits, and others wait behind it.
    run(
        &store,
        format!(
            "insert into {schema}.outbox (id, namespace, topic, ordering_key, payload, created_at, next_attempt_at)
             select gen_random_uuid(), 'default', 'away', 'k' || n % 100, '', now(),
                now() + case when n < 100 then interval '1 hour' else interval '0' end
             from generate_series(0, 599) n;
             insert into {schema}.outbox (id, namespace, topic, ordering_key, payload)
             select gen_random_uuid(), 'default', 'there', 'k', ''"
        ),
    )
    .await;
    let scans = async || -> i64 {
        run(&store, "select pg_stat_force_next_flush()".to_owned()).await;
        let sql = format!("select pg_stat_get_numscans('{schema}.outbox'::regclass)");
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(store.pool())
            .await
            .unwrap()
    };
    let before = scans().await;
    assert_eq!(store.claim(&request(100)).await.unwrap().messages.len(), 1);
    assert_eq!(scans().await, before, "the whole table was read");
}

/// How often the only connection of a store has looked for rows of keys.
async fn looks(store: &PostgresStore) -> i64 {
    let sql = "select coalesce(sum(generic_plans + custom_plans), 0)::bigint as looks
        from pg_prepared_statements where statement like '%fresh' || '_lanes%'";
    sqlx::query(sql).fetch_one(store.pool()).await.unwrap().get("looks")
}

/// A row that may not die, though its attempts are used up, holds up nobody else.
#[tokio::test]
async fn a_refused_death_stops_no_claim() {
    let store = support::store(2).await;
    let schema = schema(&store);
    let messages = vec![Message::new("t", "1").key("a"), Message::new("t", "2").key("b")];
    enqueue(&store, OutboxOptions::default(), messages).await;
    run(
        &store,
        format!(
            "update {schema}.outbox set status = 'processing', attempts = 5, lease_token = gen_random_uuid(),
                 locked_until = now() - interval '1s' where ordering_key = 'a';
             create function {schema}.no() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
             create trigger no before update on {schema}.outbox for each row when (new.status = 'dead')
             execute function {schema}.no()"
        ),
    )
    .await;
    let claim = store.claim(&request(10)).await.unwrap();
    assert_eq!((claim.messages.len(), claim.died.len()), (1, 0));
    assert_eq!(claim.messages[0].message.payload, "2");
    run(&store, format!("drop trigger no on {schema}.outbox")).await;
    assert_eq!(store.claim(&request(10)).await.unwrap().died.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_delivers_though_a_death_is_refused_and_says_so() {
    let store = support::store(4).await;
    let schema = schema(&store);
    let messages = vec![Message::new("t", "1").key("a"), Message::new("t", "2").key("b")];
    enqueue(&store, OutboxOptions::default(), messages).await;
    run(
        &store,
        format!(
            "update {schema}.outbox set attempts = 5, next_attempt_at = now() + interval '1h' where ordering_key = 'a';
             create function {schema}.no() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
             create trigger no before update on {schema}.outbox for each row
             when (new.status = 'dead' and new.ordering_key = 'a') execute function {schema}.no()"
        ),
    )
    .await;
    let mut config = RelayConfig::default();
    config.retry.max_attempts = 5;
    let broker = RecordingPublisher::new();
    let drained = Relay::new(store.clone(), broker.clone()).config(config).drain().await;
    assert_eq!(broker.ids().len(), 1);
    assert!(drained.unwrap_err().to_string().contains("no"), "it is not passed over");
}
