//! The same over SQLite, which has one writer at a time.

use posthaste_consumer::{Consumer, HandlerError, Once, Received};
use posthaste_core::store::SchemaStore;
use posthaste_sqlite::SqliteStore;
use sqlx::{Executor, SqliteConnection};

use crate::support::{Running, SOLD, Sale, World};

/// Handlers of several partitions wait for each other's transactions, and none of them fails for it.
#[tokio::test(flavor = "multi_thread")]
async fn handlers_of_several_partitions_share_one_writer() {
    let Some(world) = World::new(3).await else { return };
    let home = tempfile::tempdir().unwrap();
    let store = SqliteStore::connect(home.path().join("statistics.db")).await.unwrap();
    store.migrate().await.unwrap();
    store
        .pool()
        .execute("create table sales (n integer not null)")
        .await
        .unwrap();
    let sales: Vec<_> = (0..90)
        .map(|n| (world.sale("a", n), i32::try_from(n % 3).unwrap()))
        .collect();
    world.send_all(&sales).await;
    world.send_all(&sales[..30]).await;
    let running = Running::start(Consumer::new(world.config(), store.inbox(&world.group)).on(
        SOLD,
        Once::per_event(),
        async |tx: &mut SqliteConnection, event: Received<Sale>| -> Result<(), HandlerError> {
            // A read before the write: a transaction that did not begin as a writer would fail here.
            let _: i64 = sqlx::query_scalar("select count(*) from sales")
                .fetch_one(&mut *tx)
                .await?;
            tokio::task::yield_now().await;
            sqlx::query("insert into sales values (?1)")
                .bind(event.payload.n)
                .execute(tx)
                .await?;
            Ok(())
        },
    ));
    for partition in 0..3 {
        world.until_committed(partition, 40).await;
    }
    let report = running.stop().await;
    assert_eq!((report.handled, report.duplicates, report.retried), (90, 30, 0));
    let counted: (i64, i64) = sqlx::query_as("select count(*), count(distinct n) from sales")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(counted, (90, 90));
}
