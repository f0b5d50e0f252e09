//! An outbox on a real PostgreSQL, producers that use it, and relays that are processes.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use posthaste_core::{AdminStore, EnqueueError, Enqueued, Message, MessageId};
use posthaste_postgres::{LogTables, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, PgConnection, PgPool, Row};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use crate::oracle::{Committed, Verdict, judge};
use crate::pace::Pace;
use crate::sink::{self, Sink};
use crate::tables::{Store, Tables};
use crate::writers::Way;

/// Long enough for a busy machine on which nothing was delivered meanwhile; a test that needs it all has failed anyway.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The same if deliveries go on, which a slow machine may take a while for.
const LONGEST_TIMEOUT: Duration = Duration::from_mins(10);

pub struct World {
    tables: Tables,
    store: Store,
    pub pool: PgPool,
    pub schema: String,
    /// Where relays and producers connect.
    url: String,
    /// Past a pooler, where there is one.
    direct: PgPool,
    pub sink: Sink,
    dir: TempDir,
    pub kills: AtomicUsize,
    pace: Pace,
    /// The deliveries that these may have kept the readers of a log from writing down.
    unwritten: AtomicUsize,
    _turn: SemaphorePermit<'static>,
}

/// How many worlds there are at a time: their processes keep a machine busy, however many tests may run at once.
static TURNS: Semaphore = Semaphore::const_new(2);

/// Most messages that one relay has in flight, so the most that one death can deliver twice.
pub const MAX_IN_FLIGHT: usize = 60;

/// After this a relay is killed that delivers nothing, maybe because another one does.
const LONGEST_LIFE: Duration = Duration::from_secs(10);

/// Most events of one transaction.
const MAX_EVENTS: i64 = 10;

/// The server that all tests share.
fn server() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES_URL")
        .expect("POSTHASTE_TEST_POSTGRES_URL names no server: run these tests with `cargo xtask test`")
}

/// A key of a producer's own. Some tables take UUIDs only.
fn key(producer: usize, n: i64) -> String {
    uuid::Uuid::from_u64_pair(producer as u64, n.unsigned_abs()).to_string()
}

impl World {
    /// An outbox on the server that all tests share, delivered to a file.
    pub async fn new() -> Arc<Self> {
        Self::with_sink(Sink::File).await
    }

    /// An outbox on the server that all tests share.
    pub async fn with_sink(sink: Sink) -> Arc<Self> {
        Self::delivering(Tables::Native, sink).await
    }

    /// Any tables on the server that all tests share.
    pub async fn delivering(tables: Tables, sink: Sink) -> Arc<Self> {
        Self::build(tables, server(), &server(), sink).await
    }

    /// Other tables, on the server that all tests share, delivered to a file.
    pub async fn over(tables: Tables) -> Arc<Self> {
        Self::over_at(tables, server()).await
    }

    /// Any tables on any server, delivered to a file.
    pub async fn over_at(tables: Tables, url: String) -> Arc<Self> {
        Self::build(tables, url.clone(), &url, Sink::File).await
    }

    /// An outbox on any server to which producers and relays connect through a pooler.
    pub async fn behind(url: String, direct: &str, sink: Sink) -> Arc<Self> {
        Self::build(Tables::Native, url, direct, sink).await
    }

    async fn build(tables: Tables, url: String, direct: &str, sink: Sink) -> Arc<Self> {
        let turn = TURNS.acquire().await.unwrap();
        let direct = PgPoolOptions::new().connect(direct).await.unwrap();
        let schema = format!("crash_{}", uuid::Uuid::new_v4().simple());
        let mut options: PgConnectOptions = url.parse().unwrap();
        if tables.map().is_some() {
            options = options.options([("search_path", &schema)]);
        }
        let pool = PgPoolOptions::new().max_connections(20).connect_with(options).await;
        let pool = pool.unwrap();
        let store = match (tables, tables.map()) {
            (_, Some((map, ddl))) => {
                let schema = format!("create schema {schema}");
                direct.execute(AssertSqlSafe(schema)).await.unwrap();
                pool.execute(sqlx::raw_sql(ddl)).await.unwrap();
                Store::mapped(pool.clone(), map)
            }
            (Tables::NativeLog { shards }, None) => Store::native_log(pool.clone(), &schema, shards).await,
            (_, None) => Store::native(pool.clone(), &schema).await,
        };
        let business =
            format!("create table {schema}.business (id uuid primary key, key text not null, n bigint not null)");
        direct.execute(AssertSqlSafe(business)).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        Arc::new(Self {
            tables,
            store,
            pool,
            schema,
            url,
            direct,
            pace: Pace::of(sink.counter(dir.path())),
            sink,
            dir,
            kills: AtomicUsize::new(0),
            unwritten: AtomicUsize::new(0),
            _turn: turn,
        })
    }

