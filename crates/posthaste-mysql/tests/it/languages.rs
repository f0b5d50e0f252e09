//! Other languages write to the outbox through the procedure: Python, and the client that comes with the server.

use std::fmt::Write as _;
use std::process::{Command, Output};

use posthaste_core::message::Headers;
use posthaste_core::store::{Filter, Record};
use posthaste_core::{AdminStore, Message, OutboxOptions, RelayStore};
use posthaste_mysql::MySqlStore;
use posthaste_servers::MariaDbBinaries;
use posthaste_testkit::{RecordingPublisher, drain};
use sqlx::{Connection, MySqlConnection, Row};

use crate::support;

async fn rows(store: &MySqlStore) -> Vec<Record> {
    store.list(&Filter::default(), None, 100).await.unwrap()
}

async fn database(store: &MySqlStore) -> String {
    sqlx::query_scalar("select database()")
        .fetch_one(store.pool())
        .await
        .unwrap()
}

/// Host, port and user of the test server.
fn server() -> (String, String) {
    let url = support::server_url();
    let (_, rest) = url.split_once('@').unwrap();
    let (address, _) = rest.split_once('/').unwrap();
    let (host, port) = address.split_once(':').unwrap();
    (host.to_owned(), port.to_owned())
}

/// Runs SQL with the client.
fn mariadb(database: &str, sql: &str) -> Output {
    let (host, port) = server();
    Command::new(MariaDbBinaries::find().unwrap().program("mariadb"))
        .args([
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--user=root",
            "--default-character-set=utf8mb4",
        ])
        .args([
            "--host",
            &host,
            "--port",
            &port,
            "--database",
            database,
            "--execute",
            sql,
        ])
        .output()
        .expect("the client runs")
}

/// Proves A2, B2, B3.
#[tokio::test]
async fn the_procedure_writes_what_the_library_would() {
    let store = support::store(2).await;
    let options = r#"{"event_type": "acme.order.created.v1", "aggregate_type": "Order", "aggregate_id": "42",
        "tenant": "t1", "dedupe_key": "t1/42", "headers": {"traceparent": "00-ab"}, "source": "shop",
        "content_type": "application/json", "namespace": "n", "not_before": "2000-01-01 00:00:00"}"#;
    let sql = format!(
        "start transaction; call posthaste_enqueue('orders', '42', '{{\"ü\": 1}}', '{options}', @id, @is_new); commit;
         select @id, @is_new"
    );
    let output = mariadb(&database(&store).await, &sql);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let (id, is_new) = said.trim().split_once('\t').unwrap();
    assert_eq!(is_new, "1");

    let [row] = &rows(&store).await[..] else {
        panic!("one row")
    };
    let mut expected = Message::new("orders", r#"{"ü": 1}"#)
        .key("42")
        .event_type("acme.order.created.v1")
        .aggregate("Order", "42")
        .tenant("t1")
        .dedupe_key("t1/42")
        .header("traceparent", "00-ab")
        .source("shop")
        .namespace("n");
    expected.id = id.parse().unwrap();
    assert_eq!(row.message, expected);
    assert_eq!((row.attempts, row.next_attempt_at), (0, row.created_at));
    assert_eq!(expected.id.uuid().unwrap().get_version_num(), 7);
    let age = chrono::Utc::now() - row.created_at;
    assert!(age.num_seconds().abs() < 60, "times are UTC: {age}");
}

