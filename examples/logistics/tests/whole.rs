//! The worker in both places, and its death, on a real server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use logistics::{shipments, worker};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Executor, PgPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(90);

/// A database of its own and its address; `None` where the test runner said that there is no server.
async fn database() -> Option<(PgPool, String)> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "postgres") {
        eprintln!("NOT RUN: this test needs PostgreSQL");
        return None;
    }
    let url = std::env::var("POSTHASTE_TEST_POSTGRES_URL").expect("the server of `cargo xtask test`");
    let server: PgConnectOptions = url.parse().expect("a URL");
    let name = format!("logistics_{}", Uuid::new_v4().simple());
    let admin = PgPool::connect_with(server.clone()).await.expect("the server is up");
    let create = format!("create database {name}");
    admin.execute(AssertSqlSafe(create)).await.expect("a new database");
    let pool = PgPool::connect_with(server.database(&name)).await.expect("it is there");
    logistics::setup(&pool).await.expect("the tables");
    let (place, _) = url.rsplit_once('/').expect("a URL with a database");
    Some((pool, format!("{place}/{name}")))
}

async fn ship(pool: &PgPool, count: u32) -> Vec<String> {
    let mut events = Vec::new();
    for n in 0..count {
        let mut tx = pool.begin().await.expect("a transaction");
        let event = shipments::move_to(&mut tx, Uuid::new_v4(), &format!("berth {n}")).await;
        events.push(event.expect("it is written").to_string());
        tx.commit().await.expect("it is committed");
    }
    events
}

async fn eventually(what: &str, pool: &PgPool, sql: &'static str, wanted: i64) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let found: i64 = sqlx::query_scalar(sql).fetch_one(pool).await.expect("a number");
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "never {what}: {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const PUBLISHED: &str = "select count(*) from outbox_events where status = 'PUBLISHED' and processed_at is not null";
const FREE: &str =
    "select count(*) from (select 1 from outbox_events where status = 'PENDING' for update skip locked) free";

/// The ids in a file of events.
fn ids(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let id = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        event["id"].as_str().expect("an event has an id").to_owned()
    };
    let mut ids: Vec<_> = text.lines().map(id).collect();
    ids.sort();
    ids
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(url: &str, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_logistics"));
        command.args(["--database-url", url]).args(args).stdout(Stdio::piped());
        Self(command.spawn().expect("the service can be run"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL: it has no chance to say goodbye. It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same worker publishes inside an application and as a process of its own.
///
/// Proves E8.
#[tokio::test(flavor = "multi_thread")]
async fn the_worker_runs_inside_the_application_and_beside_it() {
    let Some((pool, url)) = database().await else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (inside, beside) = (directory.path().join("inside"), directory.path().join("beside"));

    let mut first = ship(&pool, 60).await;
    let stop = CancellationToken::new();
    let publisher = worker::to_file(&inside).expect("a file");
    let config = worker::config().expect("the map's policy");
    let working = tokio::spawn(worker::until(pool.clone(), publisher, config, stop.clone()));
    eventually("published inside", &pool, PUBLISHED, 60).await;
    stop.cancel();
    working.await.expect("it ends").expect("and well");
    first.sort();
    assert_eq!(ids(&inside), first);

    let mut second = ship(&pool, 60).await;
    let _process = Process::start(&url, &["worker", "--out", beside.to_str().expect("text")]);
    eventually("published beside", &pool, PUBLISHED, 120).await;
    second.sort();
    assert_eq!(ids(&beside), second);
}

/// A worker holds its rows while it publishes. Killed in the middle of a batch, it frees them at once, long before any
/// lease or limit of time, and another worker publishes them.
///
/// Proves E6.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_the_middle_of_a_batch_frees_its_rows() {
    let Some((pool, url)) = database().await else { return };
    let mut events = ship(&pool, 20).await;
    let mut stuck = Process::start(&url, &["stuck"]);
    let out = stuck.0.stdout.take().expect("its output");
    let begun = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(out).lines();
        (lines.next(), lines)
    });
    let begun = tokio::time::timeout(TIMEOUT, begun).await.expect("it begins");
    let (line, _lines) = begun.expect("it is read");
    assert!(matches!(line, Some(Ok(line)) if line.starts_with("begun")));
    let free: i64 = sqlx::query_scalar(FREE).fetch_one(&pool).await.expect("a number");
    assert_eq!(free, 0, "all rows are held");

    drop(stuck);
    eventually("freed", &pool, FREE, 20).await;
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("events");
    let _process = Process::start(&url, &["worker", "--out", out.to_str().expect("text")]);
    eventually("published", &pool, PUBLISHED, 20).await;
    events.sort();
    assert_eq!(ids(&out), events);
    let retried: i64 = sqlx::query_scalar("select sum(retry_count)::bigint from outbox_events")
        .fetch_one(&pool)
        .await
        .expect("a number");
    assert_eq!(retried, 0, "nobody had tried them");
}
