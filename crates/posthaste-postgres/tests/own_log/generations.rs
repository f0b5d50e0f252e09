//! No shard of a new generation is read beside an unread row of the one before, whenever its transaction ends.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::{Message, OutboxOptions, RelayStore};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::fixture::{Log, payloads};
use crate::support;

/// How long something may take on a machine with other work.
const PATIENCE: Duration = Duration::from_mins(1);

fn message(payload: &'static str) -> Message {
    Message::new("orders", payload).key("k")
}

impl Log {
    async fn until(&self, sql: &'static str) {
        let begun = Instant::now();
        while self.count(sql).await == 0 {
            assert!(begun.elapsed() < PATIENCE, "{sql}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The look at locks is made to last until the transaction has ended: it had a lock before, and has a row afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_that_commits_while_locks_are_looked_at_is_not_overlooked() {
    let schema = support::fresh_schema();
    let log = Log::in_schema(&schema).await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut session = log.pool.acquire().await.unwrap();
    session.execute("begin").await.unwrap();
    outbox.enqueue(&mut session, message("unread")).await.unwrap();
    let prepare = format!("prepare transaction '{schema}'");
    session.execute(AssertSqlSafe(prepare)).await.unwrap();
    log.raise(2).await;
    // The first look is at those that may still take a number, the second at those that have taken one.
    log.run(
        "create sequence looks;
         create function slow_locks() returns setof pg_catalog.pg_locks language plpgsql as $$
         begin
            if nextval('looks') = 2 then perform pg_advisory_xact_lock(hashtext(current_schema())); end if;
            return query select * from pg_catalog.pg_locks;
         end $$;
         create view pg_locks as select * from slow_locks()",
    )
    .await;
    let mut gate = log.pool.begin().await.unwrap();
    gate.execute("select pg_advisory_xact_lock(hashtext(current_schema()))")
        .await
        .unwrap();
    let mut looking = PgConnection::connect(&support::server_url()).await.unwrap();
    let path = format!("set search_path = {schema}, pg_catalog");
    looking.execute(AssertSqlSafe(path)).await.unwrap();
    let readable = tokio::spawn(async move {
        let shards = sqlx::query_scalar::<_, i32>("select log_readable_shards()");
        shards.fetch_all(&mut looking).await.unwrap()
    });
    log.until(
        "select count(*) from pg_catalog.pg_locks
         where locktype = 'advisory' and not granted and objid::bigint = hashtext(current_schema())::bigint & 4294967295",
    )
    .await;
    log.run(&format!("commit prepared '{schema}'")).await;
    gate.rollback().await.unwrap();
    assert_eq!(readable.await.unwrap(), [0], "its row was not read");
}

/// A database may have any isolation level for its sessions; what is proved by locks needs a snapshot for each statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_serializable_sessions_reads_one_generation_after_the_other() {
    let url = support::server_url() + "?options[default_transaction_isolation]=serializable";
    let log = Log::at(url.parse().unwrap(), &support::fresh_schema()).await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut late = log.pool.begin().await.unwrap();
    outbox.enqueue(&mut late, message("late")).await.unwrap();
    log.raise(2).await;
    log.enqueue(vec![message("behind")]).await;
    assert!(log.claim(10).await.is_empty());
    // Whoever looks at generations stops there, with a snapshot of before if it has one for all that it asks.
    let mut gate = log.pool.begin().await.unwrap();
    gate.execute("lock table log_generations in access exclusive mode")
        .await
        .unwrap();
    let store = log.store.clone();
    let (token, begun) = (LeaseToken::new(), Instant::now());
    let claiming = tokio::spawn(async move {
        loop {
            let claimed = store.claim(&crate::fixture::request(token, 10)).await.unwrap().messages;
            if !claimed.is_empty() || begun.elapsed() > PATIENCE {
                return claimed;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    log.until(
        "select count(*) from pg_locks
         where relation = 'log_generations'::regclass and not granted",
    )
    .await;
    late.commit().await.unwrap();
    gate.rollback().await.unwrap();
    let claimed = claiming.await.unwrap();
    assert_eq!(payloads(&claimed), ["late"]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        let more = log.claim(10).await;
        assert!(more.is_empty(), "{:?} passes one that is not settled", payloads(&more));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    log.settle(token, claimed[0].message.id, Verdict::Delivered).await;
    let begun = Instant::now();
    let mut next = Vec::new();
    while next.is_empty() && begun.elapsed() < PATIENCE {
        next = payloads(&log.claim(10).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(next, ["behind"]);
}
