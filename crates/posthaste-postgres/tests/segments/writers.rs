//! An insert never fails, and no row goes with its segment before it was read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::server_url;
use crate::{Log, Reader};

/// How long writers write at the least.
const WRITING: Duration = Duration::from_secs(12);
/// How long segments may take to come and go on a machine with other work.
const PATIENCE: Duration = Duration::from_mins(2);
/// Long enough that segments were rotated several times meanwhile.
const LONG_TRANSACTION: Duration = Duration::from_secs(3);
const WRITERS_OF_A_KIND: usize = 2;

/// What a writer does within a transaction.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Copy,
    Savepoints,
    OldSnapshot,
    Prepared,
    Long,
    RolledBack,
}

const KINDS: [Kind; 7] = [
    Kind::Plain,
    Kind::Copy,
    Kind::Savepoints,
    Kind::OldSnapshot,
    Kind::Prepared,
    Kind::Long,
    Kind::RolledBack,
];

struct Writer {
    schema: String,
    connection: PgConnection,
    /// Those that were committed.
    committed: Arc<Mutex<BTreeSet<Uuid>>>,
}

impl Writer {
    async fn run(&mut self, sql: &str) -> sqlx::Result<()> {
        let sql = AssertSqlSafe(sql.to_owned());
        self.connection.execute(sqlx::raw_sql(sql)).await.map(drop)
    }

    /// With a statement that is prepared, so that its plan is kept within the transaction and beyond.
    async fn insert(&mut self) -> sqlx::Result<Uuid> {
        let id = Uuid::now_v7();
        let sql = format!(
            "insert into {}.log (id, topic, ordering_key, payload) values ($1, 't', $2, 'p')",
            self.schema
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(id)
            .bind((id.as_u128() % 50).to_string())
            .execute(&mut self.connection)
            .await?;
        Ok(id)
    }

    async fn copy(&mut self, rows: usize) -> sqlx::Result<Vec<Uuid>> {
        let copy = format!("copy {}.log (id, topic, ordering_key, payload) from stdin", self.schema);
        let mut sink = self.connection.copy_in_raw(&copy).await?;
        let mut ids = Vec::new();
        for _ in 0..rows {
            let id = Uuid::now_v7();
            sink.send(format!("{id}\tt\t{}\tp\n", id.as_u128() % 50).as_bytes())
                .await?;
            ids.push(id);
            // A long one, whose rows go to several segments.
            sleep(Duration::from_millis(2)).await;
        }
        sink.finish().await?;
        Ok(ids)
    }

    async fn transaction(&mut self, kind: Kind) -> sqlx::Result<Vec<Uuid>> {
        let mut ids = Vec::new();
        match kind {
            Kind::OldSnapshot => {
                self.run("begin isolation level repeatable read").await?;
                let look = format!("select count(*) from {}.log where seq < 0", self.schema);
                self.run(&look).await?;
                sleep(Duration::from_millis(1_200)).await;
                ids.push(self.insert().await?);
            }
            Kind::Long => {
                self.run("begin").await?;
                let began = Instant::now();
                while began.elapsed() < LONG_TRANSACTION {
                    ids.push(self.insert().await?);
                    sleep(Duration::from_millis(100)).await;
                }
            }
            Kind::Copy => {
                self.run("begin").await?;
                ids.extend(self.copy(500).await?);
            }
            Kind::Savepoints => {
                self.run("begin").await?;
                for round in 0..6 {
                    self.run("savepoint s").await?;
                    let id = self.insert().await?;
                    if round % 2 == 0 {
                        self.run("rollback to savepoint s").await?;
                    } else {
                        ids.push(id);
                    }
                }
            }
            Kind::Plain | Kind::Prepared | Kind::RolledBack => {
                self.run("begin").await?;
                for _ in 0..5 {
                    ids.push(self.insert().await?);
                }
            }
        }
        match kind {
            Kind::RolledBack => {
                self.run("rollback").await?;
                ids.clear();
            }
            Kind::Prepared => {
                let gid = Uuid::now_v7();
                self.run(&format!("prepare transaction '{gid}'")).await?;
                sleep(Duration::from_millis(700)).await;
                self.run(&format!("commit prepared '{gid}'")).await?;
            }
            _ => self.run("commit").await?,
        }
        Ok(ids)
    }

    async fn write(mut self, kind: Kind, enough: CancellationToken) -> Result<(), String> {
        while !enough.is_cancelled() {
            let ids = self
                .transaction(kind)
                .await
                .map_err(|error| format!("{kind:?}: {error}"))?;
            self.committed.lock().unwrap().extend(ids);
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_insert_fails_and_no_row_is_lost_while_segments_rotate_and_retire() {
    let log = Log::fresh(8).await;
    let committed = Arc::new(Mutex::new(BTreeSet::new()));
    let (began, enough) = (Instant::now(), CancellationToken::new());
    let mut writers = JoinSet::new();
    for kind in KINDS.iter().cycle().take(KINDS.len() * WRITERS_OF_A_KIND) {
        let writer = Writer {
            schema: log.schema.clone(),
            connection: PgConnection::connect(&server_url()).await.unwrap(),
            committed: Arc::clone(&committed),
        };
        writers.spawn(writer.write(*kind, enough.clone()));
    }
    let mut reader = Reader::default();
    let (mut rotated, mut dropped) = (0, 0);
    while began.elapsed() < WRITING || (rotated < 5 || dropped < 3) && began.elapsed() < PATIENCE {
        reader.read(&log).await;
        let upkeep = log.tables.tend_segments(Some(Duration::ZERO)).await.unwrap();
        rotated += u32::from(upkeep.rotated);
        dropped += upkeep.dropped;
        sleep(Duration::from_millis(200)).await;
    }
    enough.cancel();
    while let Some(written) = writers.join_next().await {
        written.unwrap().expect("an insert never fails");
    }
    reader.read(&log).await;
    let committed = committed.lock().unwrap().clone();
    let lost: Vec<_> = committed.difference(&reader.seen).collect();
    assert!(lost.is_empty(), "{} of {} went unread", lost.len(), committed.len());
    assert_eq!(reader.seen.len(), committed.len(), "and none was invented");
    assert!(committed.len() > 1_000, "{}", committed.len());
    assert!(rotated >= 5 && dropped >= 3, "{rotated} rotated, {dropped} dropped");
}