    /// Where rows are.
    pub fn store(&self) -> &PostgresStore {
        match &self.store {
            Store::Rows(store) => store,
            Store::Log(_) => panic!("the events are in a log"),
        }
    }

    /// An operator's verbs.
    pub fn admin(&self) -> &dyn AdminStore {
        self.store.admin()
    }

    /// How many messages were given up.
    pub async fn dead(&self) -> u64 {
        self.store.stats().await.unwrap().dead
    }

    /// The segments and shards of Posthaste's own log.
    pub fn log_tables(&self) -> &LogTables {
        match &self.store {
            Store::Log(store) => store.tables().expect("a log of our own"),
            Store::Rows(_) => panic!("the events are in a queue"),
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("relay.log")).unwrap_or_default()
    }

    /// Starts a relay as a process. All relays of a world have the same configuration and the same sink.
    pub fn start_relay(&self, settings: &[(&str, &str)]) -> Child {
        let config = self.dir.path().join("posthaste.toml");
        if !config.exists() {
            let text = format!(
                r#"
                [database]
                url = "{url}"
                schema = "{schema}"
                {map}
                max_connections = 3
                [relay]
                batch_size = 20
                max_in_flight = {MAX_IN_FLIGHT}
                {times}
                poll_interval = "10ms"
                max_poll_interval = "50ms"
                fixed_delay = false
                retry = {{ max_attempts = 1000, backoff = {{ kind = "schedule", delays = ["10ms"] }} }}
                {sink}
                "#,
                url = self.url,
                schema = self.schema,
                map = self.tables.setting(self.dir.path()),
                times = self.tables.times(),
                sink = self.sink.settings(self.dir.path()),
            );
            // Renamed into place: another relay may be reading it.
            let draft = self.dir.path().join(format!("{}.toml", uuid::Uuid::new_v4()));
            std::fs::write(&draft, text).unwrap();
            std::fs::rename(&draft, &config).unwrap();
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("relay.log"))
            .unwrap();
        Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["run", "--config"])
            .arg(&config)
            .env("POSTHASTE_LOG__FORMAT", "text")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Commits an event of a key, or a few of them, or rolls them back. An error leaves it open whether the commit happened;
    /// the business table knows.
    pub async fn transact(&self, key: &str, n: i64, commit: bool) -> sqlx::Result<MessageId> {
        self.transact_for(Duration::ZERO, key, n, commit).await
    }

    /// The same in a transaction that stays open for so long.
    async fn transact_for(&self, time: Duration, key: &str, n: i64, commit: bool) -> sqlx::Result<MessageId> {
        let way = Way::of(self.tables, n);
        let mut tx = self.pool.begin().await?;
        let insert = format!("insert into {}.business values ($1, $2, $3)", self.schema);
        let mut messages = Vec::new();
        for place in 0..way.events() {
            let message = self.tables.event(self.sink.topic(), key, n);
            sqlx::query(AssertSqlSafe(insert.as_str()))
                .persistent(false)
                .bind(message.id.uuid())
                .bind(key)
                .bind(n * MAX_EVENTS + place)
                .execute(&mut *tx)
                .await?;
            messages.push(message);
        }
        let id = messages[0].id;
        way.write(self, &mut tx, messages).await?;
        sleep(time).await;
        way.end(self, tx, commit).await?;
        Ok(id)
    }

    /// By the library.
    pub async fn enqueue(&self, tx: &mut PgConnection, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
        self.store.enqueue(tx, messages).await
    }

