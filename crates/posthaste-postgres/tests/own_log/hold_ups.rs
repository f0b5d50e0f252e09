//! What keeps shards from being read, and only an operator can mend, is said.

use std::path::Path;
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::store::AdminStore;
use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_servers::{PostgresServer, StopMode};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor, PgConnection};

use crate::fixture::{Log, payloads};
use crate::support;

const PATIENCE: Duration = Duration::from_mins(1);

impl Log {
    /// Claims, which brings nothing, until there is something that an operator should know.
    async fn notice(&self) -> String {
        let begun = Instant::now();
        loop {
            assert!(self.claim(10).await.is_empty(), "nothing may be read");
            if let Some(notice) = self.store.reading().notices.first() {
                return notice.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.store.reading());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn delivers(&self, expected: &str) {
        let begun = Instant::now();
        loop {
            let token = LeaseToken::new();
            let claimed = self.claim_as(token, 10).await;
            if !claimed.is_empty() {
                assert_eq!(payloads(&claimed), [expected]);
                self.settle(token, claimed[0].message.id, Verdict::Delivered).await;
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.store.reading());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Has the lock of the first shard's reader, as one that is frozen.
    async fn lock_first(&self, connection: &mut PgConnection) -> i32 {
        let table = format!("{}.log_shards", self.store.map().schema().unwrap().quoted('"'));
        sqlx::query_scalar(
            "select pg_backend_pid() from pg_advisory_lock(hashtextextended(
                'posthaste:log:' || $1::text::regclass::oid::text || ':0', 0))",
        )
        .bind(table)
        .fetch_one(connection)
        .await
        .unwrap()
    }
}

fn message(payload: &'static str) -> Message {
    Message::new("orders", payload).key("k")
}

#[tokio::test]
async fn a_transaction_that_keeps_new_shards_waiting_is_named() {
    let log = Log::fresh().await;
    let mut open = log.pool.begin().await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut *open)
        .await
        .unwrap();
    let outbox = log.store.outbox(OutboxOptions::default());
    outbox.enqueue(&mut open, message("never")).await.unwrap();
    let writers = log.store.tables().unwrap().writers().await.unwrap();
    assert!(
        writers.values().any(|writer| writer.contains(&pid.to_string())),
        "{writers:?}"
    );
    log.raise(2).await;
    log.enqueue(vec![message("behind")]).await;
    assert!(log.claim(10).await.is_empty());
    assert!(log.store.reading().notices.is_empty(), "it may end at any moment");
    log.store.pass_time(Duration::from_secs(11));
    let notice = log.notice().await;
    assert!(notice.contains(&format!("pg_terminate_backend({pid})")), "{notice}");
    assert!(log.store.reading().waiting >= Duration::from_secs(11));
    let hold_ups = log.store.hold_ups().await.unwrap();
    assert!(hold_ups[0].contains(&pid.to_string()), "{hold_ups:?}");
    open.rollback().await.unwrap();
    log.delivers("behind").await;
    let reading = log.store.reading();
    assert_eq!((reading.notices, reading.waiting), (Vec::new(), Duration::ZERO));
    assert_eq!(reading.shards, [0, 1, 2]);
    assert!(log.store.hold_ups().await.unwrap().is_empty());
    assert!(log.store.tables().unwrap().writers().await.unwrap().is_empty());
}

/// A restart gives it another name in the list of locks.
#[tokio::test]
async fn a_prepared_transaction_that_keeps_new_shards_waiting_is_named_before_and_after_a_restart_of_the_server() {
    let server = PostgresServer::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let log = Log::at(server.url().parse().unwrap(), &support::fresh_schema()).await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut session = log.pool.acquire().await.unwrap();
    session.execute("begin").await.unwrap();
    outbox.enqueue(&mut session, message("never")).await.unwrap();
    session.execute("prepare transaction 'left alone'").await.unwrap();
    session.close().await.unwrap();
    let is_named = async || {
        let writers = log.store.tables().unwrap().writers().await.unwrap();
        assert!(
            writers.values().all(|writer| writer.contains("'left alone'")) && writers.len() == 1,
            "{writers:?}"
        );
        let hold_ups = log.store.hold_ups().await.unwrap();
        assert!(
            hold_ups[0].contains("'left alone'") && hold_ups.len() == 1,
            "{hold_ups:?}"
        );
    };
    log.raise(2).await;
    log.enqueue(vec![message("behind")]).await;
    is_named().await;
    assert!(log.claim(10).await.is_empty());
    log.store.pass_time(Duration::from_secs(11));
    let notice = log.notice().await;
    assert!(notice.contains("'left alone'"), "{notice}");
    server.stop(StopMode::Fast).unwrap();
    server.start_again().unwrap();
    is_named().await;
    log.run("rollback prepared 'left alone'").await;
    let successor = log.after_a_crash();
    successor.delivers("behind").await;
    assert!(successor.store.hold_ups().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_row_that_keeps_new_shards_waiting_is_named() {
    let log = Log::fresh().await;
    log.enqueue(vec![message("first")]).await;
    let token = LeaseToken::new();
    let first = log.claim_as(token, 10).await.remove(0).message.id;
    log.raise(2).await;
    log.enqueue(vec![message("behind")]).await;
    assert!(log.claim(10).await.is_empty());
    log.store.pass_time(Duration::from_secs(11));
    let notice = log.notice().await;
    assert!(notice.contains("shard 0 is not read to its end"), "{notice}");
    log.settle(token, first, Verdict::Delivered).await;
    log.delivers("behind").await;
}

/// A connection that is frozen may keep the lock where no timeout of the server ends it. Its relay has lost the seat, so the
/// one that has it ends that connection.
#[tokio::test]
async fn whoever_keeps_the_lock_of_a_shard_without_its_seat_is_ended() {
    let log = Log::fresh().await;
    let mut frozen = support::server_url()
        .parse::<PgConnectOptions>()
        .unwrap()
        .connect()
        .await
        .unwrap();
    let pid = log.lock_first(&mut frozen).await;
    log.enqueue(vec![message("behind")]).await;
    assert!(log.claim(10).await.is_empty());
    assert_eq!(log.store.shards().await.unwrap()[0].process, Some(pid));
    log.store.pass_time(Duration::from_secs(31));
    log.delivers("behind").await;
    assert!(
        sqlx::query("select 1").execute(&mut frozen).await.is_err(),
        "it is ended"
    );
}

#[tokio::test]
async fn one_of_another_role_that_keeps_the_lock_of_a_shard_is_named() {
    let log = Log::fresh().await;
    let schema = log.store.map().schema().unwrap().as_str().to_owned();
    let role = format!("other_of_{schema}");
    log.run(&format!(
        "create role \"{role}\" login; grant usage on schema \"{schema}\" to \"{role}\""
    ))
    .await;
    let address: PgConnectOptions = support::server_url().parse().unwrap();
    let mut frozen = address.username(&role).connect().await.unwrap();
    let pid = log.lock_first(&mut frozen).await;
    log.enqueue(vec![message("behind")]).await;
    assert!(log.claim(10).await.is_empty());
    log.store.pass_time(Duration::from_secs(31));
    let notice = log.notice().await;
    assert!(
        notice.contains(&format!("process {pid} of the role {role}")),
        "{notice}"
    );
    assert!(log.store.reading().shards.is_empty(), "it reads none");
    // It is another role's, and is left alone.
    sqlx::query("select pg_advisory_unlock_all()")
        .execute(&mut frozen)
        .await
        .unwrap();
    log.delivers("behind").await;
    assert!(log.store.reading().notices.is_empty());
    drop(frozen);
    log.run(&format!("drop owned by \"{role}\"; drop role \"{role}\""))
        .await;
}
