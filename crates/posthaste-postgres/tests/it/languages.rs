//! Enqueueing on connections that are not sqlx's: tokio-postgres, `psql`, Python.

use std::process::{Command, Output};

use posthaste_core::integrity::ContentHash;
use posthaste_core::message::Headers;
use posthaste_core::store::{AdminStore, Filter, Record};
use posthaste_core::{Enqueued, Message, OutboxOptions};
use posthaste_postgres::PostgresStore;
use posthaste_testkit::{RecordingPublisher, drain};
use tokio_postgres::NoTls;

use crate::support;

async fn rows(store: &PostgresStore) -> Vec<Record> {
    store.list(&Filter::default(), None, 100).await.unwrap()
}

fn schema(store: &PostgresStore) -> String {
    store.channel().replace("posthaste:", "")
}

/// Proves A2, B2, B4.
#[tokio::test]
async fn a_tokio_postgres_transaction_is_as_good_as_a_sqlx_one() {
    let store = support::store(2).await;
    let outbox = store.outbox(OutboxOptions::default());
    let (mut client, connection) = tokio_postgres::connect(&support::server_url(), NoTls).await.unwrap();
    tokio::spawn(connection);

    let mut tx = client.transaction().await.unwrap();
    outbox.enqueue(&mut tx, Message::new("orders", "gone")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(rows(&store).await.len(), 0, "a rollback leaves nothing");

    let mut tx = client.transaction().await.unwrap();
    let refused = outbox.enqueue(&mut tx, Message::new("", "x")).await.unwrap_err();
    assert!(refused.to_string().contains("topic is empty"), "{refused}");
    let message = Message::new("orders", vec![0, 159, 146, 150])
        .key("42")
        .dedupe_key("d")
        .header("trace", "t");
    let first = outbox.enqueue(&mut tx, message.clone()).await.unwrap();
    let second = outbox
        .enqueue(&mut tx, Message::new("orders", "y").dedupe_key("d"))
        .await
        .unwrap();
    tx.commit().await.unwrap();

    assert_eq!(
        (first, second),
        (Enqueued::Inserted(message.id), Enqueued::Duplicate(message.id))
    );
    let stored = rows(&store).await.remove(0).message;
    assert_eq!(
        stored,
        Message {
            namespace: Some("default".into()),
            ..message
        }
    );
}

fn psql(sql: &str) -> Output {
    let program = std::env::var("POSTHASTE_PG_BIN").map_or_else(|_| "psql".into(), |dir| format!("{dir}/psql"));
    let url = support::server_url();
    let command = [
        "--no-psqlrc",
        "--quiet",
        "--tuples-only",
        "--no-align",
        "-v",
        "ON_ERROR_STOP=0",
        "-c",
    ];
    Command::new(program)
        .arg(url)
        .args(command)
        .arg(sql)
        .output()
        .expect("psql runs")
}

/// Proves B2, B3, B4.
#[tokio::test]
async fn psql_enqueues_in_its_own_transaction() {
    let store = support::store(2).await;
    let schema = schema(&store);
    let call = format!(
        r#"{schema}.enqueue(topic => 'order-events', key => '42', payload => '{{"orderId": 42}}',
            event_type => 'acme.order.created.v1', aggregate_type => 'Order', aggregate_id => '42', tenant => 't1',
            dedupe_key => 't1/42', headers => '{{"traceparent": "00-1"}}', source => 'shop')"#
    );
    assert!(psql(&format!("begin; select * from {call}; rollback")).status.success());
    assert_eq!(rows(&store).await.len(), 0, "a rollback leaves nothing");

    let first = String::from_utf8(psql(&format!("select id, is_new from {call}")).stdout).unwrap();
    let again = String::from_utf8(psql(&format!("select id, is_new from {call}")).stdout).unwrap();
    let (id, is_new) = first.trim().split_once('|').unwrap();
    assert_eq!(
        (is_new, again.trim()),
        ("t", format!("{id}|f").as_str()),
        "the second is told from the first"
    );

    let row = rows(&store).await.remove(0);
    let uuid: uuid::Uuid = id.parse().unwrap();
    assert_eq!(uuid.get_version_num(), 7);
    let age = row
        .created_at
        .timestamp()
        .abs_diff(i64::try_from(uuid.get_timestamp().unwrap().to_unix().0).unwrap());
    assert!(age <= 1, "the id carries the time");
    let expected = Message::new("order-events", r#"{"orderId": 42}"#)
        .namespace("default")
        .key("42")
        .event_type("acme.order.created.v1")
        .aggregate("Order", "42")
        .tenant("t1")
        .dedupe_key("t1/42")
        .header("traceparent", "00-1")
        .source("shop");
    assert_eq!(
        row.message,
        Message {
            id: uuid.into(),
            ..expected
        }
    );
    assert_eq!(
        (row.attempts, row.next_attempt_at, row.locked_until),
        (0, row.created_at, None)
    );
}

/// A transaction says once which trace it belongs to. What the call says comes first, and nothing of it refuses a message.
#[tokio::test]
async fn what_sql_enqueues_belongs_to_the_trace_of_its_transaction() {
    let store = support::store(2).await;
    let schema = schema(&store);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let enqueue =
        |topic: &str, headers: &str| format!("select * from {schema}.enqueue('{topic}', 'x', headers => '{headers}');");
    let told = format!(
        "set local posthaste.traceparent = '{trace}'; set local posthaste.tracestate = 'vendor=1';
         set local posthaste.baggage = 'tenant=acme';"
    );
    let by_hand = r#"{"Trace-Parent": "mine", "a": "b"}"#;
    let full = format!(r#"{{"a": "{}"}}"#, "x".repeat(16_370));
    let script = [
        format!("begin; {told}"),
        enqueue("1", "{}"),
        enqueue("2", by_hand),
        enqueue("3", r#"{"BAGGAGE": "mine"}"#),
        enqueue("4", &full),
        "commit; begin;".to_owned(),
        enqueue("5", "{}"),
        format!("commit; begin; {told} set local posthaste.traceparent = 'nonsense';"),
        format!("set local posthaste.baggage = '{}';", "x".repeat(9_000)),
        enqueue("6", "{}"),
        format!(
            "set local posthaste.traceparent = '00-{}-b7ad6b7169203331-01';",
            "0".repeat(32)
        ),
        enqueue("7", "{}"),
        format!(
            "set local posthaste.traceparent = '{}-{}-01';",
            &trace[..35],
            "0".repeat(16)
        ),
        enqueue("8", "{}"),
        "commit".to_owned(),
    ];
    let output = psql(&script.concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found: Vec<_> = rows(&store).await.into_iter().map(|row| row.message).collect();
    found.sort_by(|one, other| one.topic.cmp(&other.topic));
    let found: Vec<Headers> = found.into_iter().map(|message| message.headers).collect();
    let headers = |pairs: &[(&str, &str)]| -> Headers {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    let whole = headers(&[
        ("traceparent", trace),
        ("tracestate", "vendor=1"),
        ("baggage", "tenant=acme"),
    ]);
    let own = headers(&[("Trace-Parent", "mine"), ("a", "b"), ("baggage", "tenant=acme")]);
    let own_baggage = headers(&[("traceparent", trace), ("tracestate", "vendor=1"), ("BAGGAGE", "mine")]);
    assert_eq!(found.len(), 8);
    assert_eq!(found[..3], [whole, own, own_baggage]);
    assert_eq!(found[3].len(), 1, "no room");
    assert_eq!(
        found[4..],
        [(); 4].map(|()| Headers::new()),
        "none, and ones that are none"
    );
}

/// The hash made in SQL is the one that the relay expects.
///
/// Proves D3.
#[tokio::test]
async fn what_sql_enqueued_is_delivered() {
    let store = support::store(2).await;
    let schema = schema(&store);
    let sql = format!(
        "select {schema}.enqueue(topic => 't', payload => 'ä'), {schema}.enqueue('t', payload_bytes => '\\xff00'),
            {schema}.enqueue('t', '{{}}', event_type => 'a.b.c.v1')"
    );
    assert!(psql(&sql).status.success());
    let broker = RecordingPublisher::new();
    let report = drain(store.clone(), broker.clone()).await;
    assert_eq!((report.delivered, report.died), (3, 0));
    let bodies: Vec<_> = broker
        .deliveries()
        .into_iter()
        .map(|delivery| delivery.message.payload)
        .collect();
    assert_eq!(bodies, ["ä".as_bytes(), b"\xff\0", b"{}"]);
    let message = &broker.deliveries()[2].message;
    assert_eq!(ContentHash::of_message(message).to_string().len(), 64);
}

/// Proves B5, C3.
#[tokio::test]
async fn bad_input_from_sql_is_refused_with_a_hint_and_a_savepoint_saves_the_transaction() {
    let store = support::store(2).await;
    let schema = schema(&store);
    for (arguments, message, hint) in [
        ("topic => '', payload => 'x'", "topic is empty", "Give it a value"),
        ("topic => 't'", "either payload or payload_bytes", "payload takes text"),
        (
            "topic => 't', payload => 'x', key => ''",
            "key is empty",
            "leave an optional one out",
        ),
        (
            "topic => repeat('t', 600), payload => 'x'",
            "topic has 600 bytes",
            "Shorten",
        ),
        (
            "topic => 't', payload => repeat('x', 1048577)",
            "payload has 1048577 bytes",
            "reference",
        ),
        (
            "topic => 't', payload => 'x', tenant => 'a', dedupe_key => 'b/1'",
            "does not begin with 'a/'",
            "Prefix",
        ),
        (
            "topic => 't', payload => 'x', event_type => 'OrderCreated'",
            "is not a type name",
            "acme.order.created.v1",
        ),
        (
            "topic => 't', payload => 'x', headers => '[1]'",
            "headers must be a JSON object",
            "Names are",
        ),
        (
            "topic => 't', payload => 'x', headers => '{\"a b\": \"c\"}'",
            "headers must be a JSON object",
            "Names are",
        ),
        (
            "topic => 't', payload => 'x', headers => '{\"a\": \"b\", \"I.D\": \"42\"}'",
            "headers: 'I.D' has the name of an envelope attribute",
            "Rename it",
        ),
        (
            "topic => 't', payload => 'x', headers => '{\"x-req\": \"1\", \"XReq\": \"2\"}'",
            "differs from another header only in case or punctuation",
            "Rename it",
        ),
        (
            "topic => 't', payload => 'x', headers => '{\"a\": \"b\\r\\nc: d\"}'",
            "headers: 'a' has a value with a line break",
            "remove it",
        ),
    ] {
        let output = psql(&format!("select {schema}.enqueue({arguments})"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            error.contains(message) && error.contains("HINT") && error.contains(hint),
            "{arguments}: {error}"
        );
    }
    let saved = psql(&format!(
        "begin; savepoint s; do $$ begin perform {schema}.enqueue('', 'x');
         exception when invalid_parameter_value then null; end $$;
         select {schema}.enqueue('t', 'x'); commit"
    ));
    assert!(saved.status.success(), "{saved:?}");
    assert_eq!(rows(&store).await.len(), 1);
}

/// Proves A2, B2, B4.
#[tokio::test]
async fn psycopg_enqueues_in_its_own_transaction() {
    if std::env::var("POSTHASTE_TEST_WITHOUT").is_ok_and(|without| without.contains("python")) {
        eprintln!("NOT RUN: Python cannot be had here");
        return;
    }
    let store = support::store(2).await;
    let script = r#"
import json, sys, psycopg
url, schema = sys.argv[1:]
call = f"select id, is_new from {schema}.enqueue(topic => %s, key => %s, payload => %s, dedupe_key => %s)"
with psycopg.connect(url) as conn:
    try:
        with conn.transaction():
            conn.execute(call, ("orders", "1", json.dumps({"n": 1}), None))
            raise RuntimeError("the order failed")
    except RuntimeError:
        pass
    with conn.transaction():
        first = conn.execute(call, ("orders", "2", json.dumps({"n": 2}), "d")).fetchone()
        second = conn.execute(call, ("orders", "2", json.dumps({"n": 3}), "d")).fetchone()
    with conn.transaction():
        try:
            with conn.transaction():
                conn.execute(call, ("", None, "x", None))
        except psycopg.errors.InvalidParameterValue as error:
            hint = error.diag.message_hint
        conn.execute(call, ("orders", None, "{}", None))
conn.close()
with psycopg.connect(url, autocommit=True) as conn:
    conn.execute(f"select {schema}.ring()")
print(json.dumps({"same": first[0] == second[0], "new": [first[1], second[1]], "hint": hint}))
"#;
    let output = Command::new("python3")
        .env(
            "PYTHONPATH",
            std::env::var("POSTHASTE_TEST_PYTHONPATH").unwrap_or_default(),
        )
        .args(["-c", script, &support::server_url(), &schema(&store)])
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["same"], &said["new"]),
        (&true.into(), &serde_json::json!([true, false]))
    );
    assert!(said["hint"].as_str().unwrap().contains("Give it a value"));
    let payloads: Vec<_> = rows(&store).await.into_iter().map(|row| row.message.payload).collect();
    assert_eq!(payloads, [r#"{"n": 2}"#, "{}"]);
}