    /// Producers that write until told to stop, each to keys of its own, one transaction in ten rolled back. They carry
    /// on through errors. The first one that writes to a log takes seconds for each transaction.
    pub fn produce(self: &Arc<Self>, producers: usize, stop: &Arc<AtomicBool>) -> tokio::task::JoinSet<()> {
        let mut tasks = tokio::task::JoinSet::new();
        for producer in 0..producers {
            let (world, stop) = (Arc::clone(self), Arc::clone(stop));
            tasks.spawn(async move {
                for n in 0_i64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = key(producer, n % 5);
                    let time = match world.tables {
                        Tables::NativeLog { .. } if producer == 0 => {
                            Duration::from_millis(rand::random_range(800..2_500))
                        }
                        _ => Duration::ZERO,
                    };
                    let commit = rand::random_range(0..10) > 0;
                    if world.transact_for(time, &key, n, commit).await.is_err() {
                        sleep(Duration::from_millis(50)).await;
                    }
                    sleep(Duration::from_millis(rand::random_range(0..8))).await;
                }
            });
        }
        tasks
    }

    /// Waits until producers have committed so many events that what is done to them means something.
    pub async fn has_committed(&self, events: usize) {
        self.wait_for("the producers", async || self.committed().await.len() >= events)
            .await;
    }

    /// All deliveries up to now, the latest of which may not be counted yet.
    pub fn delivered(&self) -> usize {
        self.pace.delivered()
    }

    /// Waits until so many deliveries have arrived.
    pub async fn has_delivered(&self, deliveries: usize) {
        let what = format!("{deliveries} deliveries");
        self.wait_for(&what, async || self.delivered() >= deliveries).await;
    }

    /// What was committed, according to the application's own table.
    pub async fn committed(&self) -> Vec<Committed> {
        let sql = format!("select id, key, n from {}.business", self.schema);
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.direct).await.unwrap();
        rows.iter()
            .map(|row| Committed {
                id: row.get::<uuid::Uuid, _>("id").into(),
                key: row.get("key"),
                n: row.get("n"),
            })
            .collect()
    }

    /// Waits until nothing is left to deliver.
    pub async fn drained(&self) {
        self.wait_for("the outbox to be empty", async || {
            let stats = self.store.stats().await;
            stats.is_ok_and(|stats| stats.pending + stats.processing == 0)
        })
        .await;
    }

    /// Waits for a condition, and fails with the relays' log if it does not come.
    pub async fn wait_for(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        let (mut last, mut delivered) = (begun, self.pace.delivered());
        while !condition().await {
            if self.pace.delivered() > delivered {
                (last, delivered) = (Instant::now(), self.pace.delivered());
            }
            if last.elapsed() > TIMEOUT || begun.elapsed() > LONGEST_TIMEOUT {
                let stats = self.store.stats().await;
                panic!("waited in vain for {what}: {stats:?}\n{}", self.log());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Lets time pass. In a log, whose readers take a while to begin, every other time until something is delivered.
    pub async fn live_for(&self, time: Duration) {
        let (before, begun) = (self.pace.delivered(), Instant::now());
        sleep(time).await;
        if matches!(self.tables, Tables::NativeLog { .. }) && rand::random() {
            while self.pace.delivered() == before && begun.elapsed() < LONGEST_LIFE {
                sleep(Duration::from_millis(rand::random_range(5..50))).await;
            }
        }
    }

    /// Kills a relay where it stands.
    pub async fn kill(&self, mut relay: Child) {
        relay.kill().await.unwrap();
        self.has_killed(1);
    }

    /// The deliveries of the half second before each kill.
    pub fn unwritten(&self) -> usize {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Takes note that relays could not hear what became of all that they had in flight. They live and know the rest.
    pub fn has_cut_off(&self, relays: usize) {
        self.kills.fetch_add(relays, Ordering::Relaxed);
    }

    /// Takes note that relays have just died, or lost their connections.
    pub fn has_killed(&self, relays: usize) {
        self.has_cut_off(relays);
        self.unwritten.fetch_add(self.pace.unwritten(), Ordering::Relaxed);
    }

    /// What relays deliver to, where it is a file.
    pub fn sink_file(&self) -> PathBuf {
        sink::file(self.dir.path())
    }

    /// What was delivered, in order per key.
    pub async fn deliveries(&self) -> Vec<MessageId> {
        self.sink.deliveries(self.dir.path()).await
    }

    /// The oracle's judgement, which must be spotless but for duplicates: what was in flight when relays died, and in a log
    /// what its reader had not written down.
    pub async fn assert_sound(&self) -> Verdict {
        let verdict = judge(&self.deliveries().await, &self.committed().await);
        let kills = self.kills.load(Ordering::Relaxed);
        assert_eq!(
            (verdict.lost, verdict.invented, verdict.inversions),
            (0, 0, 0),
            "after {kills} kills: {verdict:?}\n{}",
            self.log()
        );
        let in_flight = kills * MAX_IN_FLIGHT;
        let most = match &self.store {
            Store::Rows(_) => in_flight,
            Store::Log(_) => in_flight + self.unwritten(),
        };
        let log = self.log();
        for fault in ["panicked", "moved by somebody else"] {
            assert!(!log.contains(fault), "{fault}: {log}");
        }
        eprintln!("{kills} kills, at most {most} repetitions: {verdict:?}");
        assert!(verdict.duplicates <= most, "{kills} kills cannot explain {verdict:?}");
        verdict
    }
}
