//! Debezium Server as a peer: change data capture from the write-ahead log, by its outbox event router.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::brokers::Brokers;
use crate::clock::now_micros;
use crate::processes;
use crate::run::{Drain, Measured, Spent, fill, measured};
use crate::server::{Database, Server};
use crate::worker::protocol::Done;
use crate::workload::TOPIC;

const START_TIMEOUT: Duration = Duration::from_mins(5);
const WORK_TIMEOUT: Duration = Duration::from_mins(10);
const SLOT: &str = "bench_debezium";

/// Where Debezium Server is, and a Java that can run it.
#[derive(Clone, Debug)]
pub(crate) struct Debezium {
    pub(crate) dir: PathBuf,
    pub(crate) java: PathBuf,
}

/// Empties a backlog. The process is halted while the rows are written, so that it finds all of them waiting, as a relay
/// does; it was warmed up before.
pub(crate) async fn drain(
    server: &Server,
    installed: &Debezium,
    database: &Database,
    brokers: &Brokers,
    drain: &Drain,
    warm_up_rows: u32,
) -> anyhow::Result<Measured> {
    let home = std::env::temp_dir().join(&database.name);
    let mut conn = database.connect().await?;
    let result = async {
        let mut running = Running::start(installed, &home, database, brokers)?;
        running.wait_until_connected(&mut conn).await?;
        sqlx::query(include_str!("../queries/debezium_warm_up.sql"))
            .bind(i64::from(warm_up_rows))
            .bind(i32::try_from(drain.workload.payload_bytes)?)
            .bind(i64::from(drain.workload.keys))
            .execute(&mut conn)
            .await?;
        brokers.wait_for(u64::from(warm_up_rows), START_TIMEOUT).await?;
        running.signal(Signal::SIGSTOP)?;
        fill(database, &mut conn, drain).await?;

        let before = Spent::now(server, database, &mut conn, Some(brokers)).await?;
        let (cpu, began_at) = (processes::cpu_time(running.pid), now_micros());
        running.signal(Signal::SIGCONT)?;
        let records = u64::from(warm_up_rows) + u64::from(drain.workload.rows);
        brokers.wait_for(records, WORK_TIMEOUT).await?;
        let done = Done {
            finished_at: now_micros(),
            cpu_seconds: processes::cpu_time(running.pid).saturating_sub(cpu).as_secs_f64(),
            peak_memory: processes::peak_memory(running.pid).unwrap_or_default(),
            arrived: None,
            acknowledged: Vec::new(),
        };
        let after = Spent::now(server, database, &mut conn, Some(brokers)).await?;
        running.child.kill().await?;
        let arrived = brokers.read_back(&drain.workload)?;
        measured(drain, arrived, (began_at, &[done]), before, after)
    }
    .await;
    // The log of a run that failed is what tells why.
    if result.is_ok() {
        std::fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
    }
    drop_slot(&mut conn).await?;
    conn.close().await?;
    result.with_context(|| format!("its log is in {}", home.display()))
}

/// A slot keeps its database from being dropped, and the server from removing its log.
async fn drop_slot(conn: &mut PgConnection) -> anyhow::Result<()> {
    for _ in 0..100 {
        match slot_is_active(conn).await? {
            None => return Ok(()),
            Some(true) => {}
            Some(false) => {
                let drop = sqlx::query("select pg_drop_replication_slot($1)").bind(SLOT);
                drop.execute(&mut *conn).await?;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    bail!("the replication slot {SLOT} is still in use")
}

/// Whether somebody reads from the slot, if it is there.
async fn slot_is_active(conn: &mut PgConnection) -> anyhow::Result<Option<bool>> {
    let found = sqlx::query_scalar("select active from pg_replication_slots where slot_name = $1");
    Ok(found.bind(SLOT).fetch_optional(conn).await?)
}

struct Running {
    child: Child,
    pid: u32,
}

impl Running {
    fn start(installed: &Debezium, home: &Path, database: &Database, brokers: &Brokers) -> anyhow::Result<Self> {
        let config = home.join("config");
        std::fs::create_dir_all(&config)?;
        std::fs::write(config.join("application.properties"), properties(database, brokers)?)?;
        let log = std::fs::File::create(home.join("log"))?;
        let child = Command::new(&installed.java)
            .args(["-Xms256m", "-Xmx512m", "-cp"])
            .arg(class_path(&installed.dir, &config)?)
            .arg("io.debezium.server.Main")
            .current_dir(home)
            .env_remove("JAVA_TOOL_OPTIONS")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start Debezium Server")?;
        let pid = child.id().context("Debezium Server ended at once")?;
        Ok(Self { child, pid })
    }

    async fn wait_until_connected(&mut self, conn: &mut PgConnection) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while slot_is_active(conn).await? != Some(true) {
            ensure!(self.child.try_wait()?.is_none(), "Debezium Server ended");
            ensure!(Instant::now() < deadline, "Debezium Server does not connect");
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid)?), signal)?)
    }
}