/// A session says which trace it belongs to. What the call says comes first, and nothing of it refuses a message.
#[tokio::test]
async fn what_the_procedure_writes_belongs_to_the_trace_of_its_session() {
    let store = support::store(2).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let enqueue = |topic: &str, options: &str| {
        format!("call posthaste_enqueue('{topic}', null, 'x', '{{\"headers\": {options}}}', @id, @is_new);")
    };
    let full = format!(r#"{{"a": "{}"}}"#, "x".repeat(16_370));
    let script = [
        format!(
            "set @posthaste_traceparent = '{trace}', @posthaste_tracestate = 'vendor=1', @posthaste_baggage = 'a=1';"
        ),
        enqueue("1", "{}"),
        enqueue("2", r#"{"Trace-Parent": "mine"}"#),
        enqueue("3", r#"{"BAGGAGE": "mine"}"#),
        enqueue("4", &full),
        "set @posthaste_traceparent = 'nonsense', @posthaste_baggage = repeat('x', 9000);".to_owned(),
        enqueue("5", "{}"),
        "set @posthaste_traceparent = null, @posthaste_baggage = null;".to_owned(),
        enqueue("6", "{}"),
    ];
    let output = mariadb(&database(&store).await, &script.concat());
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
    let whole = headers(&[("traceparent", trace), ("tracestate", "vendor=1"), ("baggage", "a=1")]);
    let own = headers(&[("Trace-Parent", "mine"), ("baggage", "a=1")]);
    let own_baggage = headers(&[("traceparent", trace), ("tracestate", "vendor=1"), ("BAGGAGE", "mine")]);
    assert_eq!(found.len(), 6);
    assert_eq!(found[..3], [whole, own, own_baggage]);
    assert_eq!(found[3].len(), 1, "no room");
    assert_eq!(
        found[4..],
        [Headers::new(), Headers::new()],
        "one that is none, and none"
    );
}

/// Bytes that are no text, ids of zeros and a line break at the end.
#[tokio::test]
async fn a_session_whose_trace_is_none_enqueues_without_it() {
    let store = support::store(2).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let no_trace = format!("'00-{}-b7ad6b7169203331-01'", "0".repeat(32));
    let no_span = format!("'00-0af7651916cd43dd8448eb211c80319c-{}-01'", "0".repeat(16));
    let line = format!("concat('{trace}', char(10))");
    let enqueue = "call posthaste_enqueue('t', null, 'x', null, @id, @is_new);";
    let mut script = "set @posthaste_tracestate = 0xff00ff, @posthaste_baggage = 0xff00ff;".to_owned();
    for traceparent in ["0xff00ff", &no_trace, &no_span, &line] {
        write!(script, "set @posthaste_traceparent = {traceparent}; {enqueue}").unwrap();
    }
    write!(script, "set @posthaste_traceparent = '{trace}'; {enqueue}").unwrap();
    let output = mariadb(&database(&store).await, &script);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<_> = rows(&store).await.into_iter().map(|row| row.message.headers).collect();
    assert_eq!(found.len(), 5);
    let written: Vec<_> = found.into_iter().flatten().collect();
    assert_eq!(written, [("traceparent".to_owned(), trace.to_owned())]);
}

/// Proves B13.
#[tokio::test]
async fn what_the_procedure_writes_passes_the_integrity_check_and_is_delivered() {
    let store = support::store(4).await;
    let sql = "call posthaste_enqueue('t', null, x'00ff27', '{\"event_type\": \"a.b.c.v1\"}', @id, @new);
        call posthaste_enqueue('t', 'k', '', null, @id, @new)";
    assert!(mariadb(&database(&store).await, sql).status.success());
    let broker = RecordingPublisher::new();
    let report = drain(store.clone(), broker.clone()).await;
    assert_eq!((report.delivered, report.died), (2, 0));
    assert_eq!(broker.deliveries()[0].message.payload.as_ref(), [0, 255, 39]);
    store.check().await.unwrap();
}

/// Proves B4, B5.
#[tokio::test]
async fn bad_input_is_refused_with_the_remedy_and_changes_nothing() {
    let store = support::store(2).await;
    let mut conn = MySqlConnection::connect_with(&store.pool().connect_options())
        .await
        .unwrap();
    let long = format!("'{}'", "x".repeat(513));
    let large = "repeat('x', 1048577)";
    for (arguments, problem, remedy) in [
        ("'', null, 'x', null", "topic is empty", "give it a value"),
        ("null, null, 'x', null", "topic is empty", "give it a value"),
        (
            &format!("{long}, null, 'x', null"),
            "topic has more than 512 bytes",
            "shorten it",
        ),
        ("'t', ' ', 'x', null", "key is empty", "leave an optional one out"),
        ("'t', null, null, null", "payload is null", "give it a value"),
        (
            &format!("'t', null, {large}, null"),
            "payload has more than 1048576 bytes",
            "send a reference",
        ),
        ("'t', null, 'x', '[]'", "options is not a JSON object", "or null"),
        ("'t', null, 'x', 'nonsense'", "options is not a JSON object", "or null"),
        ("'t', null, 'x', '{\"colour\": 1}'", "no option colour", "leave it out"),
        (
            "'t', null, 'x', '{\"tenant\": \"a\", \"dedupe_key\": \"b/1\"}'",
            "dedupe_key does not begin",
            "prefix it",
        ),
        (
            "'t', null, 'x', '{\"event_type\": \"OrderCreated\"}'",
            "event_type is not a type name",
            "{company}",
        ),
        (
            "'t', null, 'x', '{\"event_type\": \"A.b.c.v1\"}'",
            "event_type is not a type name",
            "{company}",
        ),
        (
            "'t', null, 'x', '{\"headers\": []}'",
            "headers must be an object of strings",
            "names are",
        ),
        (
            "'t', null, 'x', '{\"headers\": {\"a b\": \"c\"}}'",
            "headers must be an object of strings",
            "names are",
        ),
        (
            "'t', null, 'x', '{\"headers\": {\"a\": 1}}'",
            "headers must be an object of strings",
            "names are",
        ),
        (
            "'t', null, 'x', '{\"headers\": {\"a\": \"b\", \"I.D\": \"42\"}}'",
            "header I.D has the name of an envelope attribute",
            "rename it",
        ),
        (
            "'t', null, 'x', '{\"headers\": {\"x-req\": \"1\", \"XReq\": \"2\"}}'",
            "differs from another header only in case or punctuation",
            "rename it",
        ),
        (
            "'t', null, 'x', '{\"headers\": {\"a\": \"b\\\\r\\\\nc: d\"}}'",
            "header a has a value with a control character",
            "remove it",
        ),
        (
            "'t', null, 'x', '{\"message_id\": \"42\"}'",
            "message_id is not a UUID",
            "leave it out",
        ),
        (
            "'t', null, 'x', '{\"not_before\": \"soon\"}'",
            "not_before is not a time",
            "UTC",
        ),
    ] {
        let mut tx = conn.begin().await.unwrap();
        let call = format!("call posthaste_enqueue({arguments}, @id, @is_new)");
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(call))
            .execute(&mut *tx)
            .await
            .unwrap_err();
        let refused = refused.into_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("22023"), "{arguments}: {refused}");
        assert!(
            refused.message().contains(problem) && refused.message().contains(remedy),
            "{arguments}: {refused}"
        );
        // The transaction goes on.
        sqlx::query("select 1").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(rows(&store).await, []);
}

/// Proves B4.
#[tokio::test]
async fn the_procedure_and_the_library_share_their_dedupe_keys() {
    let store = support::store(2).await;
    let mut tx = store.pool().begin().await.unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    let first = outbox
        .enqueue(&mut tx, Message::new("t", "x").dedupe_key("k"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut conn = store.pool().acquire().await.unwrap();
    for (key, same) in [("k", true), ("K", false), ("K", true)] {
        let call = format!("call posthaste_enqueue('t', null, 'y', '{{\"dedupe_key\": \"{key}\"}}', @id, @is_new)");
        sqlx::raw_sql(sqlx::AssertSqlSafe(call))
            .execute(&mut *conn)
            .await
            .unwrap();
        let said = sqlx::query("select @id as id, @is_new as is_new")
            .fetch_one(&mut *conn)
            .await
            .unwrap();
        assert_eq!(said.get::<i64, _>("is_new"), i64::from(!same), "{key}");
        if key == "k" {
            assert_eq!(said.get::<String, _>("id"), first.id().to_string());
        }
    }
    let again = format!(
        "call posthaste_enqueue('t', null, 'z', '{{\"message_id\": \"{}\"}}', @id, @is_new)",
        first.id()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(again))
        .execute(&mut *conn)
        .await
        .unwrap();
    let said = sqlx::query("select @is_new as is_new")
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    assert_eq!(said.get::<i64, _>("is_new"), 0, "the same id is the same event");
    assert_eq!(rows(&store).await.len(), 2);
}

/// Proves A2, B2, B4.
#[tokio::test]
async fn pymysql_enqueues_in_its_own_transaction() {
    if support::left_out("python") {
        eprintln!("NOT RUN: Python cannot be had here");
        return;
    }
    let store = support::store(2).await;
    let script = r#"
import json, sys, pymysql
host, port, database = sys.argv[1:]
conn = pymysql.connect(host=host, port=int(port), user="root", database=database, charset="utf8mb4")
def enqueue(cursor, topic, key, payload, **options):
    cursor.execute("call posthaste_enqueue(%s, %s, %s, %s, @id, @is_new)", (topic, key, payload, json.dumps(options)))
    cursor.execute("select @id, @is_new")
    return cursor.fetchone()
with conn.cursor() as cursor:
    enqueue(cursor, "orders", "1", json.dumps({"n": 1}))
    conn.rollback()
    first = enqueue(cursor, "orders", "2", json.dumps({"n": 2}), dedupe_key="d")
    second = enqueue(cursor, "orders", "2", json.dumps({"n": 3}), dedupe_key="d")
    try:
        enqueue(cursor, "", None, "x")
    except pymysql.err.MySQLError as error:
        refused = str(error)
    enqueue(cursor, "orders", None, "{}")
    conn.commit()
    conn.autocommit(True)
    enqueue(cursor, "orders", None, "[]", dedupe_key="e")
print(json.dumps({"same": first[0] == second[0], "new": [first[1], second[1]], "refused": refused}))
"#;
    let (host, port) = server();
    let output = Command::new("python3")
        .env(
            "PYTHONPATH",
            std::env::var("POSTHASTE_TEST_PYTHONPATH").unwrap_or_default(),
        )
        .args(["-c", script, &host, &port, &database(&store).await])
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["same"], &said["new"]),
        (&true.into(), &serde_json::json!([1, 0]))
    );
    assert!(said["refused"].as_str().unwrap().contains("give it a value"), "{said}");
    let payloads: Vec<_> = rows(&store).await.into_iter().map(|row| row.message.payload).collect();
    assert_eq!(payloads, [r#"{"n": 2}"#, "{}", "[]"]);
}