/// The runner comes first.
fn class_path(dir: &Path, config: &Path) -> anyhow::Result<String> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let runner = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with("-runner.jar"))
        .with_context(|| format!("{} has no runner", dir.display()))?;
    Ok(format!(
        "{}:{}:{}",
        runner.display(),
        config.display(),
        dir.join("lib/*").display()
    ))
}

/// Acknowledged by all replicas, idempotent and with the same patience as our producer; queue, batches and poll interval are
/// larger and shorter than the defaults, which are slower.
fn properties(database: &Database, brokers: &Brokers) -> anyhow::Result<String> {
    let server = PgConnectOptions::from_str(&database.url)?;
    let settings = [
        ("quarkus.http.port", "0"),
        ("quarkus.log.level", "WARN"),
        ("quarkus.log.console.json", "false"),
        ("debezium.format.key", "simplestring"),
        ("debezium.format.value", "simplestring"),
        ("debezium.sink.type", "kafka"),
        ("debezium.sink.kafka.producer.bootstrap.servers", &brokers.bootstrap),
        (
            "debezium.sink.kafka.producer.key.serializer",
            "org.apache.kafka.common.serialization.StringSerializer",
        ),
        (
            "debezium.sink.kafka.producer.value.serializer",
            "org.apache.kafka.common.serialization.StringSerializer",
        ),
        ("debezium.sink.kafka.producer.acks", "all"),
        ("debezium.sink.kafka.producer.enable.idempotence", "true"),
        ("debezium.sink.kafka.producer.linger.ms", "5"),
        ("debezium.sink.kafka.producer.batch.size", "131072"),
        ("debezium.sink.kafka.producer.buffer.memory", "67108864"),
        (
            "debezium.source.connector.class",
            "io.debezium.connector.postgresql.PostgresConnector",
        ),
        (
            "debezium.source.offset.storage",
            "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        ),
        ("debezium.source.offset.storage.file.filename", "offsets.dat"),
        ("debezium.source.offset.flush.interval.ms", "1000"),
        ("debezium.source.database.hostname", server.get_host()),
        ("debezium.source.database.port", &server.get_port().to_string()),
        ("debezium.source.database.user", server.get_username()),
        ("debezium.source.database.password", "none"),
        ("debezium.source.database.dbname", &database.name),
        ("debezium.source.topic.prefix", "bench"),
        ("debezium.source.table.include.list", "public.outbox"),
        ("debezium.source.plugin.name", "pgoutput"),
        ("debezium.source.slot.name", SLOT),
        ("debezium.source.publication.name", "bench_outbox"),
        ("debezium.source.publication.autocreate.mode", "disabled"),
        ("debezium.source.snapshot.mode", "no_data"),
        ("debezium.source.tombstones.on.delete", "false"),
        ("debezium.source.poll.interval.ms", "5"),
        ("debezium.source.max.batch.size", "8192"),
        ("debezium.source.max.queue.size", "32768"),
        ("debezium.transforms", "outbox"),
        (
            "debezium.transforms.outbox.type",
            "io.debezium.transforms.outbox.EventRouter",
        ),
        ("debezium.transforms.outbox.route.topic.replacement", TOPIC),
        (
            "debezium.transforms.outbox.table.fields.additional.placement",
            "type:header:ce_type,aggregatetype:header:ce_aggregatetype,aggregateid:header:ce_subject",
        ),
    ];
    Ok(settings.map(|(name, value)| format!("{name}={value}\n")).concat())
}
